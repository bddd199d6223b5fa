#!/usr/bin/env python3
"""Writes whole networks with random weights as ONNX files, and the results of ONNX Runtime for them.

Usage: onnx_models.py OUT [NAME[-OPSET]…], with torch, torchvision, transformers, onnx, onnxscript and onnxruntime installed.
Each case is a folder like those of scripts/onnx_cases.py: NAME/model.onnx and NAME/test_data_set_0/*.pb. Nothing is
downloaded. The name `attention` stands for the small networks of tests/onnx-attention.
"""

import pathlib
import sys

import numpy as np
import onnx
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


class Attended(torch.nn.Module):
    """A layer, attention, and nothing else; `seen` makes a mask of the tokens, `groups` heads share keys."""

    def __init__(self, seen=None, groups=1, **arguments):
        super().__init__()
        self.seen, self.groups, self.arguments = seen, groups, arguments
        self.layer = torch.nn.Linear(16, 16 + 32 // groups)

    def forward(self, x):
        split = lambda part: part.unflatten(-1, (-1, 4)).transpose(1, 2)
        q, k, v = [split(part) for part in self.layer(x).split([16, 16 // self.groups, 16 // self.groups], -1)]
        mask = None if self.seen is None else self.seen(x)
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, enable_gqa=self.groups > 1, **self.arguments
        )


class Padded(torch.nn.Module):
    """The first result of a network that takes tokens, those below 5 being none."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, tokens):
        return self.network(input_ids=tokens, attention_mask=(tokens >= 5).long(), return_dict=False)[0]


def attended(**arguments):
    return Attended(**arguments), torch.randn(2, 5, 16)


def seen(x):
    """Which tokens are seen; in the second batch none is."""
    return (x[:, None, None, :, 0] < torch.tensor([1.0, -9.0])[:, None, None, None]).expand(2, 1, 5, 5)


def padded(network, config, **more):
    config = config(
        vocab_size=19, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8,
        num_key_value_heads=2, use_cache=False, attn_implementation="eager", **more
    )
    return Padded(network(config)), torch.tensor([[7, 12, 5, 18, 9, 6], [8, 17, 11, 1, 1, 1]])


ATTENTION = {
    "plain": attended,
    "causal": lambda: attended(is_causal=True),
    "shared": lambda: attended(groups=2, scale=0.3),
    "numbers": lambda: attended(seen=lambda x: x[:, None, None, :, 0]),
    "truths": lambda: attended(seen=seen),
    "llama": lambda: padded(hf.LlamaModel, hf.LlamaConfig),
    "mistral": lambda: padded(hf.MistralModel, hf.MistralConfig, sliding_window=3),
    "gemma2": lambda: padded(hf.Gemma2Model, hf.Gemma2Config, head_dim=4, sliding_window=3),
    "layer": lambda: (torch.nn.TransformerEncoderLayer(16, 4, 8, batch_first=True), torch.randn(2, 5, 16)),
}
# Some of them again, by the operator that later sets have.
SMALL = [*ATTENTION, "causal-23", "shared-23", "truths-23"]

NETWORKS = {
    "resnet18": lambda: convolutional("resnet18"),
    "mobilenet_v2": lambda: convolutional("mobilenet_v2"),
    "squeezenet1_1": lambda: convolutional("squeezenet1_1"),
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
}


def bare(path):
    """Without what is told of where each operator came from."""
    model = onnx.load(path)
    for part in [model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output]:
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    onnx.save(model, path)


def write(folder, network, example, **arguments):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    with torch.no_grad():
        torch.onnx.export(
            network, (example,), path, input_names=["input"], output_names=["output"], dynamo=True, external_data=False,
            **arguments,
        )
    bare(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"input": example.numpy()})
    for name, value in [("input", example.numpy()), ("output", output)]:
        message = numpy_helper.from_array(np.ascontiguousarray(value), name)
        (data / f"{name}_0.pb").write_bytes(message.SerializeToString())
    print(folder.name, path.stat().st_size, "bytes")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    names = sys.argv[2:] or NETWORKS
    for name in SMALL if names == ["attention"] else names:
        name, _, opset = name.partition("-")
        torch.manual_seed(0)
        network, example = (NETWORKS | ATTENTION)[name]()
        arguments = dict(opset_version=int(opset)) if opset else {}
        write(pathlib.Path(sys.argv[1]) / f"{name}{_}{opset}", network.eval(), example, **arguments)


if __name__ == "__main__":
    main()
