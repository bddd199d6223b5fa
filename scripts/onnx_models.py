#!/usr/bin/env python3
"""Writes whole networks with random weights as ONNX files, and what ONNX Runtime makes of them.

Usage: onnx_models.py OUT [NAME…], with torch, torchvision, transformers, onnx, onnxscript and onnxruntime installed.
Each case is a folder like those of scripts/onnx_cases.py: NAME/model.onnx and NAME/test_data_set_0/*.pb. Nothing is
downloaded.
"""

import pathlib
import sys

import numpy as np
import onnxruntime
import torch
import torchvision
import transformers as hf
from onnx import numpy_helper

TOKENS = 32


class First(torch.nn.Module):
    """The first result of a network that takes tokens."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, tokens):
        return self.network(input_ids=tokens, return_dict=False)[0]


class Seen(torch.nn.Module):
    """The first result of a network that takes an image."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, image):
        return self.network(pixel_values=image, return_dict=False)[0]


def convolutional(name):
    """Running statistics are drawn too: with those of a fresh network, normalisation would do nothing."""
    network = getattr(torchvision.models, name)(weights=None)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return network, torch.randn(1, 3, 224, 224)


def bert():
    config = hf.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, attn_implementation="eager"
    )
    return First(hf.BertModel(config, add_pooling_layer=False)), torch.randint(0, 1000, (1, TOKENS))


def gpt2():
    """The shape that was published as the small one."""
    config = hf.GPT2Config(use_cache=False, attn_implementation="eager")
    return First(hf.GPT2Model(config)), torch.randint(0, 1000, (1, TOKENS))


def vit():
    config = hf.ViTConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, attn_implementation="eager"
    )
    return Seen(hf.ViTModel(config, add_pooling_layer=False)), torch.randn(1, 3, 224, 224)


NETWORKS = {
    "resnet18": lambda: convolutional("resnet18"),
    "mobilenet_v2": lambda: convolutional("mobilenet_v2"),
    "squeezenet1_1": lambda: convolutional("squeezenet1_1"),
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
}


def write(folder, network, example):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    with torch.no_grad():
        torch.onnx.export(
            network, (example,), path, input_names=["input"], output_names=["output"], dynamo=True, external_data=False
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"input": example.numpy()})
    for name, value in [("input", example.numpy()), ("output", output)]:
        message = numpy_helper.from_array(np.ascontiguousarray(value), name)
        (data / f"{name}_0.pb").write_bytes(message.SerializeToString())
    print(folder.name, path.stat().st_size, "bytes")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or NETWORKS:
        torch.manual_seed(0)
        network, example = NETWORKS[name]()
        write(pathlib.Path(sys.argv[1]) / name, network.eval(), example)


if __name__ == "__main__":
    main()
