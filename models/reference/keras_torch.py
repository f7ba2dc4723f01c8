"""Writes models/keras/torch.json: small Keras 3 models, with what their layers keep for backward on the PyTorch backend.

Needs keras (3.15) and torch: python models/reference/keras_torch.py

Counted are the storages that autograd keeps at the end of a forward pass in training, variables left out. It runs on the CPU;
dropout is made to run as on a GPU (`native_dropout`, a mask of one byte an element).
"""

import json
import math
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras  # noqa: E402
import torch  # noqa: E402
from keras import layers as L  # noqa: E402

BATCH = 2
MODELS = []


def model(function):
    MODELS.append(function)
    return function


@model
def dense():
    x = keras.Input((12, 8))
    h = L.Dropout(0.2)(L.Dense(16, activation="gelu")(x))
    h = L.LayerNormalization()(L.Dense(8, activation="tanh")(h))
    return x, L.Softmax()(L.Add()([x, h]))


@model
def convolutions():
    x = keras.Input((17, 16, 3))
    h = L.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    h = L.MaxPooling2D(2)(L.ReLU()(L.BatchNormalization()(h)))
    h = L.DepthwiseConv2D(3, depth_multiplier=2, padding="same")(h)
    h = L.SeparableConv2D(6, 3, padding="same", activation="silu")(h)
    h = L.Conv2DTranspose(5, 3, strides=2, padding="same")(h)
    h = L.AveragePooling2D(2)(L.ZeroPadding2D(1)(L.Cropping2D(1)(h)))
    return x, L.Dense(4)(L.GlobalAveragePooling2D()(h))


@model
def other_axes():
    a, b = keras.Input((20, 6)), keras.Input((3, 6, 6, 6))
    h = L.GlobalMaxPooling1D()(L.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="relu")(a))
    v = L.Conv3D(4, 3, data_format="channels_first")(b)
    v = L.Flatten(data_format="channels_last")(L.MaxPooling3D(2, data_format="channels_first")(v))
    return [a, b], L.Concatenate()([h, L.Multiply()([L.Dense(8)(v), h])])


@model
def transformer():
    x = keras.Input((10,), dtype="int32")
    h = L.Embedding(30, 16)(x)
    h = L.Add()([h, L.MultiHeadAttention(2, 8, dropout=0.1)(h, h)])
    h = L.LayerNormalization()(h)
    return x, L.Permute((2, 1))(L.Dense(4, activation="softmax")(h))


@model
def frozen():
    x = keras.Input((8, 8, 3))
    inner = keras.Sequential([keras.Input((8, 8, 3)), L.Conv2D(4, 3), L.BatchNormalization(), L.ReLU()])
    inner.trainable = False
    return x, L.Dense(3)(L.Flatten()(inner(x)))


def native_dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, True)[0]


def kept(made):
    own = {v.value.untyped_storage().data_ptr() for v in made.variables}
    seen, alive = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    def feed(x):
        shape = (BATCH, *x.shape[1:])
        return torch.zeros(shape, dtype=torch.int32) if x.dtype == "int32" else torch.randn(shape)

    inputs = [feed(x) for x in made.inputs]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made(inputs if len(inputs) > 1 else inputs[0], training=True).mean()
    return sum(seen.values())


def main():
    torch.nn.functional.dropout = native_dropout
    written = []
    for build in MODELS:
        keras.utils.clear_session()
        made = keras.Model(*build(), name=build.__name__)
        config = json.loads(made.to_json())
        written.append({"model": build.__name__, "config": config, "batch": BATCH, "saved_bytes": kept(made)})
        print(build.__name__, written[-1]["saved_bytes"], math.prod(made.output_shape[1:]))
    path = Path(__file__).resolve().parent.parent / "keras" / "torch.json"
    lines = ",\n".join(json.dumps(m, separators=(",", ":")) for m in written)
    path.write_text(f'{{"made_by":"keras {keras.__version__}, torch {torch.__version__}","models":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
