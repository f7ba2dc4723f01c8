"""onnx.shape_inference over a file whose batch axis is bound.

    python onnx_shapes.py FILE BATCH RUNS

Prints version, answer (how many values have a known shape) and the median of the seconds that inference alone takes, the
model being read already, between tabs.
"""

import statistics
import sys
import time

import onnx
import onnx.shape_inference


def read(path, batch):
    model = onnx.load(path, load_external_data=False)
    for value in model.graph.input:
        axis = value.type.tensor_type.shape.dim[0]
        if axis.dim_param:
            axis.dim_value = batch
    return model


def known(inferred):
    return sum(
        value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.value_info
    )


def main():
    path, batch, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = read(path, batch)
    seconds = []
    while len(seconds) < runs and sum(seconds) < 30:
        begin = time.perf_counter()
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        seconds.append(time.perf_counter() - begin)
    answer = known(inferred)
    print(f"onnx {onnx.__version__}", f"{answer} values with a known shape", statistics.median(seconds), sep="\t")


main()
