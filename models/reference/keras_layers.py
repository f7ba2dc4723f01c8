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


# Each layer once more, configured otherwise.
POINTS = (16, 16, 16, 2)
one("activation_softmax", lambda: L.Activation("softmax"), SEQ)
one("relu_max", lambda: L.ReLU(max_value=6.0, negative_slope=0.1, threshold=0.5), IMAGE)
one("leaky_relu", lambda: L.LeakyReLU(0.3), SEQ)
one("leaky_relu_image", lambda: L.LeakyReLU(), IMAGE)
one("elu_image", lambda: L.ELU(), IMAGE)
one("prelu_each", lambda: L.PReLU(), SEQ)
one("softmax_last", lambda: L.Softmax(), IMAGE)
one("dense_last_axis_image", lambda: L.Dense(7, activation="relu", kernel_regularizer="l2"), IMAGE)
one("dense_gptq_free", lambda: L.Dense(6, dtype="bfloat16", use_bias=False), SEQ)
one("embedding_named", lambda: L.Embedding(11, 3, embeddings_regularizer="l1"), (3, 4), dtype="int32")
one("conv1d_first", lambda: L.Conv1D(6, 4, strides=2, padding="same", data_format="channels_first"), (8, 13))
one("conv2d_dilated", lambda: L.Conv2D(5, 3, dilation_rate=(2, 3), use_bias=False), IMAGE)
one("conv3d_groups", lambda: L.Conv3D(4, (1, 2, 3), padding="same", groups=2, dilation_rate=2), VOLUME)
one("conv1d_transpose_dilated", lambda: L.Conv1DTranspose(6, 3, dilation_rate=2, padding="same"), SEQ)
one("conv2d_transpose_mixed", lambda: L.Conv2DTranspose(4, (2, 5), strides=(3, 2), output_padding=(1, 0), use_bias=False), IMAGE)
one("conv3d_transpose_same", lambda: L.Conv3DTranspose(3, 3, strides=(1, 2, 3), padding="same", data_format="channels_first"), (2, 4, 5, 6))
one("depthwise1d_first", lambda: L.DepthwiseConv1D(4, strides=3, padding="same", data_format="channels_first"), (8, 13))
one("depthwise2d_multiplied", lambda: L.DepthwiseConv2D((2, 3), depth_multiplier=3, dilation_rate=2), IMAGE)
one("separable1d_causal_free", lambda: L.SeparableConv1D(4, 5, strides=2, padding="same", use_bias=False), SEQ)
one("separable2d_first", lambda: L.SeparableConv2D(5, (3, 2), depth_multiplier=2, data_format="channels_first"), (3, 9, 10))
one("avg_pool1d_first", lambda: L.AveragePooling1D(2, strides=3, data_format="channels_first"), (8, 13))
one("avg_pool2d", lambda: L.AveragePooling2D((2, 3), padding="same"), (15, 16, 3))
one("avg_pool2d_strides", lambda: L.AveragePooling2D(3, strides=(1, 2)), (15, 16, 3))
one("avg_pool3d_same", lambda: L.AveragePooling3D((1, 2, 3), strides=2, padding="same"), VOLUME)
one("max_pool1d", lambda: L.MaxPooling1D(3), SEQ)
one("max_pool1d_same", lambda: L.MaxPooling1D(3, strides=2, padding="same"), SEQ)
one("max_pool3d", lambda: L.MaxPooling3D(2, strides=1), VOLUME)
one("max_pool3d_first", lambda: L.MaxPooling3D(3, padding="same", data_format="channels_first"), (2, 6, 7, 8))
one("global_avg1d", lambda: L.GlobalAveragePooling1D(), SEQ)
one("global_avg1d_first", lambda: L.GlobalAveragePooling1D(data_format="channels_first", keepdims=True), (8, 13))
one("global_avg2d_kept", lambda: L.GlobalAveragePooling2D(keepdims=True), IMAGE)
one("global_avg3d_first", lambda: L.GlobalAveragePooling3D(data_format="channels_first"), (2, 6, 7, 8))
one("global_max1d_plain", lambda: L.GlobalMaxPooling1D(), SEQ)
one("global_max2d", lambda: L.GlobalMaxPooling2D(), IMAGE)
one("global_max2d_kept", lambda: L.GlobalMaxPooling2D(keepdims=True, data_format="channels_first"), (3, 16, 16))
one("global_max3d", lambda: L.GlobalMaxPooling3D(), VOLUME)
one("global_max3d_kept", lambda: L.GlobalMaxPooling3D(keepdims=True), VOLUME)
one("adaptive_avg1d", lambda: L.AdaptiveAveragePooling1D(5), SEQ)
one("adaptive_avg2d_first", lambda: L.AdaptiveAveragePooling2D(4, data_format="channels_first"), (3, 9, 10))
one("adaptive_avg3d", lambda: L.AdaptiveAveragePooling3D((2, 3, 4)), VOLUME)
one("adaptive_max2d", lambda: L.AdaptiveMaxPooling2D((2, 7)), IMAGE)
one("adaptive_max3d", lambda: L.AdaptiveMaxPooling3D(2), VOLUME)
one("batch_norm_first", lambda: L.BatchNormalization(axis=1, center=False, momentum=0.9), (3, 9, 10))
one("batch_norm_frozen", lambda: L.BatchNormalization(trainable=False), IMAGE)
one("layer_norm_bare", lambda: L.LayerNormalization(center=False, scale=False), SEQ)
one("rms_norm_axes", lambda: L.RMSNormalization(axis=[1, 2]), SEQ)
one("group_norm_instance", lambda: L.GroupNormalization(groups=-1), IMAGE)
one("group_norm_first", lambda: L.GroupNormalization(3, axis=1, scale=False), (6, 9, 10))
one("unit_norm_axes", lambda: L.UnitNormalization(axis=[1, 2]), SEQ)
one("spectral_norm_dense", lambda: L.SpectralNormalization(L.Dense(5), power_iterations=2), SEQ)
one("normalization_axes", lambda: L.Normalization(axis=(1, 3)), IMAGE)
one("normalization_none", lambda: L.Normalization(axis=None), SEQ)
one("reshape_flat", lambda: L.Reshape((2, 3, -1)), SEQ)
one("permute_image", lambda: L.Permute((3, 1, 2)), IMAGE)
one("repeat_vector_once", lambda: L.RepeatVector(1), (5,))
one("flatten", lambda: L.Flatten(), IMAGE)
one("flatten_vector", lambda: L.Flatten(), (7,))
one("zero_pad1d_all", lambda: L.ZeroPadding1D(2, data_format="channels_first"), (8, 13))
one("zero_pad2d_first", lambda: L.ZeroPadding2D((1, 2), data_format="channels_first"), (3, 9, 10))
one("zero_pad3d_pairs", lambda: L.ZeroPadding3D(((1, 0), (0, 2), (3, 1))), VOLUME)
one("cropping1d_all", lambda: L.Cropping1D(3), SEQ)
one("cropping2d_first", lambda: L.Cropping2D((1, 2), data_format="channels_first"), (3, 9, 10))
one("cropping3d_pairs", lambda: L.Cropping3D(((1, 0), (0, 2), (3, 1))), (6, 8, 8, 4))
one("up_sampling1d_default", lambda: L.UpSampling1D(), SEQ)
one("up_sampling2d_first", lambda: L.UpSampling2D(3, data_format="channels_first"), (3, 4, 5))
one("up_sampling3d_first", lambda: L.UpSampling3D((1, 2, 3), data_format="channels_first"), (2, 3, 4, 5))
one("add_three", lambda: L.Add(), SEQ, SEQ, SEQ)
one("multiply_broadcast", lambda: L.Multiply(), (12, 8), (12, 1))
one("maximum", lambda: L.Maximum(), SEQ, SEQ)
one("maximum_broadcast", lambda: L.Maximum(), (12, 8), (1, 8), (12, 1))
one("minimum", lambda: L.Minimum(), SEQ, SEQ, SEQ)
one("minimum_broadcast", lambda: L.Minimum(), (1, 8), (12, 8))
one("average_broadcast", lambda: L.Average(), (12, 8), (12, 1), (1, 8))
one("subtract", lambda: L.Subtract(), SEQ, SEQ)
one("concatenate_last", lambda: L.Concatenate(), (12, 8), (12, 3))
one("dot_batch", lambda: L.Dot(axes=(1, 2)), (4, 3, 8), (5, 4))
one("attention_three", lambda: L.Attention(), (12, 8), (5, 6), (5, 8))
one("attention_scores", lambda: L.Attention(), (12, 8), (5, 8), call=lambda layer, x: layer(x, return_attention_scores=True, use_causal_mask=True))
one("additive_attention_plain", lambda: L.AdditiveAttention(use_scale=False), (12, 8), (5, 8), (5, 8))
one("mha_axes", lambda: L.MultiHeadAttention(3, 4, attention_axes=(1, 2)), (5, 6, 8), call=lambda layer, x: layer(x[0], x[0]))
one("mha_lora", lambda: L.MultiHeadAttention(2, 6, dtype="mixed_float16"), SEQ, call=lambda layer, x: layer(x[0], x[0]))
one("gqa_scores", lambda: L.GroupQueryAttention(5, 4, 4, use_bias=False, dropout=0.2), (12, 8), (7, 8), call=lambda layer, x: layer(x[0], x[1], return_attention_scores=True))
one("gqa_gate", lambda: L.GroupQueryAttention(6, 6, 3, use_gate=True), SEQ, call=lambda layer, x: layer(x[0], x[0]))
one("lstm_plain", lambda: L.LSTM(7, use_bias=False, unit_forget_bias=False, go_backwards=True), SEQ)
one("gru_states", lambda: L.GRU(6, return_state=True, return_sequences=True, dropout=0.1, recurrent_dropout=0.2), SEQ)
one("simple_rnn_states", lambda: L.SimpleRNN(4, return_state=True, return_sequences=True, unroll=True), SEQ)
one("rnn_cell", lambda: L.RNN(L.SimpleRNNCell(6), return_sequences=True, go_backwards=True), SEQ)
one("rnn_lstm_cell", lambda: L.RNN(L.LSTMCell(5, use_bias=False), return_state=True), SEQ)
one("rnn_gru_cell", lambda: L.RNN(L.GRUCell(5, reset_after=False, use_bias=False)), SEQ)
one("bidirectional_sum", lambda: L.Bidirectional(L.LSTM(5, return_sequences=True), merge_mode="sum"), SEQ)
one("bidirectional_other", lambda: L.Bidirectional(L.LSTM(5), merge_mode="mul", backward_layer=L.GRU(5, go_backwards=True)), SEQ)
one("bidirectional_rnn", lambda: L.Bidirectional(L.RNN(L.GRUCell(4), return_state=True)), SEQ)
one("conv_lstm1d_same", lambda: L.ConvLSTM1D(3, 2, padding="same", use_bias=False, return_state=True), (6, 8, 4))
one("conv_lstm2d_first", lambda: L.ConvLSTM2D(4, (2, 3), dilation_rate=2, data_format="channels_first", return_sequences=True), (4, 3, 9, 8))
one("conv_lstm3d_sequences", lambda: L.ConvLSTM3D(2, (1, 2, 3), strides=2, padding="same", return_sequences=True), (3, 4, 6, 6, 2))
one("time_distributed_lstm", lambda: L.TimeDistributed(L.LSTM(3, return_sequences=True)), (4, 6, 5))
one("time_distributed_flatten", lambda: L.TimeDistributed(L.Flatten()), (4, 6, 5))
one("masking_value", lambda: L.Masking(mask_value=-1.0), (6, 3))
one("identity", lambda: L.Identity(), IMAGE)
one("dropout", lambda: L.Dropout(0.3, noise_shape=(None, 1, 8), seed=3), SEQ)
one("alpha_dropout", lambda: L.AlphaDropout(0.3), SEQ)
one("gaussian_dropout", lambda: L.GaussianDropout(0.3), IMAGE)
one("gaussian_noise", lambda: L.GaussianNoise(0.3), IMAGE)
one("spatial_dropout1d", lambda: L.SpatialDropout1D(0.3), SEQ)
one("spatial_dropout2d", lambda: L.SpatialDropout2D(0.3, data_format="channels_first"), (3, 9, 10))
one("spatial_dropout3d", lambda: L.SpatialDropout3D(0.3), VOLUME)
one("activity_regularization", lambda: L.ActivityRegularization(l1=0.1, l2=0.2), SEQ)
one("rescaling_offset", lambda: L.Rescaling(2.0, offset=-1.0), IMAGE)
one("resizing_cropped", lambda: L.Resizing(9, 7, crop_to_aspect_ratio=True, interpolation="nearest"), IMAGE)
one("resizing_first", lambda: L.Resizing(9, 7, data_format="channels_first"), (3, 16, 17))
one("center_crop_larger", lambda: L.CenterCrop(20, 24), IMAGE)
one("category_count", lambda: L.CategoryEncoding(num_tokens=9, output_mode="count"), (5,), (5,), dtype="int32", call=lambda layer, x: layer(x[0], count_weights=keras.ops.cast(x[1], "float32")))
one("discretization_int", lambda: L.Discretization([1.0, 2.0]), (5,))
one("discretization_counts", lambda: L.Discretization([1.0, 2.0, 4.0], output_mode="count"), (5,))
one("discretization_multi", lambda: L.Discretization([1.0, 2.0, 4.0], output_mode="multi_hot"), (5,))
one("integer_lookup", lambda: L.IntegerLookup(vocabulary=[4, 7, 9], output_mode="multi_hot"), (5,), dtype="int64")
one("integer_lookup_int", lambda: L.IntegerLookup(vocabulary=[4, 7, 9], num_oov_indices=2), (5,), dtype="int64")
one("hashing", lambda: L.Hashing(7), (5,), dtype="int64")
one("hashing_one_hot", lambda: L.Hashing(7, output_mode="multi_hot"), (5,), dtype="int64")
one("hashed_crossing", lambda: L.HashedCrossing(7), (1,), (1,), dtype="int64")
one("stft_magnitude", lambda: L.STFTSpectrogram(mode="stft", frame_length=20, frame_step=5, fft_length=32, padding="same"), (64, 2))
one("stft_real", lambda: L.STFTSpectrogram(mode="real", frame_length=16, data_format="channels_first"), (2, 64))
one("stft_imag", lambda: L.STFTSpectrogram(mode="imag", frame_length=16, expand_dims=True), (64, 1))
one("mel_default", lambda: L.MelSpectrogram(), (4000,))
for kind, arguments in {
    "AugMix": {}, "AutoContrast": {}, "ContrastLimitedAdaptiveHistogramEqualization": {"tile_grid_size": (2, 2)},
    "CutMix": {}, "Equalization": {}, "MixUp": {}, "RandAugment": {}, "RandomBrightness": {"factor": 0.1},
    "RandomColorDegeneration": {"factor": 0.1}, "RandomColorJitter": {}, "RandomContrast": {"factor": 0.1},
    "RandomElasticTransform": {}, "RandomErasing": {}, "RandomGaussianBlur": {}, "RandomGrayscale": {},
    "RandomHue": {"factor": 0.1}, "RandomInvert": {}, "RandomPerspective": {}, "RandomPosterization": {"factor": 4},
    "RandomRotation": {"factor": 0.1}, "RandomSaturation": {"factor": 0.1}, "RandomSharpness": {"factor": 0.1},
    "RandomShear": {"x_factor": 0.1}, "RandomTranslation": {"height_factor": 0.1, "width_factor": 0.2},
    "RandomZoom": {"height_factor": 0.1}, "Solarization": {}, "RandomFlip": {"mode": "vertical"},
}.items():
    one("image_" + kind.lower(), lambda k=kind, a=arguments: getattr(L, k)(**a), (16, 16, 3))
one("random_crop", lambda: L.RandomCrop(7, 9), (16, 16, 3))
one("random_crop_same", lambda: L.RandomCrop(16, 16), (16, 16, 3))
one("pipeline", lambda: L.Pipeline([L.Rescaling(0.5), L.RandomCrop(5, 6), L.Resizing(8, 9)]), (16, 16, 3))
one("lambda_twice", lambda: L.Lambda(lambda x: x * 2, output_shape=(16, 16, 6)), IMAGE)


@model
def reversible_embedding_capped():
    x = keras.Input((12,), dtype="int32", name="x0")
    table = L.ReversibleEmbedding(40, 6, tie_weights=False, logit_soft_cap=5.0, reverse_dtype="float32")
    return [x], table(L.Dense(6)(table(x)), reverse=True)


@model
def lstm_with_initial_state():
    x, h = keras.Input(SEQ, name="x0"), keras.Input((5,), name="x1")
    out, a, b = L.LSTM(5, return_sequences=True, return_state=True)(x, initial_state=[h, h])
    g = L.Bidirectional(L.GRU(4))(out, initial_state=[L.Dense(4)(a), L.Dense(4)(b)])
    return [x, h], [out, g, L.ConvLSTM1D(2, 2)(L.Reshape((3, 5, 4))(L.Dense(5)(x)))]


@model
def policies_by_path():
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    x = keras.Input(SEQ, name="x0")
    policies["attention/query"] = keras.dtype_policies.DTypePolicy("float32")
    policies["attention/value"] = keras.dtype_policies.QuantizedDTypePolicy("int8", "float32")
    return [x], L.MultiHeadAttention(2, 6, dtype=policies, name="attention")(x, x)


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
            made = keras.Model(inputs, outputs, name=build.__name__)
        except Exception as error:
            print(build.__name__, "left out:", error)
            continue

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
