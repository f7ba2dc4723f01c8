"""Whether Burn's steps compute what the files say: forward on the processor beside onnxruntime.

    cargo build -p memfit-validate --features cpu --example forward
    python models/reference/executor.py target/debug/examples/forward models/*.onnx ../shared/corpus/onnx/*.onnx
    python models/reference/executor.py target/debug/examples/forward --operators ../shared/corpus/operators

Both sides get the same random weights and inputs, always the same ones; a batch of two. Models run as they do at inference. What an output
may differ by is 0.1 % of its largest element, for a single operator 0.01 %: sums of float32 in another order. A line a file, and what
remains of it at the end; the exit code is 1 where one differs. `--most N` leaves out models with more than so many weights (30 million), `--seconds N` those that take longer (600).
"""

import argparse
import collections
import json
import os
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BATCH = 2
MODEL, OPERATOR = 1e-3, 1e-4
FLOAT = TensorProto.FLOAT
DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


class LeftOut(Exception):
    """Why a file says nothing."""


def random(generator, shape, held):
    """Weights as their layer's fan-in asks; what has one axis scales, shifts or is a variance."""
    if held and len(shape) < 2:
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    if held:
        fan = max(int(np.prod(shape[1:])), shape[0], 1)
        return generator.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(fan))
    return generator.uniform(-1, 1, shape).astype(np.float32)


def stored(tensor):
    return tensor.data_location != TensorProto.EXTERNAL


def states(graph):
    """What initial states of recurrent layers are cut from: zeros, also where an exporter left them out of the file."""
    makers = {output: node for node in graph.node for output in node.output}
    found = set()
    for node in graph.node:
        for name in node.input[5:7] if node.op_type in ("LSTM", "GRU", "RNN") else []:
            while name in makers and makers[name].op_type in ("Slice", "Gather", "Expand", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Identity"):
                name = makers[name].input[0]
            found.add(name)
    return found


def with_weights(model, generator, most):
    """Elements for what the file stores elsewhere; all of them by name."""
    graph = model.graph
    zeros = states(graph)
    count = sum(int(np.prod(t.dims)) for t in graph.initializer)
    if count > most:
        raise LeftOut(f"{count} weights")
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer if stored(t) and t.data_type == TensorProto.INT64}
    made = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes and np.prod(shapes[node.input[0]]) > 64:
            # Weights of the ONNX package's light models.
            shape = tuple(shapes[node.input[0]])
            made.append(numpy_helper.from_array(random(generator, shape, True), node.output[0]))
    names = {t.name for t in made}
    kept = [node for node in graph.node if not (node.op_type == "ConstantOfShape" and node.output[0] in names)]
    del graph.node[:]
    graph.node.extend(kept)
    for tensor in graph.initializer:
        if stored(tensor):
            continue
        if tensor.data_type != FLOAT:
            raise LeftOut(f"{tensor.name}: elements of {TensorProto.DataType.Name(tensor.data_type)} that the file does not have")
        shape = tuple(tensor.dims)
        array = np.zeros(shape, np.float32) if tensor.name in zeros else random(generator, shape, True)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    graph.initializer.extend(made)
    # An output layer that shares its table with the embedding is stored once more, turned: memfit takes both for one.
    by_name = {t.name: t for t in graph.initializer}
    tables = [by_name[n.input[0]] for n in graph.node if n.op_type == "Gather" and n.input[0] in by_name]
    for node in graph.node:
        weight = by_name.get(node.input[1]) if node.op_type == "MatMul" else None
        for table in tables if weight is not None else []:
            if len(table.dims) == 2 and list(weight.dims) == list(table.dims)[::-1] and table.dims[0] > 4 * table.dims[1]:
                weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(table).T), weight.name))


def at_inference(model):
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]
        if node.op_type == "Dropout":
            del node.input[1:]


def given(model):
    """All tensors that the file has, by name."""
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                tensors[node.output[0]] = numpy_helper.to_array(attribute.t)
    return tensors


def size(dim, axis):
    if dim.HasField("dim_value"):
        return dim.dim_value
    return BATCH if axis == 0 else 16


def inputs_of(model, generator):
    """Inputs that mean something to most models: pixels, words, masks that hide the end of a sequence."""
    held = {t.name for t in model.graph.initializer}
    inputs, sizes = {}, {}
    for value in model.graph.input:
        if value.name in held:
            continue
        tensor = value.type.tensor_type
        shape = tuple(size(dim, axis) for axis, dim in enumerate(tensor.shape.dim))
        sizes.update({dim.dim_param: n for dim, n in zip(tensor.shape.dim, shape) if dim.dim_param})
        if tensor.elem_type == FLOAT:
            inputs[value.name] = random(generator, shape, False)
        elif tensor.elem_type == TensorProto.BOOL:
            inputs[value.name] = np.ones(shape, np.bool_)
        elif tensor.elem_type in (TensorProto.INT64, TensorProto.INT32):
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if "mask" in value.name:
                array = np.ones(shape, dtype)
                array[..., shape[-1] - shape[-1] // 4:] = 0
            else:
                array = generator.integers(0, 2 if "type" in value.name else 50, shape).astype(dtype)
            inputs[value.name] = array
        else:
            raise LeftOut(f"an input of {TensorProto.DataType.Name(tensor.elem_type)}")
    return inputs, sizes


def of_case(model, case, generator):
    """Inputs of a single operator; whole numbers that it is configured by become the file's own."""
    if any(about.get("dtype") not in DTYPES for about in case["inputs"].values()):
        raise LeftOut("inputs of other dtypes")
    inputs, constants = {}, {}
    for position, (name, about) in enumerate(case["inputs"].items()):
        shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
        if "value" in about:
            array = np.asarray(about["value"], dtype).reshape(shape)
            fixed = position > 0 and (dtype.kind != "f" or array.size == 1 or "Resize" in case["ops"] or "Upsample" in case["ops"])
            (constants if fixed else inputs)[name] = array
        elif dtype.kind == "f":
            inputs[name] = random(generator, shape, False).astype(dtype)
        elif dtype.kind == "b":
            inputs[name] = generator.integers(0, 2, shape).astype(np.bool_)
        else:
            inputs[name] = generator.integers(0, 3, shape).astype(dtype)
    graph = model.graph
    left = [value for value in graph.input if value.name not in constants]
    del graph.input[:]
    graph.input.extend(left)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    # Floats are what the program gives back.
    outputs = list(graph.output)
    del graph.output[:]
    for value in outputs:
        kind = value.type.tensor_type.elem_type
        if value.type.HasField("tensor_type") and kind not in (FLOAT, 0) and TensorProto.DataType.Name(kind).lower() in (*DTYPES, "double"):
            name = value.name + ".as_float"
            graph.node.append(helper.make_node("Cast", [value.name], [name], to=FLOAT))
            value = helper.make_tensor_value_info(name, FLOAT, None)
        graph.output.append(value)
    return inputs


def expected(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        outputs = session.run(None, {name: inputs[name] for name in names})
    except Exception as error:
        raise LeftOut(f"onnxruntime: {str(error).splitlines()[0][:110]}") from error
    return [o for o in outputs if isinstance(o, np.ndarray) and o.dtype == np.float32]


def found(program, path, tensors, sizes, folder, seconds):
    file, into = folder / "given", folder / "outputs"
    with open(file, "wb") as stream:
        for name, array in tensors.items():
            if array.dtype.kind in "fiub":
                encoded = name.encode()
                stream.write(struct.pack("<I", len(encoded)) + encoded + struct.pack("<I", array.size))
                stream.write(np.ascontiguousarray(array, "<f8").tobytes())
    words = [program, str(path), str(file), str(into), *(f"{name}={n}" for name, n in sizes.items())]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env={**os.environ, "RUST_BACKTRACE": "0"})
    except subprocess.TimeoutExpired as late:
        raise LeftOut(f"more than {seconds} seconds") from late
    if done.returncode == 3:
        raise LeftOut("refused: " + "; ".join(sorted(set(done.stderr.strip().splitlines())))[:200])
    if done.returncode != 0:
        if "NdArray supports arrays up to" in done.stderr:
            raise LeftOut("refused: Burn's processor takes six axes at most")
        said = [line for line in done.stderr.splitlines() if line and not line.startswith(("note:", "thread", "not given"))]
        return None, (said or ["?"])[-1][:200]
    data, outputs = into.read_bytes(), []
    while data:
        count = struct.unpack_from("<I", data)[0]
        outputs.append(np.frombuffer(data, "<f8", count, 4))
        data = data[4 + 8 * count:]
    return outputs, done.stderr.strip()


def difference(a, b):
    """The largest, of the largest element; what is infinite or no number must be so on both sides."""
    b = b.reshape(-1).astype(np.float64)
    if a.size != b.size:
        return np.inf
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(b)
    if not same[~finite].all():
        return np.inf
    scale = max(float(np.abs(b[finite]).max(initial=0.0)), 1e-6)
    return float(np.where(same, 0.0, np.abs(a - np.where(finite, b, 0.0))).max(initial=0.0)) / scale


def compare(program, path, case, options, folder):
    """The largest difference of a file's outputs."""
    generator = np.random.default_rng(0)
    model = onnx.load(path, load_external_data=False)
    if any(node.op_type.startswith("Random") or node.op_type == "Bernoulli" for node in model.graph.node):
        # Such as paths that training drops.
        raise LeftOut("chance")
    at_inference(model)
    if case:
        inputs, sizes = of_case(model, case, generator), {}
        path = folder / "case.onnx"
        onnx.save(model, path)
    else:
        with_weights(model, generator, options.most)
        inputs, sizes = inputs_of(model, generator)
    wanted = expected(model, inputs)
    if not wanted:
        raise LeftOut("no output of float32")
    outputs, said = found(program, path, {**given(model), **inputs}, sizes, folder, options.seconds)
    if outputs is None:
        return np.inf, said
    if len(outputs) != len(wanted):
        return np.inf, f"{len(outputs)} outputs, {len(wanted)} expected"
    return max(difference(a, b) for a, b in zip(outputs, wanted)), said.replace("\n", "; ")[:200]


def main():
    words = argparse.ArgumentParser()
    words.add_argument("program")
    words.add_argument("models", nargs="*", type=Path)
    words.add_argument("--operators", type=Path)
    words.add_argument("--most", type=int, default=30_000_000)
    words.add_argument("--seconds", type=int, default=600)
    words.add_argument("--only", default="")
    options = words.parse_intermixed_args()
    cases = [(path, None) for path in options.models]
    if options.operators:
        index = json.loads((options.operators / "index.json").read_text())
        cases += [(options.operators / case["file"], case) for case in index["cases"]]
    counts = collections.Counter()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for path, case in cases:
            if options.only not in path.name:
                continue
            try:
                worst, said = compare(options.program, path, case, options, Path(folder))
                verdict = "agrees" if worst <= (OPERATOR if case else MODEL) else "DIFFERS"
                print(f"{path.name}: {verdict}, {worst:.1e} of the largest{' ' + said if said else ''}", flush=True)
            except LeftOut as why:
                verdict = str(why).split(":")[0]
                print(f"{path.name}: left out: {why}", flush=True)
            counts[verdict] += 1
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    sys.exit(counts["DIFFERS"] > 0)


if __name__ == "__main__":
    main()
