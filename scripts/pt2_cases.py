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
import torch.ao.quantization.fx._decomposed  # noqa: F401, which registers operators
import torchvision
import transformers as hf
from safetensors.torch import save_file
from torch import nn
from torch._higher_order_ops.while_loop import while_loop


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


class Norms(nn.Module):
    """Norms, and what is normalised by its own statistics."""

    def __init__(self):
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3), dim=2)
        self.batch = nn.BatchNorm1d(6, track_running_stats=False)
        self.instance = nn.InstanceNorm1d(6, affine=True)
        self.kernel = nn.Parameter(torch.randn(5, 4, 3))

    def forward(self, x):
        weight = nn.functional.batch_norm(self.kernel.reshape(1, 5, -1), None, None, training=True, momentum=0.0).reshape(5, 4, 3)
        y = self.normed(x)
        lengths = [torch.linalg.vector_norm(x, order, dim=(0, 2), keepdim=True) for order in (0, 1, 2, 3.5, float("inf"), -float("inf"))]
        variance, mean = torch.var_mean(x, dim=(0, 2), correction=0, keepdim=True)
        deviation, _ = torch.std_mean(x, dim=1)
        near = nn.functional.cosine_similarity(x, x.flip(2), dim=1), nn.functional.pairwise_distance(x[:, 0], x[:, 1])
        apart = torch.cdist(x, x.roll(1, 2)), x.norm(dim=1), x.norm(p=1), torch.count_nonzero(x > 0, dim=1)
        return nn.functional.conv1d(x, weight), self.batch(y), self.instance(y), *lengths, variance, mean, deviation, *near, *apart


class Grids(nn.Module):
    """Images that are looked at in computed places."""

    def forward(self, x, theta, grid, volume):
        moved = [nn.functional.affine_grid(theta, (2, 3, 4, 5), align_corners=aligned) for aligned in (False, True)]
        seen = []
        for mode in ("bilinear", "nearest", "bicubic"):
            for padding in ("zeros", "border", "reflection"):
                for aligned in (False, True):
                    seen.append(nn.functional.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=aligned))
        deep = nn.functional.grid_sample(volume, torch.cat([grid, grid[..., :1]], -1).unsqueeze(1), align_corners=False)
        ij = torch.meshgrid(torch.arange(3) * 0.5, theta[0, 0], indexing="ij")
        xy = torch.meshgrid(torch.linspace(-1, 1, 4), theta[0, 1], indexing="xy")
        return *moved, *seen, deep, ij[0] + ij[1], xy[0] - xy[1]


class Resized(nn.Module):
    """Changes of resolution of all kinds."""

    def forward(self, x, volume):
        resize = nn.functional.interpolate
        resized = []
        for aligned in (False, True):
            resized.append(resize(x, (9, 7), mode="bicubic", align_corners=aligned))
            resized.append(resize(volume, (5, 4, 6), mode="trilinear", align_corners=aligned))
        for mode in ("bilinear", "bicubic"):
            resized.append(resize(x, (3, 4), mode=mode, antialias=True))
            resized.append(resize(x, (11, 13), mode=mode, antialias=True))
            resized.append(resize(x, scale_factor=(1.7, 0.6), mode=mode))
        resized.append(resize(x, scale_factor=1.7, mode="nearest"))
        resized.append(resize(x, (9, 4), mode="nearest-exact"))
        resized.append(nn.functional.max_pool2d(nn.functional.pad(x, (1, 2, 0, 1), value=-torch.inf), 3, 2))
        return tuple(resized)


class Blocks(nn.Module):
    """Blocks, windows and other ways to look at the same elements."""

    def forward(self, x):
        blocks = nn.functional.unfold(x, 3, dilation=2, padding=1, stride=2)
        back = nn.functional.fold(nn.functional.unfold(x, (2, 3), padding=1), (6, 8), (2, 3), padding=1)
        tiles = nn.functional.fold(nn.functional.unfold(x, 2, stride=2), (6, 8), 2, stride=2)
        windows = x.unfold(2, 3, 2), x.unfold(3, 4, 4), x.unfold(-1, 8, 1)
        turned = torch.rot90(x, 1, (2, 3)), torch.rot90(x, 3, (-2, -1)), x.swapaxes(0, 3), x.movedim((0, 1), (-1, 0)), x.mT
        lines = x.diagonal(1, 2, 3), x[0, 0].diag(), torch.diag_embed(x[0, 0])
        parts = torch.tensor_split(x, 3, dim=3)[1], torch.tensor_split(x, (1, 4), dim=3)[2], torch.hstack([x, x]), torch.vstack([x, x])
        repeated = x.tile(2, 1), x.roll(5), x.repeat_interleave(2), x.repeat_interleave(torch.tensor([1, 0, 3, 2]), 1)
        others = nn.functional.channel_shuffle(x, 2), torch.eye(4, 8) + x[0, 0, :4], x.reshape_as(x.flatten()), torch.triu_indices(3, 4, 1)
        empty = torch.cat([x[:, :0], x, x[:, 4:].reshape(2, 0, 6, 8)], dim=1), x.as_strided((2, 3), (5, 2), 3)
        flipped = x.fliplr(), torch.take_along_dim(x, x.argmax(1, keepdim=True), 1), torch.atleast_1d(x), x.ravel()
        return blocks, back, tiles, *windows, *turned, *lines, *parts, *repeated, *others, *empty, *flipped


class Counts(nn.Module):
    """Counts, bags of rows, places among sorted numbers, and running results."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(9, 3, mode=mode, padding_idx=2) for mode in ("sum", "mean", "max")])
        self.register_buffer("starts", torch.tensor([0, 2, 2, 5]))

    def forward(self, x, numbers, weights):
        counted = torch.histc(numbers.float(), 9, 0, 8), torch.histc(x, 7, -1.0, 1.5), torch.isin(numbers, torch.tensor([3, 5]))
        bags = [bag(numbers) for bag in self.bags] + [bag(numbers.flatten(), self.starts) for bag in self.bags]
        weighted = nn.functional.embedding_bag(numbers, self.bags[0].weight, mode="sum", per_sample_weights=weights)
        bounds = torch.tensor([-1.0, 0.0, 0.5])
        places = torch.bucketize(x, bounds), torch.bucketize(x, bounds, right=True), torch.searchsorted(x.sort(-1)[0], x)
        running = x.cumprod(1), *x.cummax(1), *x.cummin(0), x.median(), *x.median(1), *x.kthvalue(2, 0), *torch.aminmax(x, dim=1)
        added = x.index_add(1, numbers[0, :2] % 5, x[:, :2], alpha=2), x.index_copy(0, torch.tensor([3, 1]), x[:2]), x.index_fill(1, numbers[0, :1] % 5, 7)
        joined = x.scatter_reduce(1, numbers % 5, x[:3, :4], "amax"), x.take(numbers), torch.bincount(torch.tensor([1, 3, 1]), minlength=5)
        return *counted, *bags, weighted, *places, *running, *added, *joined


class Cells(nn.Module):
    """Recurrent layers of every kind, and single steps."""

    def __init__(self):
        super().__init__()
        self.projected = nn.LSTM(5, 6, num_layers=2, proj_size=3, bidirectional=True)
        self.relu = nn.RNN(6, 4, num_layers=2, nonlinearity="relu", batch_first=True)
        self.tanh = nn.RNN(5, 4, bias=False)
        self.steps = nn.ModuleList([nn.LSTMCell(5, 4), nn.GRUCell(5, 4), nn.RNNCell(5, 4), nn.RNNCell(5, 4, nonlinearity="relu", bias=False)])

    def forward(self, x):
        y, (state, memory) = self.projected(x)
        z, last = self.relu(y)
        alone, _ = self.tanh(x[:, 0])
        steps = [step(x[0]) for step in self.steps]
        return y, state, memory, z, last, alone, *steps[0], *steps[1:]


class Points(nn.Module):
    """Functions of elements."""

    def forward(self, a, b):
        c = torch.where(a > 1, float("inf"), torch.where(b > 1, float("nan"), a))
        joined = torch.lerp(a, b, 0.3), torch.lerp(a, b, b), torch.addcmul(a, a, b, value=0.5), torch.addcdiv(a, b, a, value=2)
        bent = torch.atan2(a, b), torch.atan2(a, b * 0), torch.hypot(a, b), torch.logaddexp(a, b), torch.erfc(a), torch.heaviside(a, b), a.frac()
        cut = nn.functional.threshold(a, 0.2, -3), torch.logit(a.sigmoid(), 1e-6), nn.functional.rrelu(a), c.isfinite(), c.nan_to_num(2, 3)
        whole = (a * 8).int(), (a * 8).int() << 2, (a * 8).int() >> 1
        products = torch.outer(a[0], b[0]), torch.inner(a, b), torch.tensordot(a, b, ([1], [1])), torch.linalg.cross(a[:, :3], b[:, :3]), torch.dot(a[0], b[0])
        sums = torch.addmv(a[:, 0], a, b[0]), nn.functional.bilinear(a, b, torch.ones(2, 5, 5) * 0.1), torch.linalg.vecdot(a, b)
        windows = torch.hann_window(7), torch.hamming_window(6, periodic=False), torch.blackman_window(5)
        return *joined, *bent, *cut, *whole, *products, *sums, *[a[0, 0] + window for window in windows]


class Regions(nn.Module):
    """Regions of images, and windows that move by what they see."""

    def __init__(self):
        super().__init__()
        self.offset = nn.Conv2d(4, 18, 3, padding=1, stride=2)
        self.mask = nn.Conv2d(4, 9, 3, padding=1, stride=2)
        self.deformed = torchvision.ops.DeformConv2d(4, 5, 3, padding=1, stride=2)

    def forward(self, x, boxes):
        regions = [torchvision.ops.roi_align(x, boxes, (3, 2), 0.5, 2, aligned) for aligned in (False, True)]
        return *regions, self.deformed(x, self.offset(x)), self.deformed(x, self.offset(x), self.mask(x).sigmoid())


class Modes(nn.Module):
    """Parts that run without gradients, whose programs stand within the program, and a product with a vector."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            z = y * 2 + x
            w = z.sin()
        with torch.autocast("cpu", enabled=False):
            v = (w + y).cos()
        return v + z, nn.functional.linear(x, self.layer.weight[0])


class Branches(nn.Module):
    """Parts of which one runs: by what the data says, and by what is known."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("flag", torch.tensor(False))

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x) + x.shape[0], (x,))
        z = torch.cond(torch.zeros(1).sum() > 0, lambda x: self.a(x).sin(), lambda x: x * 2, (y,))
        return y, z


class Masks(nn.Module):
    """Elements that masks choose which are known."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.tensor([True, False, True]))
        self.register_buffer("places", torch.ones(4, 5).tril() > 0)
        self.register_buffer("none", torch.zeros(4) > 0)

    def forward(self, x):
        chosen = x[self.rows], x[:, self.places], x[self.rows].sum(0)[self.places], x[:, self.none]
        y = x * 2
        y[:, self.places] = x[:, self.places].flip(1)
        return *chosen, y


class Writes(nn.Module):
    """Parts of a view that are written to, and read under the name of the view."""

    def forward(self, x):
        y = (x * 2).view(3, 2, 10).transpose(2, 1)
        y[:, 1:4][:, :, 0:1] = x[:, :3, :1]
        y[:, 2].add_(1)
        z = x.clone()
        z[1, :, 2:].mul_(3)
        return y, y.sum(2), z


class Turns(nn.Module):
    """Loops whose number of turns is known, one of them without turns, one in another, and one that counts in floats."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        start = torch.zeros((), dtype=torch.int64)

        def body(turn, x):
            return turn + 1, self.layer(x).relu() + turn

        def outer(turn, x):
            return turn + 2, while_loop(lambda turn, x: turn < 2, body, (turn, x))[1] * 0.5

        turns, y = while_loop(lambda turn, x: turn < 3, body, (start, x))
        z = while_loop(lambda turn, x: turn < 0, lambda turn, x: (turn + 1, x * 2), (start, y))[1]
        w = while_loop(lambda turn, x: turn.sum() < 2, lambda turn, x: (turn + 1, x + turn), (torch.zeros(()), x))[1]
        return turns, y, z + while_loop(lambda turn, x: turn < 3, outer, (start, x))[1], w


class Rounds(nn.Module):
    """Numbers rounded to integers, to digits behind the point, and to tens."""

    def forward(self, x):
        return x.round(), x.round(decimals=1), x.round(decimals=-1), (x * 8).int().round()


class Signals(nn.Module):
    """Fourier transforms and complex numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(12))
        self.register_buffer("turns", torch.polar(torch.ones(7, 4), torch.rand(7, 4)))

    def forward(self, x, y):
        spectrum = torch.stft(x, 16, 5, 12, window=self.window, return_complex=True)
        back = torch.istft(spectrum, 16, 5, 12, window=self.window, length=40)
        plain = torch.stft(x[0], 16, center=False, normalized=True, onesided=False, return_complex=True, window=torch.ones(16))
        turned = torch.view_as_real(torch.view_as_complex(y.reshape(3, 7, 4, 2)) * self.turns).flatten(2)
        shaped = (torch.fft.fft(y).unsqueeze(-1).transpose(0, 1) * 0.5 + 0.25 * torch.fft.fft(y, 9, dim=1, norm="ortho")[:, :7].unsqueeze(-1).transpose(0, 1)).reshape(7, -1)
        other = torch.fft.irfft(torch.fft.rfft(y, dim=1) * 2, 7, dim=1), torch.fft.ifft(torch.fft.fftn(y, dim=(0, 2)), dim=0).imag
        return spectrum.abs(), spectrum.angle().cos(), back, torch.view_as_real(plain), turned, shaped.real, shaped.conj().imag, torch.fft.fft2(y).real, *other


class Pools(nn.Module):
    """Pools with the places of the maxima, their inverses, pools with another divisor, and images without a batch."""

    def forward(self, x, volume):
        pool = nn.functional.max_pool2d
        half, places = pool(x, 2, return_indices=True)
        # The functions that call these cannot be traced.
        back = torch.ops.aten.max_unpool2d(half, places, [6, 7])
        wide, wide_places = pool(x, 3, 2, 1, ceil_mode=True, return_indices=True)
        _, apart = pool(x, 2, 1, 1, dilation=2, return_indices=True)
        line, line_places = nn.functional.max_pool1d(x[:, :, 0], 2, return_indices=True)
        deep, deep_places = nn.functional.max_pool3d(volume, 2, return_indices=True)
        _, adaptive_places = nn.functional.adaptive_max_pool2d(x, (2, 3), return_indices=True)
        deep_back = torch.ops.aten.max_unpool3d(deep, deep_places, [4, 4, 5], [2, 2, 2], [0, 0, 0])
        divided = [nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=mode, divisor_override=4) for mode in (False, True)]
        single = pool(x[0], 2), nn.functional.avg_pool2d(x[0], 2), nn.functional.adaptive_avg_pool2d(x[0], 2)
        return back, wide, wide_places, apart, line, line_places, adaptive_places, deep_back, *divided, *single


class Scatters(nn.Module):
    """Updates that are combined with each other, with or without the elements that they replace."""

    def forward(self, x, index, updates, mask):
        combined = []
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for own in (True, False):
                combined.append(x.scatter_reduce(1, index, updates, reduce, include_self=own))
                if reduce != "sum":
                    combined.append(x.index_reduce(1, index[0], updates, reduce, include_self=own))
        whole = (x * 8).long().scatter_reduce(1, index, (updates * 8).long(), "mean", include_self=False)
        rows = x.masked_scatter(mask.unsqueeze(1) > 0, updates)
        return *combined, whole, rows, x.masked_scatter(x > 0, updates.flatten())


class Special(nn.Module):
    """Functions of elements that are compositions of others, and powers of integers."""

    def forward(self, a, b, whole):
        signed = torch.where(a > 1, -0.0, a)
        signs = torch.copysign(a, signed), torch.copysign(b, -1.0), torch.signbit(signed), torch.signbit(whole)
        logs = torch.xlogy(a.relu(), b.abs()), torch.special.xlog1py(a, b.abs()), torch.logaddexp2(a, b), torch.special.entr(a)
        tests = torch.isclose(a, a + 1e-6), torch.isposinf(1 / a.relu()), torch.isneginf(a.relu().log()), whole.isnan(), whole.isinf()
        others = torch.sinc(a.relu()), torch.ldexp(a, whole), torch.deg2rad(a), torch.rad2deg(whole), torch.special.ndtr(a), torch.float_power(b.abs(), 1.5)
        bent = nn.functional.softplus(a, 2, 1), nn.functional.selu(a), torch.fmax(a, b), torch.fmin(whole, whole.flip(0))
        open_side = (1 / a.relu()).clamp(min=0), a.relu().log().clamp(max=0)
        powers = 2 ** whole, whole ** 3, (whole - 2) ** whole, whole ** 0, (whole - 2) ** 2
        joined = torch.addr(a, a[:, 0], a[0]), torch.nansum(a.log(), 1), torch.nanmean(a.log()), torch.trace(a), nn.functional.mse_loss(a, b), torch.stack([a, whole]), (a > 0).amax(1), *(a > 0).max(0)
        return *signs, *logs, *tests, *others, *bent, *open_side, *powers, *joined


class Spectra(nn.Module):
    """Filters of spectra: products of complex tensors, parts of a spectrum, and transforms of several axes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 2, 2, dtype=torch.cfloat))

    def forward(self, x):
        spectrum = torch.fft.rfft2(x)
        kept = torch.zeros(2, 3, 4, 4, dtype=torch.cfloat)
        kept[:, :, :2, :2] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :2, :2], self.weight)
        kept[:, :, -2:, :2] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -2:, :2], self.weight)
        filtered = torch.fft.irfft2(kept, s=(4, 6))
        a, b = torch.complex(x[0, 0], x[0, 1]), torch.complex(x[1, 0], x[1, 1])
        numbers = a @ b.T, a / b, a.exp(), a + x[0, 0], 2 / b, (a * b).sum(1), torch.cat([a, b], 1), torch.fft.fftshift(a)
        moved = torch.fft.fftshift(x), torch.fft.ifftshift(x, dim=(1, 3)), torch.fft.fftfreq(6) + torch.fft.rfftfreq(10)
        back = torch.fft.irfftn(torch.fft.rfftn(x, s=(4, 8), dim=(2, 3), norm="ortho"), s=(4, 7), dim=(2, 3), norm="ortho")
        return filtered, *[torch.view_as_real(number) for number in numbers], *moved, back


class Parts(nn.Module):
    """Every second element, and elements of views, that are written to; tensors that are parts of others."""

    def __init__(self):
        super().__init__()
        whole = torch.randn(6, 8)
        self.left, self.columns = nn.Parameter(whole[:, :3]), nn.Parameter(whole[:, 1::2])
        self.turned = nn.Parameter(whole.t()[2:5])
        self.register_buffer("rows", whole[::2].expand(2, 3, 8))

    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, 0::2], y[:, 1::2] = x[:, 0::2].sin(), x[:, 1::2].cos()
        z = x.clone()
        z.view(2, 3, 6)[:, 1] *= 2
        z.t()[2].add_(1)
        z.unsqueeze(0)[0, ::3, 4] = 0
        turned = torch.as_strided(x.t().reshape(2, 3, 6).transpose(1, 2).contiguous(), (2, 2, 3), (18, 9, 1))
        return y, z, z.clone().fill_diagonal_(3), turned, x @ self.left, self.columns * 2, self.turned.sum(1), self.rows + 1


class Sizes(nn.Module):
    """Two inputs whose first sizes are one symbol."""

    def forward(self, x, y):
        return (x + y).reshape(-1), x.mean(0)


# The symbols of a case whose sizes are not fixed, per input.
DYNAMIC = {"small_sizes": ({0: torch.export.Dim("n", min=2, max=64)},) * 2}


class Answers(nn.Module):
    """A library model that answers with one tensor."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        return getattr(self.model(x, use_cache=False) if self.name == "logits" else self.model(x), self.name)


class Losses(nn.Module):
    """Loss functions, with weights, ignored targets and all reductions."""

    def forward(self, x, target, probability, other):
        f = nn.functional
        weight = torch.linspace(0.5, 1.5, 5)
        planes = x[:, :, None].expand(4, 5, 2) * torch.tensor([1.0, 0.5])
        parts = torch.stack([target, target.flip(0)], 1)
        shares = other.softmax(1)
        return (
            f.cross_entropy(x, target), f.cross_entropy(x, target, weight, ignore_index=2, reduction="none"),
            f.cross_entropy(x, target, weight, ignore_index=2, label_smoothing=0.2), f.cross_entropy(planes, parts, reduction="sum"),
            f.cross_entropy(x, target, ignore_index=2, label_smoothing=0.1), f.cross_entropy(x, shares, weight, label_smoothing=0.1),
            f.nll_loss(x.log_softmax(1), target, weight), f.nll_loss(planes.log_softmax(1), parts, ignore_index=2),
            f.cross_entropy(x[0], target[0]),
            f.binary_cross_entropy(probability, shares, weight), f.binary_cross_entropy(probability.round(), shares, reduction="none"),
            f.binary_cross_entropy_with_logits(x * 9, shares, weight, pos_weight=weight), f.binary_cross_entropy_with_logits(x, shares),
            f.mse_loss(x, other), f.l1_loss(x, other, reduction="sum"), f.smooth_l1_loss(x, other, beta=0.4),
            f.smooth_l1_loss(x, other, beta=0.0), f.huber_loss(x, other, delta=0.7, reduction="none"),
            f.soft_margin_loss(x, other.sign()), f.kl_div(x.log_softmax(1), shares, reduction="batchmean"),
            f.kl_div(x.log_softmax(1), shares.log(), log_target=True), f.kl_div(x, (other > 0).float(), reduction="sum"),
        )


class Decomposed(nn.Module):
    """Functions that `run_decompositions()` turns into operators that no other case has."""

    def forward(self, x, target, other):
        f = nn.functional
        y = x.clone()
        y.fill_diagonal_(0.5)
        return f.cross_entropy(x, target, ignore_index=2), f.huber_loss(x, other), f.kl_div(x, other.softmax(1), reduction="sum"), y


class Diagonals(nn.Module):
    """Diagonals at offsets, quantiles, norms, and writes through diagonals and permuted views."""

    def forward(self, x, y):
        z, w, v = y.clone(), y.clone(), x.clone()
        z.permute(2, 0, 1)[1] = 7.0
        w.diagonal(1, 0, 2).mul_(3.0)
        v.fill_diagonal_(0.5)
        v.T.diagonal(-1).copy_(x[0, :3])
        w.movedim(0, 2)[:, 1:, 2].zero_()
        q = torch.tensor([0.1, 0.5, 0.75])
        return (
            torch.diag(x[0], 2), torch.diag(x[0], -1), torch.diag_embed(y, 1), torch.diag_embed(x, -1, 0, 2), z, w, v,
            torch.diagonal_scatter(x, x[1, :3], 1), torch.diagonal_scatter(y, y[0, :, :3], -1, 0, 2),
            torch.quantile(x, q), torch.quantile(y, q, dim=1, keepdim=True), torch.quantile(x, 0.3, dim=0),
            torch.quantile(x, 0.4, dim=1, interpolation="nearest"), torch.quantile(x, 0.4, keepdim=True, interpolation="midpoint"),
            torch.logcumsumexp(y * 30, 1), torch.linalg.vector_norm(y, dim=(0, 2)), torch.linalg.vector_norm(x, 3, dim=1, keepdim=True),
            torch.linalg.norm(x), torch.linalg.norm(y, dim=(0, 1)), torch.linalg.norm(x, "fro"), torch.linalg.matrix_norm(y),
            torch.linalg.vector_norm(x, float("inf")), torch.norm(y, dim=-1),
        )


class Quantised(nn.Module):
    """Operators of PT2E: quantisation of tensors, channels, rows and groups, with scales of the file and of the data."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (6, 8), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(6) * 0.02 + 0.01)
        self.register_buffer("zeros", torch.randint(-5, 5, (6,)))
        self.register_buffer("groups", torch.rand(6, 2) * 0.02 + 0.01)

    def forward(self, x):
        q = torch.ops.quantized_decomposed
        a = q.quantize_per_tensor(x, 0.021, 114, 0, 255, torch.uint8)
        b = q.quantize_per_tensor(x, 0.03, 3, -127, 127, torch.int8)
        c = q.quantize_per_channel(x, self.scales[:4], self.zeros[:4], 0, -128, 127, torch.int8)
        weight = q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        y = nn.functional.linear(q.dequantize_per_tensor(a, 0.021, 114, 0, 255, torch.uint8), weight)
        scale, zero = q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
        d = q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        e = q.dequantize_per_tensor.tensor(d, scale, zero, -128, 127, torch.int8)
        rows, zeros = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        f = q.quantize_per_token(x, rows, zeros, -128, 127, torch.int8)
        g = q.dequantize_per_token(f, rows, zeros, -128, 127, torch.int8, torch.float32)
        h = q.dequantize_per_channel_group(self.weight, self.groups, None, -8, 7, torch.int8, 4, torch.float32)
        i = torch.fake_quantize_per_tensor_affine(x, 0.05, 7, 0, 15)
        j = torch.fake_quantize_per_channel_affine(x, self.scales[:4], self.zeros[:4].int(), 0, -128, 127)
        k = torch._int_mm(self.weight, d.t()[:, :4].contiguous())
        return b, c, y, scale, zero, e, g, h, i, j, k, q.convert_element_type.no_fuse(x, torch.float64)


def quantised_network():
    """A network that PT2E has calibrated and quantised."""
    from torchao.quantization.pt2e import allow_exported_model_train_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer, get_default_x86_inductor_quantization_config

    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5)
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 6, 6)
    quantiser = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantiser)
    prepared(x)
    quantised = convert_pt2e(prepared)
    allow_exported_model_train_eval(quantised)
    return quantised


def cases():
    tokens = torch.randint(3, 19, (2, 7))
    tiny = dict(vocab_size=19, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, max_position_embeddings=12)
    yield "small_image", lambda: Image(), (torch.randn(2, 3, 16, 16),)
    yield "small_moves", lambda: Moves(), (torch.randn(2, 6, 9), torch.tensor([1, 0, 2]))
    yield "small_order", lambda: Order(), (torch.randn(4, 5, 6),)
    yield "small_steps", lambda: Steps(), (torch.randint(0, 11, (2, 5)),)
    theta = torch.tensor([[1.0, 0.2, -0.1], [0.3, 0.8, 0.2]]).expand(2, 2, 3) + torch.randn(2, 2, 3) * 0.1
    grid = torch.rand(2, 3, 4, 2) * 3 - 1.5
    for end in ("", "_core"):
        yield "small_modes" + end, Modes, (torch.randn(2, 4),)
        yield "small_signals" + end, Signals, (torch.randn(2, 40), torch.randn(3, 7, 8))
        yield "small_norms" + end, Norms, (torch.randn(2, 4, 7),)
        yield "small_grids" + end, Grids, (torch.randn(2, 2, 5, 6), theta.clone(), grid, torch.randn(2, 2, 3, 4, 5))
        yield "small_resized" + end, Resized, (torch.randn(1, 2, 6, 8), torch.randn(1, 2, 3, 4, 5))
        yield "small_blocks" + end, Blocks, (torch.randn(2, 4, 6, 8),)
        numbers = torch.randint(0, 9, (3, 4))
        yield "small_counts" + end, Counts, (torch.randn(4, 5), numbers, torch.rand(3, 4))
        yield "small_cells" + end, Cells, (torch.randn(4, 2, 5),)
        yield "small_points" + end, Points, (torch.randn(3, 5), torch.randn(3, 5))
        boxes = torch.tensor([[0, 1.0, 2, 20, 30], [1, 5, 5, 14, 11], [0, -9, 3, 4, 40]])
        yield "small_regions" + end, Regions, (torch.randn(2, 4, 8, 10), boxes)
    yield "small_branches", Branches, (torch.randn(3, 4),)
    yield "small_masks", Masks, (torch.randn(3, 4, 5),)
    yield "small_writes", Writes, (torch.randn(3, 4, 5),)
    yield "small_turns", Turns, (torch.randn(3, 4),)
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
    yield "small_rounds", Rounds, (torch.randn(3, 8) * 20,)
    index, mask = torch.randint(0, 5, (3, 4)), torch.tensor([1, -1, 1])
    for end in ("", "_core"):
        yield "small_pools" + end, Pools, (torch.randn(2, 3, 6, 7), torch.randn(1, 2, 4, 4, 5))
        yield "small_special" + end, Special, (torch.randn(5, 5), torch.randn(5, 5), torch.randint(0, 5, (5, 5)))
        yield "small_spectra" + end, Spectra, (torch.randn(2, 2, 4, 6),)
    yield "small_losses", Losses, (torch.randn(4, 5), torch.tensor([1, 2, 0, 4]), torch.rand(4, 5), torch.randn(4, 5))
    yield "small_diagonals", Diagonals, (torch.randn(4, 4), torch.randn(4, 3, 4))
    yield "small_decomposed_core", Decomposed, (torch.randn(4, 5), torch.tensor([1, 2, 0, 4]), torch.randn(4, 5))
    yield "small_quantised", Quantised, (torch.randn(4, 8),)
    yield "small_quantised_network", quantised_network, (torch.randn(2, 3, 6, 6),)
    yield "small_parts", Parts, (torch.randn(6, 6),)
    yield "small_sizes", Sizes, (torch.randn(3, 4), torch.randn(3, 4))
    yield "small_scatters", Scatters, (torch.randn(3, 5), index, torch.randn(3, 4), mask)


def shrink_graph(graph):
    for node in graph["nodes"]:
        node["metadata"] = {key: text for key, text in node["metadata"].items() if key == "nn_module_stack"}
        for given in node["inputs"]:
            if "as_graph" in given["arg"]:
                shrink_graph(given["arg"]["as_graph"]["graph"])
    for meta in graph["tensor_values"].values():
        for key in ("device", "layout", "requires_grad"):
            meta.pop(key)


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
                shrink_graph(program["graph_module"]["graph"])
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
        model = make()
        model.eval()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.normal_(0, 0.1)
                    module.running_var.uniform_(0.5, 1.5)
            exported = torch.export.export(model, inputs, strict=False, dynamic_shapes=DYNAMIC.get(name))
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
