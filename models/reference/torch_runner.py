"""Whether the modules that `memfit validate --runner torch` writes compute what their files do: forward beside onnxruntime.

    python models/reference/torch_runner.py target/debug/memfit models/*.onnx

Weights follow from their shapes alone, so that it does not matter how an operator of torch's lays them out: element `k` of a tensor is
`sin(0.61803 * k)`, scaled by the fan-in, with `k = r * c + r + c` in a matrix. Batch norms are those that nn.BatchNorm begins with, and
all weights of a recurrent layer are one number. A file that onnxruntime refuses is said and left out.
"""

import math
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

TOLERANCE = 1e-3
BATCH = 2
LAYERS = ("Conv", "ConvTranspose", "Gemm")
RECURRENT = ("LSTM", "GRU", "RNN")


def formula(shape):
    count = math.prod(shape)
    if len(shape) == 2:
        rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
        k = (rows * columns + rows + columns).reshape(-1)
    else:
        k = np.arange(count)
    value = np.sin(0.61803 * k.astype(np.float64))
    if len(shape) < 2:
        value = 0.75 + 0.25 * value
    else:
        value = value / math.sqrt(max(count // shape[0], shape[0], 1))
    return value.reshape(shape).astype(np.float32)


def reference(path, inputs, parameters):
    """Outputs of onnxruntime, by order."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    kept, plain, trained = set(), {}, set(parameters)
    for node in graph.node:
        if node.op_type in LAYERS:
            # An exporter that folds a batch norm names and stores the bias that it makes.
            trained.update(node.input[1:])
        if node.op_type in ("Resize", "Upsample"):
            kept.update(node.input[1:])
        if node.op_type == "BatchNormalization":
            plain.update(zip(node.input[1:5], (1.0, 0.0, 0.0, 1.0)))
            if node.attribute:
                for attribute in node.attribute:
                    if attribute.name == "training_mode":
                        attribute.i = 0
                del node.output[1:]
        if node.op_type in RECURRENT:
            plain.update({name: 0.02 for name in above(graph, node.input[1:4])})
        if node.op_type == "Dropout":
            del node.input[1:]
    for tensor in graph.initializer:
        size = math.prod(tensor.dims)
        if tensor.name in kept or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        if tensor.name in plain:
            value = np.full(tuple(tensor.dims), plain[tensor.name], np.float32)
        elif tensor.name + ".flat" in parameters:
            # What an exporter gave a layer with axes for broadcasting.
            value = formula((size,)).reshape(tuple(tensor.dims))
        elif size > 1 and (tensor.name in trained or not stored(tensor)):
            value = formula(tuple(tensor.dims))
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    outputs = session.run(None, {name: inputs[name] for name in names})
    return [o for o in outputs if o.dtype == np.float32]


def above(graph, names):
    """All that these tensors are made of: exporters put a layer's weights together from pieces."""
    makers = {output: node for node in graph.node for output in node.output}
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name and name not in found:
            found.add(name)
            left.extend(makers[name].input if name in makers else [])
    return found


def stored(tensor):
    """Whether the file itself has the elements."""
    return tensor.data_location != onnx.TensorProto.EXTERNAL and (tensor.raw_data or tensor.float_data)


def written(memfit, path):
    """The program up to where it begins to train, and the module it defines; nothing where memfit refuses."""
    words = [memfit, "validate", path, "-b", str(BATCH), "--runner", "torch", "--backend", "cpu", "--mode", "infer", "--print-script"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()
    names = re.findall(r"^    def forward\(self, (.*)\):$", done.stdout, re.MULTILINE)
    space = {}
    exec(compile(done.stdout.rsplit("main()", 1)[0], path, "exec"), space)
    return space, names[-1].split(", ") if names else []


def set_weights(model):
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            owner = model.get_submodule(name.rpartition(".")[0])
            if isinstance(owner, (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)):
                tensor.fill_(0.02)
            elif owner is model and tensor.is_floating_point() and name in model.made and tensor.numel() > 1:
                tensor.copy_(torch.from_numpy(formula(tuple(tensor.shape))))


def outputs_of(memfit, path):
    space, names = written(memfit, path)
    if space is None:
        return None, names, None
    step = space["Step"]
    made = {}
    for method in ("parameter", "buffer"):
        plain = getattr(step, method)
        setattr(step, method, lambda self, key, *rest, plain=plain: (made.update({key: rest[0]}), plain(self, key, *rest))[1])
    model = space["Model"]().eval()
    model.made = made
    set_weights(model)
    given = space["make_inputs"]()
    with torch.no_grad():
        found = model(*given)
    order = [i.name for i in onnx.load(path, load_external_data=False).graph.input]
    inputs = {name: x.numpy() for name, x in zip(order, given)}
    return inputs, [o.numpy() for o in found if o.is_floating_point()], set(map(str, made.values()))


def main(memfit, *paths):
    bad = 0
    for path in paths:
        try:
            inputs, found, parameters = outputs_of(memfit, path)
            if inputs is None:
                print(f"{path}: not written: {found[0] if found else ''}")
                continue
            expected = reference(path, inputs, parameters)
        except Exception as error:
            print(f"{path}: left out: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
            continue
        worst = 0.0
        for a, b in zip(found, expected):
            scale = max(float(np.abs(b).max()), 1e-6)
            worst = max(worst, float(np.abs(a.reshape(-1) - b.reshape(-1)).max()) / scale if a.size == b.size else math.inf)
        agrees = worst <= TOLERANCE and len(found) == len(expected)
        bad += not agrees
        print(f"{path}: {'agrees' if agrees else 'DIFFERS'}, {worst:.1e} of the largest")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
