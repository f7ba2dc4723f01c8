"""Small networks of many kinds, each with its inputs and its loss. Written for this project; three come from
torchvision's constructors, without weights.

`MODELS` lists (name, constructor, inputs, loss, batch sizes). Inputs are (name, shape without the batch axis, dtype or
the number of ids); the batch axis is the first of all.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

FLOAT = "float"


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(768, 1024), nn.BatchNorm1d(1024), nn.LeakyReLU(0.1), nn.Dropout(0.2),
        nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.LeakyReLU(0.1), nn.Dropout(0.2),
        nn.Linear(512, 10),
    )


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )


def vgg():
    layers, channels = [], 3
    for width in (32, 32, "pool", 64, 64, "pool", 128, 128, "pool"):
        if width == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
    head = [nn.Flatten(), nn.Linear(128 * 64, 512), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(512, 100)]
    return nn.Sequential(nn.Sequential(*layers), nn.Sequential(*head))


def densenet():
    return torchvision.models.DenseNet(
        growth_rate=12, block_config=(4, 6, 4), num_init_features=24, bn_size=4, drop_rate=0.1, num_classes=10
    )


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(scale))))


class MBConv(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion=4):
        super().__init__()
        hidden = inputs * expansion
        self.body = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.SiLU(),
            SqueezeExcite(hidden, inputs // 4),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def se_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
        MBConv(16, 24, 2), MBConv(24, 24, 1), MBConv(24, 40, 2), MBConv(40, 40, 1),
        nn.Conv2d(40, 160, 1, bias=False), nn.BatchNorm2d(160), nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(160, 20),
    )


class UNet(nn.Module):
    def __init__(self, classes=5, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down, self.up, self.join = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        channels = 3
        for width in widths:
            self.down.append(self.double(channels, width))
            channels = width
        for width in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(channels, width, 2, 2))
            self.join.append(self.double(2 * width, width))
            channels = width
        self.head = nn.Conv2d(channels, classes, 1)

    @staticmethod
    def double(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU(),
        )

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], dim=1))
        return self.head(x)


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.ELU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ELU(), nn.Conv2d(64, 16, 3, 1, 1),
        nn.ConvTranspose2d(16, 64, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Sigmoid(),
    )


def dcgan_generator(width=32):
    layers, channels = [], 64
    for i, factor in enumerate((8, 4, 2, 1)):
        stride, padding = (1, 0) if i == 0 else (2, 1)
        layers += [
            nn.ConvTranspose2d(channels, width * factor, 4, stride, padding, bias=False),
            nn.BatchNorm2d(width * factor), nn.ReLU(True),
        ]
        channels = width * factor
    return nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())


def dcgan_discriminator(width=32):
    layers, channels = [], 3
    for factor in (1, 2, 4, 8):
        layers.append(nn.Conv2d(channels, width * factor, 4, 2, 1, bias=False))
        if factor > 1:
            layers.append(nn.BatchNorm2d(width * factor))
        layers.append(nn.LeakyReLU(0.2, inplace=True))
        channels = width * factor
    return nn.Sequential(*layers, nn.Conv2d(channels, 1, 4, 1, 0, bias=False), nn.Flatten())


class TransformerEncoder(nn.Module):
    def __init__(self, vocabulary=5000, width=128, heads=4, length=64, classes=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(1, length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, input_ids):
        x = self.encoder(self.tokens(input_ids) + self.positions)
        return self.head(x.mean(dim=1))


class GPTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.out(y))
        y = self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + self.dropout(y)


class GPT(nn.Module):
    """The head shares its weight with the embedding."""

    def __init__(self, vocabulary=4000, width=192, heads=6, length=96, depth=3):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.tokens(input_ids) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class LlamaBlock(nn.Module):
    """Rotary positions, grouped key and value heads, a gated feed-forward part."""

    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v = (
            nn.Linear(width, n * self.size, bias=False) for n in (heads, groups, groups)
        )
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    @staticmethod
    def rotate(x, cos, sin):
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin

    def spread(self, x):
        batch, groups, length, size = x.shape
        x = x[:, :, None].expand(batch, groups, self.heads // groups, length, size)
        return x.reshape(batch, self.heads, length, size)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.v(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = (self.spread(t) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary=3000, width=128, heads=4, groups=2, length=80, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(length).float(), 10000 ** -(torch.arange(0, size, 2).float() / size))
        angles = torch.cat([angles, angles], dim=-1)
        dtype = torch.get_default_dtype()
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))

    def forward(self, input_ids):
        x = self.tokens(input_ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class EagerAttention(nn.Module):
    """Scores, softmax and dropout as separate operations."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        y = self.dropout(scores.softmax(dim=-1)) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class ViT(nn.Module):
    def __init__(self, size=64, patch=8, width=96, heads=4, depth=3, classes=50):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*[
            nn.Sequential(
                Residual(nn.LayerNorm(width), EagerAttention(width, heads)),
                Residual(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
            )
            for _ in range(depth)
        ])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Recurrent(nn.Module):
    def __init__(self, kind, bidirectional, layers, vocabulary=3000, width=64, hidden=96, classes=3):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.rnn = kind(width, hidden, layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, input_ids):
        outputs, _ = self.rnn(self.tokens(input_ids))
        return self.head(outputs[:, -1])


def cnn3d():
    return nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(16, 32, 3, padding=1), nn.BatchNorm3d(32), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 8),
    )


class TwoTower(nn.Module):
    """A user and a bag of items meet in a dot product."""

    def __init__(self, users=20000, items=10000, width=32):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_tower = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))
        self.item_tower = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, user, items):
        left = F.normalize(self.user_tower(self.users(user)), dim=-1)
        right = self.item_tower(self.items(items).mean(dim=1))
        return (left * right).sum(dim=-1)


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext():
    return nn.Sequential(
        nn.Conv2d(3, 48, 4, 4), ConvNeXtBlock(48), ConvNeXtBlock(48),
        nn.Conv2d(48, 96, 2, 2), ConvNeXtBlock(96), ConvNeXtBlock(96),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(96), nn.Linear(96, 30),
    )


class Transposed(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Mixer(nn.Module):
    def __init__(self, size=64, patch=8, width=128, depth=3, classes=10):
        super().__init__()
        tokens = (size // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*[
            nn.Sequential(
                Residual(nn.LayerNorm(width), Transposed(nn.Linear(tokens, 96), nn.GELU(), nn.Linear(96, tokens))),
                Residual(nn.LayerNorm(width), nn.Linear(width, 512), nn.GELU(), nn.Linear(512, width)),
            )
            for _ in range(depth)
        ])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(dim=1))


def style_net(width=24):
    def conv(inputs, outputs, stride=1, kernel=3):
        return [
            nn.ReflectionPad2d(kernel // 2), nn.Conv2d(inputs, outputs, kernel, stride),
            nn.InstanceNorm2d(outputs, affine=True), nn.PReLU(outputs),
        ]

    return nn.Sequential(
        *conv(3, width, 1, 9), *conv(width, 2 * width, 2),
        Residual(*conv(2 * width, 2 * width)), Residual(*conv(2 * width, 2 * width)),
        nn.Upsample(scale_factor=2, mode="nearest"), *conv(2 * width, width),
        nn.Conv2d(width, 3, 3, padding=1), nn.Tanh(),
    )


class PointNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.points = nn.Sequential(*[
            layer
            for a, b in ((3, 64), (64, 128), (128, 512))
            for layer in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        ])
        self.head = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, classes))

    def forward(self, points):
        return self.head(self.points(points).max(dim=2).values)


class GatedTemporal(nn.Module):
    """Dilated causal convolutions with gates and summed skips."""

    def __init__(self, channels=8, width=32, depth=5, classes=16):
        super().__init__()
        self.first = nn.Conv1d(channels, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(depth))
        self.mix = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.last = nn.Conv1d(width, classes, 1)

    def step(self, x, i):
        a, b = self.gates[i](F.pad(x, (2**i, 0))).chunk(2, dim=1)
        return self.mix[i](torch.tanh(a) * torch.sigmoid(b))

    def skips(self, x):
        total = self.step(x, 0)
        for i in range(1, len(self.gates)):
            x = x + self.step(x, i)
            total = total + x
        return total

    def forward(self, x):
        return self.last(F.relu(self.skips(self.first(x)))).mean(dim=2)


def image(size, channels=3):
    return [("x", (channels, size, size), FLOAT)]


def ids(length, vocabulary):
    return [("input_ids", (length,), vocabulary)]


def torchvision_model(name):
    return lambda: getattr(torchvision.models, name)(weights=None)


MODELS = [
    ("autoencoder", autoencoder, image(64), "mse", (4, 32)),
    ("cnn3d", cnn3d, [("x", (1, 16, 32, 32), FLOAT)], "cross-entropy", (2, 16)),
    ("convnext", convnext, image(64), "cross-entropy", (4, 32)),
    ("dcgan_discriminator", dcgan_discriminator, image(64), "bce", (8, 64)),
    ("dcgan_generator", dcgan_generator, [("z", (64, 1, 1), FLOAT)], "none", (8, 64)),
    ("densenet", densenet, image(64), "cross-entropy", (4, 32)),
    ("gated_temporal", GatedTemporal, [("x", (8, 256), FLOAT)], "cross-entropy", (4, 32)),
    ("gpt", GPT, ids(96, 4000), "cross-entropy", (2, 16)),
    ("gru", lambda: Recurrent(nn.GRU, False, 1), ids(48, 3000), "cross-entropy", (8, 64)),
    ("lenet", lenet, image(28, 1), "cross-entropy", (16, 256)),
    ("llama", Llama, ids(80, 3000), "cross-entropy", (2, 16)),
    ("lstm", lambda: Recurrent(nn.LSTM, True, 2), ids(48, 3000), "cross-entropy", (8, 64)),
    ("mixer", Mixer, image(64), "cross-entropy", (4, 32)),
    ("mlp", mlp, image(16), "cross-entropy", (32, 512)),
    ("mobilenet_v2", torchvision_model("mobilenet_v2"), image(224), "cross-entropy", (2, 8)),
    ("pointnet", PointNet, [("points", (3, 512), FLOAT)], "cross-entropy", (4, 32)),
    ("resnet18", torchvision_model("resnet18"), image(224), "cross-entropy", (2, 8)),
    ("resnet50", torchvision_model("resnet50"), image(224), "cross-entropy", (2, 8)),
    ("se_net", se_net, image(96), "cross-entropy", (4, 32)),
    ("style_net", style_net, image(64), "mse", (2, 16)),
    ("transformer_encoder", TransformerEncoder, ids(64, 5000), "cross-entropy", (4, 32)),
    ("two_tower", TwoTower, [("user", (), 20000), ("items", (12,), 10000)], "bce", (64, 1024)),
    ("unet", UNet, image(64), "cross-entropy", (2, 16)),
    ("vgg", vgg, image(64), "cross-entropy", (4, 32)),
    ("vit", ViT, image(64), "cross-entropy", (4, 32)),
]


def make_input(shape, kind, batch, dtype, device):
    """Ids are random on a real device, where the exporters run the model; fake tensors have no values."""
    if kind == FLOAT:
        return torch.randn((batch, *shape), dtype=dtype, device=device)
    return torch.randint(0, kind, (batch, *shape), device=device)


def loss_and_target(name, kind, output_shape, inputs, dtype):
    """The loss as a function of output and target, and the target for outputs of this shape.

    A reconstruction is compared with the first input itself. Logits of a language model, (batch, length, classes), are
    cast up to float32 and compared token by token, as transformers does; other classes are on axis 1."""
    shape, device = tuple(output_shape), inputs[0].device
    if name in LANGUAGE_MODELS:
        target = torch.empty(shape[0] * shape[1], dtype=torch.int64, device=device)
        return (lambda output, target: F.cross_entropy(output.float().flatten(0, 1), target)), target
    if kind == "cross-entropy":
        return F.cross_entropy, torch.empty((shape[0], *shape[2:]), dtype=torch.int64, device=device)
    if kind == "mse":
        return F.mse_loss, inputs[0]
    if kind == "bce":
        return F.binary_cross_entropy_with_logits, torch.empty(shape, dtype=dtype, device=device)
    return (lambda output, _: output.mean()), None


LANGUAGE_MODELS = ("gpt", "llama")
