"""Writes TorchScript files with random weights, and what torch makes of them.

Usage: torchscript_cases.py OUT [NAME…], with torch, torchvision, transformers and safetensors installed. Each case is NAME.pt and
NAME.safetensors with the tensors that go in (by the name of the input) and come out (`output.0` and so on). Modules of
`pt2_cases.py` are traced; those below are scripted, or are read in another way than an archive of `torch.export`.
"""

import io
import sys
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from typing import Dict, List, Optional, Tuple

import pt2_cases

TRACED = "image moves order steps norms grids resized blocks counts cells points regions signals pools scatters special spectra parts losses diagonals".split()


class Attention(nn.Module):
    """Attention as it is written by hand, over shapes that it asks for."""

    def __init__(self):
        super().__init__()
        self.joint, self.out, self.heads = nn.Linear(16, 48), nn.Linear(16, 16), 4

    def forward(self, x, mask: Optional[torch.Tensor] = None):
        b, n, c = x.shape
        q, k, v = self.joint(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        else:
            scores = scores + torch.ones(n, n, dtype=x.dtype, device=x.device).tril().log()
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Control(nn.Module):
    """Branches and loops over known values, lists, dictionaries, functions, texts and parts that are written to."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norm, self.drop, self.table, self.turns = nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Embedding(16, 4), 3

    def shifted(self, x, by: int = 2):
        for step in range(1, by):
            x = x + step
        return x

    def forward(self, x, indices, scale: float = 0.5, names: Optional[List[str]] = None) -> Tuple[torch.Tensor, List[torch.Tensor], Dict[str, torch.Tensor]]:
        for layer in self.layers:
            x = torch.relu(layer(x))
        if self.training:
            x = x * 2
        turn = 0
        while turn < self.turns:
            x = x + 1 if turn % 2 == 0 else x * 2.0
            turn += 1
        y = self.drop(self.norm(x)) + self.table(indices)
        b, c = y.shape
        parts: List[torch.Tensor] = []
        for part in y.chunk(2, dim=-1):
            parts.append(part * scale)
        y = nn.functional.softmax(y, dim=-1, dtype=torch.float32)
        z = torch.zeros(b, 6, dtype=x.dtype)
        z[:, :4] = y
        z[0] += 1
        assert z.dim() == 2, "two dimensions, not {}".format(z.dim())
        sizes = {"wide": c, "tall": b}
        return self.shifted(y.view(b, 2, sizes["wide"] // 2)), parts, {"head": y[:, :1], "rows": z}


class Layers(nn.Module):
    """Layers of a transformer and a recurrent one."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.lstm = nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.lstm(self.encoder(x))[0]


def cases():
    for name, make, inputs in pt2_cases.cases():
        if name.removeprefix("small_") in TRACED:
            yield name.removeprefix("small_"), lambda make=make, inputs=inputs: torch.jit.trace(make().eval(), inputs, check_trace=False), inputs
    x = torch.randn(2, 5, 16)
    yield "attention", lambda: torch.jit.trace(Attention().eval(), (x,)), (x,)
    yield "attention_scripted", lambda: torch.jit.script(Attention().eval()), (x,)
    yield "layers", lambda: torch.jit.trace(Layers().eval(), (x,), check_trace=False), (x,)
    yield "layers_scripted", lambda: torch.jit.script(Layers().eval()), (x,)
    indices = torch.tensor([3, 0, 15, 7, 7])
    yield "control", lambda: torch.jit.script(Control().eval()), (torch.randn(5, 4), indices)
    yield "control_frozen", lambda: torch.jit.freeze(torch.jit.script(Control().eval())), (torch.randn(5, 4), indices)


def save(program, path):
    """Leaves out where the program was written."""
    saved = io.BytesIO()
    torch.jit.save(program, saved)
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry.filename), source.read(entry), entry.compress_type)


def flat(answer):
    if isinstance(answer, torch.Tensor):
        return [answer]
    parts = answer.values() if isinstance(answer, dict) else answer
    return [tensor for part in parts for tensor in flat(part)]


def main():
    out, wanted = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    for name, make, inputs in cases():
        if wanted and name not in wanted:
            continue
        torch.manual_seed(sum(name.encode()))
        program = make()
        for name_of, buffer in program.named_buffers():
            if name_of.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            if name_of.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
        save(program, out / f"{name}.pt")
        program = torch.jit.load(out / f"{name}.pt")
        with torch.no_grad():
            answers = flat(program(*[tensor.clone() for tensor in inputs]))
        names = [value.debugName().split(".")[0] for value in program.graph.inputs()][1:]
        tensors = {given: tensor.contiguous().clone() for given, tensor in zip(names, inputs)}
        tensors |= {f"output.{index}": tensor.contiguous().clone() for index, tensor in enumerate(answers)}
        save_file(tensors, out / f"{name}.safetensors")
        print(name, (out / f"{name}.pt").stat().st_size, flush=True)


if __name__ == "__main__":
    main()
