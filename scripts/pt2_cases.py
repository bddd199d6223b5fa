"""Writes archives of torch.export with random weights, and what torch makes of them.

Usage: pt2_cases.py OUT [NAME…], with torch, torchvision, transformers and safetensors installed. Each case is NAME.pt2
and NAME.safetensors with the tensors that go in (by the name of the input) and come out (`output.0` and so on). Cases
whose name begins with `small` are a few kilobytes; the others are whole models.
"""

import json
import sys
import zipfile
from pathlib import Path

import torch
import torchvision
import transformers as hf
from safetensors.torch import save_file
from torch import nn


class Image(nn.Module):
    """What convolutional networks are made of, in-place names and several dtypes of indices included."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True))
        self.depth = nn.Conv2d(8, 8, 3, padding="same", groups=8, dilation=2)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + nn.functional.hardswish(self.depth(x))
        y = nn.functional.avg_pool2d(nn.functional.max_pool2d(x, 3, 2, 1), 2, ceil_mode=True)
        x = x * torch.sigmoid(nn.functional.interpolate(y, scale_factor=4.0, mode="nearest"))
        x = nn.functional.leaky_relu_(self.norm(self.up(x)), 0.2)
        x = nn.functional.pad(x, (1, 1, 0, 0)).clamp(min=-0.5)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1)
        return self.head(x).log_softmax(-1), x.mean(dim=1, keepdim=True)


class Moves(nn.Module):
    """Shapes, indices and reductions."""

    def forward(self, x, index):
        a, b, c = x.chunk(3, dim=-1)
        d = torch.cat([a.transpose(1, 2), b.permute(0, 2, 1)], dim=1).unsqueeze(0).expand(2, -1, -1, -1)
        e = torch.stack([c, c.flip(1)], dim=1).roll(1, dims=2)[:, :, 1:, ::2]
        f = torch.where(c > 0, c.square(), c.abs().sqrt()).masked_fill(c.isnan(), 0.0)
        g = torch.tril(torch.ones(4, 4)).matmul(x[:, :4]) / (1 + x.std(dim=-1, keepdim=True)[:, :4])
        h = x.index_select(1, index).gather(2, index.view(1, -1, 1).expand(2, -1, 3)) - x.var(dim=(1, 2), keepdim=True)
        i = x.split([2, 4], dim=1)[1].cumsum(1).amax(dim=1) + torch.arange(9) * 0.5
        return d.reshape(2, -1), e.pow(2).sum((1, 3)), f, g, h, i, x.argmax(dim=-1), torch.einsum("bij,bkj->bik", x, x)


class Order(nn.Module):
    """What is found by sorting."""

    def forward(self, x):
        best, places = x.topk(3, dim=1)
        least = x.topk(2, largest=False)[0]
        rising, order = torch.sort(x, dim=0)
        falling = x.sort(dim=-1, descending=True, stable=True)[1]
        return best, places, least, rising, order, falling, x.argsort(dim=1)


class Steps(nn.Module):
    """Recurrent layers and an attention over them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 6, batch_first=True)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.norm = nn.RMSNorm(6)

    def forward(self, tokens):
        x, _ = self.lstm(self.words(tokens))
        x, last = self.gru(x)
        x, _ = self.attention(x, x, x, need_weights=False)
        return nn.functional.gelu(self.norm(x), approximate="tanh"), last


class Answers(nn.Module):
    """A library model that answers with one tensor."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        return getattr(self.model(x, use_cache=False) if self.name == "logits" else self.model(x), self.name)


def cases():
    tokens = torch.randint(3, 19, (2, 7))
    tiny = dict(vocab_size=19, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, max_position_embeddings=12)
    yield "small_image", lambda: Image(), (torch.randn(2, 3, 16, 16),)
    yield "small_moves", lambda: Moves(), (torch.randn(2, 6, 9), torch.tensor([1, 0, 2]))
    yield "small_order", lambda: Order(), (torch.randn(4, 5, 6),)
    yield "small_steps", lambda: Steps(), (torch.randint(0, 11, (2, 5)),)
    yield "small_bert", lambda: Answers(hf.BertModel(hf.BertConfig(**tiny)), "last_hidden_state"), (tokens,)
    small = hf.GPT2Config(vocab_size=19, n_embd=8, n_layer=1, n_head=2, n_positions=12)
    yield "small_gpt2", lambda: Answers(hf.GPT2LMHeadModel(small), "logits"), (tokens,)
    llama = hf.LlamaConfig(**tiny, num_key_value_heads=1)
    yield "small_llama", lambda: Answers(hf.LlamaForCausalLM(llama), "logits"), (tokens,)
    image = torch.randn(1, 3, 64, 64)
    yield "resnet18", torchvision.models.resnet18, (image,)
    yield "mobilenet_v2", torchvision.models.mobilenet_v2, (image,)
    yield "squeezenet1_1", torchvision.models.squeezenet1_1, (image,)
    yield "efficientnet_b0", torchvision.models.efficientnet_b0, (image,)
    yield "shufflenet_v2", torchvision.models.shufflenet_v2_x1_0, (image,)
    yield "densenet121", torchvision.models.densenet121, (image,)
    yield "mobilenet_v3_small", torchvision.models.mobilenet_v3_small, (image,)
    yield "convnext_tiny", torchvision.models.convnext_tiny, (image,)
    yield "swin_t", torchvision.models.swin_t, (torch.randn(1, 3, 224, 224),)
    yield "vit", lambda: torchvision.models.VisionTransformer(64, 16, 2, 4, 64, 128), (image,)
    middle = dict(vocab_size=99, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    yield "bert", lambda: Answers(hf.BertModel(hf.BertConfig(**middle)), "last_hidden_state"), (tokens,)
    wide = hf.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4)
    yield "gpt2", lambda: Answers(hf.GPT2LMHeadModel(wide), "logits"), (tokens,)
    yield "t5_encoder", lambda: Answers(hf.T5EncoderModel(hf.T5Config(vocab_size=99, d_model=64, num_layers=2, num_heads=4, d_kv=16, d_ff=128)), "last_hidden_state"), (tokens,)
    yield "bert_core", lambda: Answers(hf.BertModel(hf.BertConfig(**middle)), "last_hidden_state"), (tokens,)
    yield "resnet18_core", torchvision.models.resnet18, (image,)


def shrink(path):
    """Leaves out what no reader of graphs needs: pickled examples, and the lines of Python that every node came from."""
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(entries.items()):
            if "/sample_inputs/" in name:
                continue
            if "/models/" in name:
                program = json.loads(data)
                program.pop("guards_code", None)
                for node in program["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {key: text for key, text in node["metadata"].items() if key == "nn_module_stack"}
                for meta in program["graph_module"]["graph"]["tensor_values"].values():
                    for key in ("device", "layout", "requires_grad"):
                        meta.pop(key)
                data = json.dumps(program, separators=(",", ":")).encode()
            archive.writestr(zipfile.ZipInfo(name), data)


def main():
    out, wanted = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, make, inputs in cases():
        if wanted and name not in wanted:
            continue
        torch.manual_seed(sum(name.encode()))
        model = make().eval()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.normal_(0, 0.1)
                    module.running_var.uniform_(0.5, 1.5)
            exported = torch.export.export(model, inputs, strict=False)
            if name.endswith("_core"):
                exported = exported.run_decompositions()
            answer = model(*inputs)
        torch.export.save(exported, out / f"{name}.pt2")
        answers = answer if isinstance(answer, tuple) else (answer,)
        if name.startswith("small"):
            shrink(out / f"{name}.pt2")
        names = exported.graph_signature.user_inputs
        tensors = {given: tensor.contiguous().clone() for given, tensor in zip(names, inputs)}
        tensors |= {f"output.{index}": tensor.contiguous().clone() for index, tensor in enumerate(answers)}
        save_file(tensors, out / f"{name}.safetensors")
        print(name, (out / f"{name}.pt2").stat().st_size, flush=True)


if __name__ == "__main__":
    main()
