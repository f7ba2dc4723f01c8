"""Writes what memfit's executor is compared with: outputs of onnxruntime, and losses and gradients of PyTorch, for small
networks whose weights and inputs follow from a formula, so that nothing large is kept.

    python models/reference/validate_values.py crates/validate/tests/data

Element `i` of a tensor named NAME is `sin(0.61803 * k + sum(bytes of NAME) % 97)` with `k = i`, or `k = r * c + r + c` for
a matrix (the same for its transpose, which exporters store); vectors are lifted to 0.75 + 0.25 * that, weights scaled by their
fan-in; single numbers stay. Integers are `i * 7 % n`. Dropout keeps everything and scales.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import numpy_helper

from definitions import FLOAT, LANGUAGE_MODELS, MODELS
from export import export, randomize, strip
from small_nets import SMALL

BATCH = 2
FILES = ["convnext.dyn_eval", "gru.ts_train", "lenet.ts_train", "lstm.ts_train", "mixer.dyn_eval",
         "unet.dyn_eval", "vit.dyn_eval"]
# Small enough for an unoptimised test: wide convolutions are left to the small networks.
TRAINED = ["gpt", "gru", "lenet", "llama", "lstm", "mixer", "transformer_encoder", "two_tower", "vit"]


def formula(name, shape, weight):
    count = math.prod(shape)
    if len(shape) == 2:
        rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
        k = rows * columns + rows + columns
    else:
        k = np.arange(count)
    value = np.sin(0.61803 * k.reshape(-1).astype(np.float64) + sum(name.encode()) % 97)
    if weight and len(shape) <= 1:
        value = 0.75 + 0.25 * value
    elif weight:
        value = value / math.sqrt(max(count // shape[0], shape[0]))
    return value.reshape(shape).astype(np.float32)


def integers(shape, below):
    return (np.arange(math.prod(shape)) * 7 % below).reshape(shape).astype(np.int64)


def inputs_of(name):
    inputs = next(m[2] for m in [*MODELS, *SMALL] if m[0] == name)
    return {
        n: formula(n, (BATCH, *shape), False) if kind == FLOAT else integers((BATCH, *shape), kind)
        for n, shape, kind in inputs
    }


def forward(path):
    model = onnx.load(path, load_external_data=False)
    sizes = {name for node in model.graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and math.prod(tensor.dims) > 1 and tensor.name not in sizes:
            value = formula(tensor.name, tuple(tensor.dims), True)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, inputs_of(path.name.split(".")[0]))
    return [summary(o) for o in outputs if o.dtype == np.float32]


def summary(array):
    flat = np.asarray(array, dtype=np.float64).reshape(-1)
    # Seven digits, which is what float32 has.
    return [flat.size, *(float(f"{x:.7g}") for x in (flat.sum(), np.sqrt((flat * flat).sum())))]


class BurnGelu(torch.autograd.Function):
    """Forward by the error function, backward by the tanh form with these digits: `gelu_backward` of burn-backend 0.21,
    `backend/ops/activation.rs`. The two differ by up to a thousandth for each GELU on the way."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        tanh = torch.tanh(0.0356774 * x**3 + 0.797885 * x)
        return gradient * (0.5 * tanh + (0.0535161 * x**3 + 0.398942 * x) * (1 - tanh**2) + 0.5)


class Scale(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x / (1 - self.p) if self.training else x


def without_chance(model):
    for name, child in model.named_children():
        if isinstance(child, (nn.Dropout, nn.Dropout1d, nn.Dropout2d)):
            setattr(model, name, Scale(child.p))
        else:
            without_chance(child)


def trained(name, make, kind):
    model = make().train()
    without_chance(model)
    with torch.no_grad():
        # Each tensor once, under its first name.
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(formula(key, tuple(tensor.shape), True)))
    arrays = inputs_of(name)
    output = model(*(torch.from_numpy(a) for a in arrays.values()))
    if name in LANGUAGE_MODELS:
        output = output.flatten(0, 1)
    if kind == "cross-entropy":
        target = torch.from_numpy(integers((output.shape[0], *output.shape[2:]), output.shape[1]))
        loss = F.cross_entropy(output, target)
    elif kind == "mse":
        loss = F.mse_loss(output, torch.from_numpy(formula("target", tuple(output.shape), False)))
    elif kind == "bce":
        loss = F.binary_cross_entropy_with_logits(output, torch.from_numpy(integers(tuple(output.shape), 2)).float())
    else:
        loss = output.mean()
    loss.backward()
    gradients = {key: summary(p.grad) for key, p in model.named_parameters()}
    return {"of": kind, "loss": float(loss.detach()), "gradients": gradients}


def main(directory):
    torch.backends.mha.set_fastpath_enabled(False)
    sdpa = F.scaled_dot_product_attention

    def scaled(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **rest):
        return sdpa(q, k, v, attn_mask, 0.0, is_causal, **rest) / (0.9 if dropout_p > 0 else 1.0)

    F.scaled_dot_product_attention = scaled
    gelu = F.gelu
    models = Path(__file__).parent.parent
    outputs = {file: forward(models / f"{file}.onnx") for file in FILES}
    for name, make, inputs, _ in SMALL:
        torch.manual_seed(0)
        model = make()
        randomize(model)
        path = Path(directory) / f"{name}.onnx"
        export(model, inputs, str(path), False, True, False)
        strip(str(path))
    F.gelu = lambda x, approximate="none": gelu(x, approximate=approximate) if approximate == "tanh" else BurnGelu.apply(x)
    steps = {name: trained(name, make, loss) for name, make, _, loss, _ in MODELS if name in TRAINED}
    small = {name: trained(name, make, loss) for name, make, _, loss in SMALL}
    lines = [f'"{kind} {name}": {json.dumps(value, sort_keys=True)}'
             for kind, group in (("net", small), ("output", outputs), ("step", steps)) for name, value in sorted(group.items())]
    (Path(directory) / "reference.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
