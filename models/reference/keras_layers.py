"""Writes models/keras/layers.json: small Keras 3 models of every layer, with what Keras itself says of them.

Needs keras (3.15) and a backend: KERAS_BACKEND=torch python models/reference/keras_layers.py
"""

import json
import math
import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras  # noqa: E402
from keras import layers, ops  # noqa: E402

HERE = Path(__file__).resolve().parent
SEQ, IMAGE, VOLUME = (12, 8), (16, 16, 6), (6, 8, 8, 4)
MODELS = []


def model(function):
    """A function without arguments that gives inputs and outputs, or a model."""
    MODELS.append(function)
    return function


def one(name, make, *shapes, dtype="float32", call=None):
    """A model of one layer called on inputs of these shapes."""

    def build():
        inputs = [keras.Input(s, name=f"x{i}", dtype=dtype) for i, s in enumerate(shapes)]
        layer = make()
        arguments = inputs if len(inputs) > 1 else inputs[0]
        return inputs, call(layer, inputs) if call else layer(arguments)

    build.__name__ = name
    MODELS.append(build)


L = layers
one("dense_rank3", lambda: L.Dense(5, use_bias=False, activation="gelu"), SEQ)
one("dense_lora", lambda: L.Dense(5, lora_rank=2), (8,))
for mode in ["int8", "int4", "float8"]:
    one(f"dense_{mode}", lambda m=mode: L.Dense(5, dtype=f"{m}_from_float32"), (8,))
one("dense_mixed", lambda: L.Dense(5, dtype="mixed_bfloat16"), (8,))
one("dense_half", lambda: L.Dense(5, dtype="float16"), (8,))
one("einsum_heads", lambda: L.EinsumDense("abc,cde->abde", output_shape=(None, 4, 3), bias_axes="de"), SEQ)
one("einsum_left", lambda: L.EinsumDense("...x,xy->...y", output_shape=7, bias_axes="y"), SEQ)
one("einsum_int8", lambda: L.EinsumDense("abc,cde->abde", output_shape=(None, 4, 3), bias_axes="de", dtype="int8_from_float32"), SEQ)
one("einsum_int4", lambda: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d", dtype="int4_from_float32"), SEQ)
one("einsum_lora", lambda: L.EinsumDense("abc,cde->abde", output_shape=(None, 4, 3), bias_axes="e", lora_rank=2), SEQ)
one("embedding", lambda: L.Embedding(50, 8, mask_zero=True), (12,), dtype="int32")
one("embedding_lora", lambda: L.Embedding(50, 8, lora_rank=2), (12,), dtype="int32")
one("embedding_int8", lambda: L.Embedding(50, 8, dtype="int8_from_float32"), (12,), dtype="int32")
one("embedding_int4", lambda: L.Embedding(50, 9, dtype="int4_from_float32"), (12,), dtype="int32")


@model
def reversible_embedding():
    x = keras.Input((12,), dtype="int32", name="x0")
    table = L.ReversibleEmbedding(50, 8)
    return [x], table(L.Dense(8)(table(x)), reverse=True)


@model
def reversible_embedding_untied():
    x = keras.Input((12,), dtype="int32", name="x0")
    table = L.ReversibleEmbedding(50, 8, tie_weights=False)
    return [x], table(L.Dense(8)(table(x)), reverse=True)


one("conv1d_causal", lambda: L.Conv1D(6, 3, padding="causal", dilation_rate=2), SEQ)
one("conv2d_groups", lambda: L.Conv2D(6, (3, 5), strides=(2, 1), groups=3), IMAGE)
one("conv2d_first", lambda: L.Conv2D(6, 3, padding="same", strides=2, data_format="channels_first"), (3, 15, 16))
one("conv2d_lora", lambda: L.Conv2D(6, 3, lora_rank=2), IMAGE)
one("conv3d", lambda: L.Conv3D(6, 3, strides=2), VOLUME)
one("conv1d_transpose", lambda: L.Conv1DTranspose(6, 4, strides=3, padding="valid"), SEQ)
one("conv2d_transpose", lambda: L.Conv2DTranspose(6, 3, strides=2, padding="same", output_padding=1), IMAGE)
one("conv2d_transpose_first", lambda: L.Conv2DTranspose(6, 4, strides=2, data_format="channels_first"), (3, 5, 6))
one("conv3d_transpose", lambda: L.Conv3DTranspose(6, 2, strides=3), VOLUME)
one("depthwise1d", lambda: L.DepthwiseConv1D(3, depth_multiplier=2), SEQ)
one("depthwise2d", lambda: L.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False), IMAGE)
one("separable1d", lambda: L.SeparableConv1D(6, 3, depth_multiplier=2), SEQ)
one("separable2d", lambda: L.SeparableConv2D(6, 3, dilation_rate=2), IMAGE)
one("avg_pool1d", lambda: L.AveragePooling1D(3, padding="same"), SEQ)
one("max_pool2d", lambda: L.MaxPooling2D((3, 2), strides=2), (15, 16, 3))
one("max_pool2d_first", lambda: L.MaxPooling2D(3, padding="same", data_format="channels_first"), (3, 16, 16))
one("avg_pool3d", lambda: L.AveragePooling3D(2), VOLUME)
one("global_max1d", lambda: L.GlobalMaxPooling1D(keepdims=True), SEQ)
one("global_avg2d", lambda: L.GlobalAveragePooling2D(data_format="channels_first"), (3, 16, 16))
one("global_avg3d", lambda: L.GlobalAveragePooling3D(keepdims=True), VOLUME)
one("adaptive_avg2d", lambda: L.AdaptiveAveragePooling2D((3, 5)), IMAGE)
one("adaptive_max1d", lambda: L.AdaptiveMaxPooling1D(4), SEQ)
one("batch_norm", lambda: L.BatchNormalization(scale=False), IMAGE)
one("batch_norm_renorm", lambda: L.BatchNormalization(axis=1, renorm=True), IMAGE)
one("layer_norm_axes", lambda: L.LayerNormalization(axis=[1, 2]), SEQ)
one("layer_norm_rms", lambda: L.LayerNormalization(rms_scaling=True), SEQ)
one("rms_norm", lambda: L.RMSNormalization(), SEQ)
one("group_norm", lambda: L.GroupNormalization(3, center=False), IMAGE)
one("unit_norm", lambda: L.UnitNormalization(), SEQ)
one("spectral_norm", lambda: L.SpectralNormalization(L.Conv2D(6, 3)), IMAGE)
one("spectral_norm_embedding", lambda: L.SpectralNormalization(L.Embedding(50, 8)), (12,), dtype="int32")
one("normalization", lambda: L.Normalization(axis=-1), SEQ)
one("normalization_given", lambda: L.Normalization(mean=[1.0] * 8, variance=[2.0] * 8), SEQ)
one("prelu", lambda: L.PReLU(shared_axes=[1, 2]), IMAGE)
one("softmax", lambda: L.Softmax(axis=[1, 2]), SEQ)
one("elu", lambda: L.ELU(alpha=0.5), SEQ)
one("glu", lambda: L.Activation("glu"), SEQ)
one("reshape", lambda: L.Reshape((-1, 6)), SEQ)
one("permute", lambda: L.Permute((2, 1)), SEQ)
one("repeat_vector", lambda: L.RepeatVector(4), (8,))
one("flatten_first", lambda: L.Flatten(data_format="channels_first"), (3, 4, 5))
one("zero_pad1d", lambda: L.ZeroPadding1D((1, 3)), SEQ)
one("zero_pad2d", lambda: L.ZeroPadding2D(((1, 2), (3, 4))), IMAGE)
one("zero_pad3d", lambda: L.ZeroPadding3D((1, 2, 3), data_format="channels_first"), (3, 4, 5, 6))
one("cropping1d", lambda: L.Cropping1D((1, 2)), SEQ)
one("cropping2d", lambda: L.Cropping2D(((1, 2), (3, 4))), IMAGE)
one("cropping3d", lambda: L.Cropping3D(1), VOLUME)
one("up_sampling1d", lambda: L.UpSampling1D(3), SEQ)
one("up_sampling2d", lambda: L.UpSampling2D((2, 3), interpolation="bilinear"), IMAGE)
one("up_sampling3d", lambda: L.UpSampling3D(2), VOLUME)
one("subtract_broadcast", lambda: L.Subtract(), (12, 8), (1, 8))
one("average_ranks", lambda: L.Average(), (12, 8), (12, 8))
one("concatenate_axis1", lambda: L.Concatenate(axis=1), (12, 8), (5, 8), (1, 8))
one("dot", lambda: L.Dot(axes=(2, 1)), (12, 8), (8, 3))
one("dot_vectors", lambda: L.Dot(axes=-1, normalize=True), (8,), (8,))
one("attention", lambda: L.Attention(use_scale=True, score_mode="concat", dropout=0.1), (12, 8), (5, 8))
one(
    "additive_attention",
    lambda: L.AdditiveAttention(),
    (12, 8),
    (5, 8),
    call=lambda layer, x: layer(x, return_attention_scores=True),
)
one("mha_self", lambda: L.MultiHeadAttention(2, 6), SEQ, call=lambda layer, x: layer(x[0], x[0]))
one(
    "mha_cross",
    lambda: L.MultiHeadAttention(2, 6, value_dim=5, output_shape=7, use_bias=False, dropout=0.1),
    (12, 8),
    (5, 9),
    (5, 10),
    call=lambda layer, x: layer(query=x[0], value=x[1], key=x[2]),
)
one(
    "mha_scores",
    lambda: L.MultiHeadAttention(2, 6, use_gate=True),
    SEQ,
    call=lambda layer, x: layer(x[0], x[0], return_attention_scores=True, use_causal_mask=True),
)
one("mha_int8", lambda: L.MultiHeadAttention(2, 6, dtype="int8_from_float32"), SEQ, call=lambda layer, x: layer(x[0], x[0]))
one(
    "mha_mask",
    lambda: L.MultiHeadAttention(2, 6),
    (12, 8),
    (12, 12),
    call=lambda layer, x: layer(x[0], x[0], attention_mask=x[1]),
)
one("gqa", lambda: L.GroupQueryAttention(6, 4, 2), SEQ, call=lambda layer, x: layer(x[0], x[0]))
one("lstm_states", lambda: L.LSTM(5, return_sequences=True, return_state=True), SEQ)
one("gru_before", lambda: L.GRU(5, reset_after=False), SEQ)
one("simple_rnn", lambda: L.SimpleRNN(5, use_bias=False), SEQ)
one("rnn_stacked", lambda: L.RNN([L.LSTMCell(5), L.GRUCell(4)], return_state=True), SEQ)
one("bidirectional_none", lambda: L.Bidirectional(L.GRU(5, return_sequences=True), merge_mode=None), SEQ)
one("bidirectional_states", lambda: L.Bidirectional(L.LSTM(5, return_state=True), merge_mode="ave"), SEQ)
one("conv_lstm1d", lambda: L.ConvLSTM1D(5, 3, return_sequences=True), (6, 8, 4))
one("conv_lstm2d", lambda: L.ConvLSTM2D(5, 3, padding="same", strides=2, return_state=True), (4, 8, 8, 3))
one("conv_lstm3d", lambda: L.ConvLSTM3D(5, 2), (3, 4, 4, 4, 2))
one("time_distributed", lambda: L.TimeDistributed(L.Conv2D(5, 3)), (4, 8, 8, 3))
one("time_distributed_model", lambda: L.TimeDistributed(keras.Sequential([L.Dense(4), L.BatchNormalization()])), SEQ)
one("masking", lambda: L.Masking(), SEQ)
one("rescaling_int", lambda: L.Rescaling(1 / 255), IMAGE, dtype="uint8")
one("resizing", lambda: L.Resizing(7, 9), IMAGE)
one("center_crop", lambda: L.CenterCrop(7, 9), IMAGE)
one("random_flip", lambda: L.RandomFlip(), IMAGE)
one("category_encoding", lambda: L.CategoryEncoding(num_tokens=9, output_mode="one_hot"), (5,), dtype="int32")
one("category_multi_hot", lambda: L.CategoryEncoding(num_tokens=9), (5,), dtype="int32")
one("discretization", lambda: L.Discretization([1.0, 2.0], output_mode="one_hot"), (5,))
one("stft", lambda: L.STFTSpectrogram(frame_length=16, frame_step=4, window=None, expand_dims=True), (64, 2))
one("mel", lambda: L.MelSpectrogram(fft_length=64, sequence_stride=16, num_mel_bins=8), (256,))
one("lambda_shape", lambda: L.Lambda(lambda x: x[:, :, None], output_shape=(12, 1, 8)), SEQ)


@model
def lambda_recorded():
    x = keras.Input(SEQ, name="x0")
    return [x], L.Dense(3)(L.Lambda(lambda x: x[:, 0])(x))


@model
def operations():
    x, y = keras.Input(SEQ, name="x0"), keras.Input(SEQ, name="x1")
    a = ops.concatenate([x + y, x * 2.0], axis=-1)
    b = a[:, 1:, None]
    c = ops.reshape(b, (-1, 11 * 16))
    parts = ops.split(L.Dense(6)(c), 3, axis=-1)
    d = ops.mean(parts[0], axis=1, keepdims=True) + ops.max(parts[2], axis=-1, keepdims=True)
    e = ops.matmul(x, ops.transpose(y, (0, 2, 1)))
    f = ops.softmax(ops.einsum("btd,bsd->bts", x, y) / 3)
    g = ops.squeeze(ops.expand_dims(ops.argmax(f, axis=-1), -1), -1)
    h = ops.where(ops.cast(g, "float32") > 2.0, 1.0, ops.sum(f, axis=1))
    i = ops.stack([h, h], axis=1)
    j = ops.pad(ops.repeat(ops.tile(i, (1, 1, 2)), 3, axis=1), [[0, 0], [1, 2], [0, 0]])
    k = ops.take(x, ops.cast(g, "int32"), axis=1)
    l = ops.one_hot(g, 7)
    return [x, y], [d, e, f, j, k, l, x[:, -1], x[:, ::-2, 1:3], ops.swapaxes(x, 1, 2), ops.norm(x, axis=-1)]


@model
def shared_and_nested():
    a, b = keras.Input((8,), name="x0"), keras.Input((8,), name="x1")
    inner_x = keras.Input((8,))
    dense = L.Dense(8)
    inner = keras.Model(inner_x, [dense(dense(inner_x)), L.Dense(3)(inner_x)], name="inner")
    outer = keras.Sequential([keras.Input((8,)), L.Dense(8, name="one"), L.BatchNormalization(name="two")], name="outer")
    p, q = inner(outer(a)), inner(b)
    outer.trainable = False
    return {"left": a, "right": b}, {"sum": L.Add()([p[0], q[0]]), "all": L.Concatenate()([p[1], q[1]])}


@model
def open_sizes():
    image = keras.Input((None, None, 3), name="x0")
    text = keras.Input((None,), dtype="int32", name="x1")
    x = L.Conv2D(4, 3, strides=2, padding="same")(image)
    x = L.UpSampling2D()(L.MaxPooling2D()(x))
    t = L.LSTM(5, return_sequences=True)(L.Embedding(20, 4)(text))
    return [image, text], [x, L.Conv1D(4, 3)(t), L.MultiHeadAttention(2, 4)(t, t)]


def described(layer):
    # "int" is int64 for TensorFlow, which wrote the files that people have, and int32 for other backends.
    dtype = {"int32": "int64"}
    weights = [
        [v.path, list(v.shape), dtype.get(v.dtype, v.dtype), bool(v.trainable)] for v in layer.variables if "seed" not in v.path
    ]
    entry = {"name": layer.name, "class": type(layer).__name__, "weights": weights}
    if isinstance(layer, keras.Model):
        entry["layers"] = [described(l) for l in layer.layers]
        entry["weights"] = None
    outputs = getattr(layer, "_inbound_nodes", None)
    tensors = outputs[0].output_tensors if outputs else []
    shapes = [list(t.shape) for t in tensors]
    entry["output_shape"] = shapes[0] if len(shapes) == 1 else shapes
    return entry


def main():
    written = []
    for build in MODELS:
        keras.utils.clear_session()
        try:
            inputs, outputs = build()
        except Exception as error:
            print(build.__name__, "left out:", error)
            continue
        made = keras.Model(inputs, outputs, name=build.__name__)

        def count(weights):
            return sum(math.prod(w.shape) for w in weights)

        written.append(
            {
                "model": build.__name__,
                "config": json.loads(made.to_json()),
                "trainable": count(made.trainable_weights),
                "non_trainable": count(made.non_trainable_weights),
                "inputs": [],
                "outputs": [list(t.shape) for t in keras.tree.flatten(made.outputs)],
                "layers": [described(l) for l in made.layers],
            }
        )
    path = HERE.parent / "keras" / "layers.json"
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(m, separators=(",", ":")) for m in written)
    path.write_text(f'{{"made_by":"keras {keras.__version__}","models":[\n{lines}\n]}}\n')
    print(len(written), "models,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
