"""Writes the TorchScript file of the tests: two layers, the second over a sum with an embedding of whole numbers.

Run it with a Python that has PyTorch: `python scripts/torchscript_case.py tests/torchscript/two-inputs.pt`.
"""

import io
import sys
import zipfile

import torch


class TwoInputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 3)

    def forward(self, x, indices):
        return self.second(torch.relu(self.first(x) + self.table(indices))), indices


torch.manual_seed(0)
saved = io.BytesIO()
torch.jit.save(torch.jit.script(TwoInputs().eval()), saved)
with zipfile.ZipFile(saved) as source, zipfile.ZipFile(sys.argv[1], "w") as target:
    for entry in source.infolist():
        # Where the program was written is nobody's business.
        if not entry.filename.endswith(".debug_pkl"):
            target.writestr(entry, source.read(entry))
