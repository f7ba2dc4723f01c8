"""Small networks, each of one kind of layers: what `validate_values.py` asks PyTorch for gradients of.

A batch of two at inference sizes of a few elements: the test that runs them is not optimised. `SMALL` has for each its name, how it is made, its
inputs as in `definitions.MODELS`, and its loss. What a file does not say is left out: a slope of one number is a number there, and an embedding's
row of zeros trains as the others do.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from definitions import FLOAT


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Branches(nn.Module):
    """All see the same input; what they give is flattened and joined."""

    def __init__(self, first, *branches):
        super().__init__()
        self.first, self.branches = first, nn.ModuleList(branches)

    def forward(self, x):
        x = self.first(x)
        return torch.cat([branch(x).flatten(1) for branch in self.branches], 1)


def conv_transpose():
    return nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(6, 4, 3, groups=2, dilation=2, bias=False), nn.Flatten(2),
        nn.ConvTranspose1d(4, 3, 4, stride=2), nn.Tanh(),
    )


def depthwise():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
        nn.Conv2d(8, 16, 3, groups=8, stride=2), nn.SiLU(), nn.Conv2d(16, 6, 1, groups=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )


def convolutions():
    return Branches(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 4, (3, 5), padding=(0, 2), stride=(2, 1)), nn.Conv2d(4, 4, 3, dilation=2, padding=2),
        nn.Conv2d(4, 4, 3, padding="same", padding_mode="circular"),
        nn.Sequential(nn.ZeroPad2d((1, 0, 2, 1)), nn.Conv2d(4, 2, 3)),
        nn.Sequential(nn.Flatten(2), nn.ReplicationPad1d(2), nn.Conv1d(4, 4, 5, stride=3)),
        nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Conv3d(2, 3, (1, 3, 3), stride=2)), nn.Conv2d(4, 3, 1, stride=2),
        nn.Conv2d(4, 3, (1, 3), padding=1, stride=(3, 2)),
    )


def norms():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(),
        nn.Conv2d(8, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.PReLU(6),
        nn.Conv2d(6, 6, 3), nn.LayerNorm([6, 6, 6]), nn.ELU(0.7),
        nn.InstanceNorm2d(6), nn.Flatten(2), nn.LayerNorm(36), nn.BatchNorm1d(6), nn.Flatten(), nn.Linear(216, 4),
    )


def pools():
    return Branches(
        nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1), nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(3, stride=2, padding=1), nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1), nn.LPPool2d(2, 3, stride=2),
        nn.Sequential(nn.Flatten(2), nn.MaxPool1d(3, stride=2, dilation=2), nn.AvgPool1d(3)),
        nn.Sequential(nn.Unflatten(1, (2, 2)), nn.MaxPool3d((1, 2, 2)), nn.AvgPool3d((2, 3, 3), stride=(1, 2, 2))),
    )


def activations():
    names = ("CELU", "ELU", "GELU", "GLU", "Hardsigmoid", "Hardswish", "LogSigmoid", "Mish", "SELU", "SiLU", "Sigmoid",
             "Softplus", "Softsign", "Tanh")
    clamped = Apply(lambda x: x.clamp(-0.4, 0.6))
    tanh = nn.GELU(approximate="tanh")
    return Branches(nn.Linear(6, 8), nn.PReLU(8), clamped, tanh, nn.LogSoftmax(-1), nn.Softmax(-1), *(getattr(nn, n)() for n in names))


class Picks(nn.Module):
    """What a router of experts does: the largest are weighed and put back, or added to what is there."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, x):
        scores = self.router(x)
        largest, places = scores.topk(3, dim=1)
        gates = torch.zeros_like(scores).scatter(1, places, largest.softmax(1))
        smallest = scores.topk(2, dim=1, largest=False)[0]
        return torch.cat([gates * self.experts(x), smallest, scores.scatter_add(1, places, largest)], 1)


class MaskedAttention(nn.Module):
    """Over itself with later positions and a file's mask hidden, then over a longer memory with fewer heads."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.own, self.across = nn.MultiheadAttention(width, heads, batch_first=True), nn.ModuleList(nn.Linear(width, n) for n in (width, width // 2, width // 2))
        self.norm, self.heads = nn.LayerNorm(width), heads

    def forward(self, x, memory, mask):
        hidden = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
        x = self.norm(x + self.own(x, x, x, attn_mask=hidden, need_weights=False)[0])
        q, k, v = (layer(t).unflatten(-1, (-1, 4)).transpose(1, 2) for layer, t in zip(self.across, (x, memory, memory)))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(mask[:, None, None, :] < -0.3, -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Decoder(nn.Module):
    """RMSNorm, rotary positions, attention without later positions, a gated feed-forward part, a tied head."""

    def __init__(self, words=30, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((width, 24), (width, 24), (24, width)))

    def normed(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale

    def forward(self, ids):
        x = self.words(ids)
        q, k, v = self.qkv(self.normed(x)).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        angle = torch.arange(x.shape[1])[:, None] / torch.tensor([1.0, 10.0])
        angle = torch.cat([angle, angle], -1)
        turn = lambda t: t * angle.cos() + torch.cat([-t[..., 2:], t[..., :2]], -1) * angle.sin()
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        n = self.normed(x)
        x = x + self.down(F.silu(self.gate(n)) * self.up(n))
        return self.normed(x).mean(1) @ self.words.weight.T


class Recurrences(nn.Module):
    """Both directions and two layers, states carried from one to the next, and cells written step by step."""

    def __init__(self, width=6):
        super().__init__()
        self.lstm = nn.LSTM(4, width, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(2 * width, width, bidirectional=True, batch_first=True)
        self.rnn = nn.RNN(2 * width, width, batch_first=True)
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x):
        x, (h, c) = self.lstm(x)
        x, last = self.gru(x, h[2:])
        x, _ = self.rnn(x, last[:1])
        state = (h[0], c[1])
        for step in range(2):
            state = self.cell(x[:, step], state)
        return torch.cat([state[0], x[:, -1]], 1)


class Embeddings(nn.Module):
    """Words met more than once, the mean of a bag, positions cut from a longer table, picking by index."""

    def __init__(self, words=20, width=6):
        super().__init__()
        self.words, self.kinds, self.places = nn.Embedding(words, width), nn.Embedding(3, width), nn.Embedding(12, width)

    def forward(self, ids):
        x = self.words(ids) + self.kinds(ids % 3) + self.places.weight[: ids.shape[1]]
        bag = self.words(ids.flip(1)).mean(1)
        picked = x.gather(1, (ids % 4)[:, :2, None].expand(-1, -1, 6)).flatten(1)
        return torch.cat([x.amax(1), bag, picked, x.index_select(1, torch.tensor([0, 2, 2])).flatten(1)], 1)


class Shapes(nn.Module):
    """Pieces, joins, turns and reductions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 12)

    def forward(self, x):
        x = self.first(x)
        a, b, c = x.split([2, 6, 4], -1)
        grid = x.unflatten(-1, (3, 4))
        parts = [
            torch.stack([a, a * 2], 1), b.flip(-1), c.roll(1, -1), x[..., ::3], x.cumsum(-1), torch.where(x > 0, x, x * 0.1), grid.transpose(1, 2).tril(),
            grid.sum(1), grid.mean((1, 2), keepdim=True), grid.amax(-1), grid.amin(1), grid.var(-1), grid.std(1), grid.logsumexp(-1), grid.norm(dim=-1), F.normalize(grid, dim=-1),
            torch.einsum("bij,bkj->bik", grid, grid), torch.maximum(a, c[..., :2]), torch.minimum(a, c[..., 2:]), x.abs().sqrt(), x.pow(3), (x.pow(2) + 1).log(),
            x / (x.pow(2) + 1), x.sin() * x.cos(), torch.exp(-x.abs()), a[:, :, None] * b[:, None, :],
        ]
        return torch.cat([part.flatten(1) for part in parts], 1)


def resizing():
    return Branches(
        nn.Conv2d(3, 4, 3, padding=1), nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample(size=(9, 7), mode="bilinear", align_corners=True), nn.PixelShuffle(2), nn.PixelUnshuffle(2),
        Apply(lambda x: x.unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2)),
    )


PLANE = [("x", (3, 12, 12), FLOAT)]
SMALL = [
    ("activations", activations, [("x", (6,), FLOAT)], "mse"),
    ("conv_transpose", conv_transpose, [("x", (4, 5, 5), FLOAT)], "mse"),
    ("convolutions", convolutions, PLANE, "mse"),
    ("decoder", Decoder, [("ids", (9,), 30)], "cross-entropy"),
    ("depthwise", depthwise, [("x", (3, 20, 20), FLOAT)], "cross-entropy"),
    ("embeddings", Embeddings, [("ids", (9,), 20)], "mse"),
    ("masked_attention", MaskedAttention, [("x", (5, 16), FLOAT), ("memory", (7, 16), FLOAT), ("mask", (7,), FLOAT)], "mse"),
    ("norms", norms, PLANE, "cross-entropy"),
    ("picks", Picks, [("x", (6,), FLOAT)], "mse"),
    ("pools", pools, PLANE, "mse"),
    ("recurrences", Recurrences, [("x", (5, 4), FLOAT)], "mse"),
    ("resizing", resizing, [("x", (3, 6, 6), FLOAT)], "mse"),
    ("shapes", Shapes, [("x", (6,), FLOAT)], "mse"),
]
