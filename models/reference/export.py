# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.15.0", "torchvision==0.29.2", "onnx==1.23.2", "onnxscript==0.7.2"]
# ///
"""Exports the models of definitions.py to ONNX without their weights.

Names are `<model>.<exporter>_<mode>[_b1].onnx`: exporter `ts` is torch.onnx.export(dynamo=False) at opset 17, `dyn` is
dynamo=True at opset 20; mode `train` is a training export, `eval` one for inference; `_b1` has a fixed batch of 1,
others name the batch axis `batch`. Weights hold distinct random values before they are stripped, as a trained model's
do: the legacy exporter merges equal ones.

    python export.py ..        # into the folder above
"""

import os
import sys
import warnings

import onnx
import torch

from definitions import MODELS, make_input

EXTERNAL_FLOATS, EXTERNAL_OTHERS = 1024, 8192  # bytes from which an initializer becomes a reference
INFERENCE = ("convnext", "gpt", "llama", "mixer", "resnet18", "unet", "vit")  # exported for inference too
DYNAMO = ("autoencoder", "convnext", "gpt", "mixer", "mlp", "resnet18", "unet", "vit")
DYNAMO_TRAINING = ("gpt", "transformer_encoder", "vit")
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


def randomize(model):
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)


def export(model, inputs, path, dynamo, train, fixed):
    model.train(train)
    batch = 1 if fixed else 2
    tensors = tuple(make_input(shape, kind, batch, torch.float32, "cpu") for _, shape, kind in inputs)
    names = [name for name, _, _ in inputs]
    common = dict(input_names=names, output_names=["output"])
    if dynamo:
        axes = None if fixed else tuple({0: torch.export.Dim("batch", min=1)} for _ in names)
        program = torch.onnx.export(
            model, tensors, dynamo=True, opset_version=20, dynamic_shapes=axes, verbose=False, **common
        )
        program.save(path, include_initializers=True, external_data=False)
        return
    axes = None if fixed else {name: {0: "batch"} for name in [*names, "output"]}
    mode = torch.onnx.TrainingMode.TRAINING if train else torch.onnx.TrainingMode.EVAL
    torch.onnx.export(
        model, tensors, path, dynamo=False, opset_version=17, dynamic_axes=axes, training=mode,
        do_constant_folding=not train, **common,
    )


def strip(path):
    """Weights become references to a file that does not exist; traces of this machine go."""
    model = onnx.load(path)
    graph = model.graph
    promoted = []
    for node in graph.node:
        values = [a.t for a in node.attribute if node.op_type == "Constant" and a.name == "value"]
        if values and large(values[0]):
            values[0].name = node.output[0]
            graph.initializer.append(values[0])
            promoted.append(node)
    for node in promoted:
        graph.node.remove(node)
    offset = 0
    for tensor in graph.initializer:
        if not large(tensor):
            continue
        length = onnx.numpy_helper.to_array(tensor).nbytes
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", os.path.basename(path).removesuffix(".onnx") + ".weights.bin"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length
    for item in [model, graph, *graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output]:
        kept = [entry for entry in item.metadata_props if entry.key in ("namespace", "pkg.torch.onnx.name_scopes")]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
        if isinstance(item, onnx.NodeProto):
            item.doc_string = ""
    onnx.save(model, path)


def large(tensor):
    size = onnx.numpy_helper.to_array(tensor).nbytes
    return size >= (EXTERNAL_FLOATS if tensor.data_type in FLOATS else EXTERNAL_OTHERS)


def main():
    folder, wanted = sys.argv[1], sys.argv[2:]
    warnings.simplefilter("ignore")
    for name, make, inputs, _, _ in MODELS:
        if wanted and name not in wanted:
            continue
        torch.manual_seed(0)
        model = make()
        randomize(model)
        kinds = [("ts_train", False, True, False)]
        if name in INFERENCE:
            kinds.append(("ts_eval_b1", False, False, True))
        if name in DYNAMO:
            kinds.append(("dyn_eval", True, False, False))
        if name in DYNAMO_TRAINING:
            kinds.append(("dyn_train", True, True, False))
        for kind, dynamo, train, fixed in kinds:
            path = os.path.join(folder, f"{name}.{kind}.onnx")
            try:
                export(model, inputs, path, dynamo, train, fixed)
            except Exception as error:
                print(f"{name}.{kind}: {error!r}"[:400], file=sys.stderr)
                continue
            strip(path)
            print(f"{name}.{kind}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
