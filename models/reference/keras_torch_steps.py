"""Writes keras_torch_steps.json: what one training step of small Keras models holds on Keras' PyTorch backend.

Keras' own `train_step` runs twice on fake tensors of the device "cuda" (fake_cuda.py), counted as tracker.py counts; the second step
finds the optimizer's state in place. Values that Keras asks a tensor for are made up: that no loss overflows is one of them.
Without a GPU no convolution in bfloat16 is given to cuDNN, whose layout is another one: convolutions are measured in float16.

    python keras_torch_steps.py > keras_torch_steps.json        # torch 2.15, Keras 3.15
"""

import gc
import json
import os
import sys

os.environ.update(KERAS_BACKEND="torch", KERAS_TORCH_DEVICE="cuda")

import keras
import keras.src.backend.torch.core
import keras.src.backend.torch.random
import torch
from keras import Input, Model, layers, ops
from torch._subclasses.fake_impls import op_implementations_dict

from fake_cuda import fake_cuda
from tracker import Tracker

BATCH = 8


def dense():
    return keras.Sequential([
        Input((64,)), layers.Dense(256, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.3),
        layers.Dense(256, activation="relu"), layers.Dense(10, activation="softmax"),
    ])


def convolutions():
    x = Input((32, 32, 3))
    h = layers.Rescaling(1 / 255)(x)
    for filters in (16, 32):
        h = layers.Conv2D(filters, 3, padding="same")(h)
        h = layers.Activation("relu")(layers.BatchNormalization()(h))
        h = layers.MaxPooling2D(3, strides=2, padding="same")(h)
    return Model(x, layers.Dense(10, activation="softmax")(layers.Flatten()(h)))


def separable():
    x = Input((32, 32, 8))
    h = layers.SeparableConv2D(16, 3, padding="same")(x)
    h = layers.Activation("swish")(layers.BatchNormalization()(h))
    h = layers.AveragePooling2D(3, strides=2, padding="same")(h)
    h = layers.Add()([h, layers.Conv2D(16, 1, strides=2, padding="same")(x)])
    return Model(x, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(h)))


def attention():
    x = Input((64,), dtype="int32")
    h = layers.Embedding(1000, 64)(x)
    h = layers.LayerNormalization()(h + layers.MultiHeadAttention(4, 16, dropout=0.1)(h, h))
    f = layers.Dropout(0.1)(layers.Dense(64)(layers.Dense(256, activation="gelu")(h)))
    h = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(h + f))
    return Model(x, layers.Dense(2, activation="softmax")(h))


def nested():
    part = keras.Sequential([Input((32, 32, 4)), layers.Conv2D(8, 3, padding="same"), layers.ReLU(), layers.Conv2D(8, 3)])
    x = Input((32, 32, 4))
    h = layers.Conv2D(16, 3, activation="relu")(part(x))
    return Model(x, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(h)))


def recurrent():
    x = Input((20,), dtype="int32")
    h = layers.LSTM(64, return_sequences=True)(layers.Embedding(100, 64)(x))
    return Model(x, layers.Dense(5, activation="softmax")(layers.GRU(32)(layers.Dropout(0.2)(h))))


def bidirectional():
    x = Input((20,), dtype="int32")
    h = layers.Bidirectional(layers.LSTM(48, return_sequences=True))(layers.Embedding(100, 64)(x))
    return Model(x, layers.Dense(5, activation="softmax")(layers.Bidirectional(layers.GRU(32), merge_mode="sum")(h)))


def time_distributed():
    x = Input((6, 16, 16, 3))
    h = layers.TimeDistributed(layers.MaxPooling2D())(layers.TimeDistributed(layers.Conv2D(8, 3, activation="relu"))(x))
    h = layers.TimeDistributed(layers.Dense(64, activation="relu"))(layers.TimeDistributed(layers.Flatten())(h))
    return Model(x, layers.Dense(5, activation="softmax")(layers.LSTM(32)(h)))


def wrapped_model():
    frames = keras.Sequential([
        Input((32, 32, 3)), layers.Conv2D(16, 3, padding="same", activation="relu"), layers.BatchNormalization(),
        layers.MaxPooling2D(), layers.Conv2D(32, 3, activation="relu"), layers.GlobalAveragePooling2D(),
    ])
    x = Input((6, 32, 32, 3))
    return Model(x, layers.Dense(5, activation="softmax")(layers.LSTM(32)(layers.TimeDistributed(frames)(x))))


def group_norm():
    h = x = Input((32, 32, 3))
    for _ in range(2):
        h = layers.Activation("swish")(layers.GroupNormalization(8)(layers.Conv2D(32, 3, padding="same")(h)))
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(h)))


def einsum():
    x = Input((32, 64))
    h = layers.EinsumDense("abc,cde->abde", output_shape=(None, 4, 32), bias_axes="de", activation="relu")(x)
    h = layers.EinsumDense("abde,dec->abc", output_shape=(None, 64), bias_axes="c")(h)
    h = layers.EinsumDense("...x,xy->...y", output_shape=(128,), activation="gelu")(h)
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling1D()(h)))


def operations():
    x = Input((64, 96))
    q, k, v = (ops.transpose(ops.reshape(layers.Dense(96)(x), (-1, 64, 3, 4, 8)), (2, 0, 3, 1, 4))[i] for i in range(3))
    h = ops.matmul(ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))), v)
    h = ops.reshape(ops.transpose(h, (0, 2, 1, 3)), (-1, 64, 32))
    h = ops.concatenate([ops.sum(h[:, 1:, :16] * h[:, :-1, 16:], axis=1), ops.max(h, axis=1)], axis=-1)
    return Model(x, layers.Dense(5, activation="softmax")(h))


def kernels():
    x = h = Input((16, 32))
    for name in ("celu", "elu", "exponential", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu", "log_sigmoid",
                 "log_softmax", "relu6", "selu", "sigmoid", "soft_shrink", "softplus", "tanh"):
        h = layers.Activation(name)(layers.Dense(32)(h))
    return Model(x, layers.Dense(5, activation="softmax")(layers.Flatten()(h)))


def composed():
    x = h = Input((16, 32))
    for name in ("mish", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "tanh_shrink"):
        h = layers.Activation(name)(layers.Dense(32)(h))
    h = layers.Softmax(axis=(1, 2))(ops.glu(layers.Dense(64)(h)))
    return Model(x, layers.Dense(5, activation="softmax")(layers.Flatten()(h)))


def rectified():
    x = h = Input((16, 32))
    for layer in (layers.ReLU(max_value=6), layers.ReLU(max_value=1), layers.ReLU(negative_slope=0.1), layers.ReLU(threshold=0.5),
                  layers.ReLU(6, 0.1), layers.ReLU(1, 0.1, 0.5), layers.ELU(0.5), layers.LeakyReLU(), layers.PReLU()):
        h = layer(layers.Dense(32)(h))
    return Model(x, layers.Dense(5, activation="softmax")(layers.Flatten()(h)))


def attentions():
    x = Input((48, 32))
    q, k, v = (layers.Dense(64)(x) for _ in range(3))
    h = [layers.Attention(use_scale=True)([q, v, k]), layers.Attention(score_mode="concat", use_scale=True, dropout=0.1)([q, v])]
    h += [layers.AdditiveAttention()([q, v]), layers.Attention()([q, v], use_causal_mask=True)]
    h = layers.Concatenate()(h)
    return Model(x, layers.Dense(5, activation="softmax")(layers.Flatten()(h)))


def dots():
    x = Input((48, 32))
    a, b = layers.Dense(64)(x), layers.Dense(64)(x)
    h = layers.Dot((2, 2))([a, b])
    h = layers.Dot((2, 1), normalize=True)([h, a])
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling1D()(h)))


def translation():
    x, y = Input((20,), dtype="int32"), Input((16, 32))
    *_, h, c = layers.LSTM(64, return_state=True)(layers.Embedding(100, 64)(x))
    d = layers.LSTM(64, return_sequences=True)(y, initial_state=[h, c])
    _, s = layers.GRU(64, return_state=True)(d, initial_state=h)
    return Model([x, y], layers.Dense(5, activation="softmax")(layers.Concatenate()([s, c])))


def augmented():
    x = Input((48, 48, 3))
    h = layers.RandomZoom(0.2)(layers.RandomRotation(0.1)(layers.RandomFlip()(x)))
    h = layers.Conv2D(4, 3, strides=2)(layers.RandomContrast(0.2)(layers.RandomHue(0.1)(h)))
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(h)))


def upsampled():
    x = Input((16, 16, 8))
    h = layers.UpSampling2D()(layers.Conv2D(8, 3, padding="same", activation="relu")(x))
    h = layers.UpSampling2D(interpolation="bilinear")(layers.Conv2D(8, 3, padding="same", activation="relu")(h))
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(layers.SpatialDropout2D(0.2)(h))))


def masked():
    x, y = Input((64,), dtype="int32"), Input((64, 48))
    h = layers.Embedding(50, 48, mask_zero=True)(x)
    a = layers.GlobalAveragePooling1D()(layers.Add()([h, layers.MultiHeadAttention(4, 16)(h, h)]))
    b = layers.GlobalAveragePooling1D()(layers.UnitNormalization()(layers.Masking()(layers.Dense(48)(y))))
    return Model([x, y], layers.Dense(5, activation="softmax")(layers.Concatenate()([a, b])))


def grouped():
    x = Input((64, 48))
    h = layers.Maximum()([layers.MultiHeadAttention(4, 12)(x, x), layers.GroupQueryAttention(12, 4, 2)(x, x, use_causal_mask=True)])
    h = layers.GaussianNoise(0.1)(layers.AlphaDropout(0.1)(layers.ActivityRegularization(l2=0.1)(h)))
    return Model(x, layers.Dense(5, activation="softmax")(layers.Flatten()(layers.GroupQueryAttention(12, 4, 2)(h, h))))


def cells():
    x = Input((14, 40))
    stack = [layers.LSTMCell(48, dropout=0.1), layers.SimpleRNNCell(40), layers.GRUCell(32, reset_after=False)]
    h = layers.RNN(layers.StackedRNNCells(stack), return_sequences=True)(x)
    h = layers.RNN(layers.GRUCell(40, recurrent_dropout=0.2), go_backwards=True, return_sequences=True)(h)
    return Model(x, layers.Dense(5, activation="softmax")(layers.SimpleRNN(32, unroll=True)(h)))


def other_functions():
    x = Input((16, 40))
    h = layers.LSTM(48, activation="relu", return_sequences=True)(x)
    h = layers.GRU(40, recurrent_activation="hard_sigmoid", return_sequences=True, go_backwards=True)(h)
    return Model(x, layers.Dense(5, activation="softmax")(layers.LSTM(32, unroll=True)(h)))


def masked_sequences():
    x = Input((20,), dtype="int32")
    h = layers.Embedding(300, 32, mask_zero=True)(x)
    h = layers.Bidirectional(layers.GRU(40, return_sequences=True, dropout=0.1))(h)
    h = layers.TimeDistributed(layers.Dense(48, activation="relu"))(h)
    h = layers.SimpleRNN(36, return_sequences=True, go_backwards=True)(h)
    return Model(x, layers.Dense(5, activation="softmax")(layers.Bidirectional(layers.LSTM(24), merge_mode="ave")(h)))


def masked_translation():
    x, y = Input((12,), dtype="int32"), Input((9,), dtype="int32")
    _, *states = layers.LSTM(48, return_state=True)(layers.Embedding(100, 48, mask_zero=True)(x))
    h = layers.LSTM(48, return_sequences=True)(layers.Embedding(120, 48, mask_zero=True)(y), initial_state=states)
    return Model([x, y], layers.Dense(5, activation="softmax")(layers.LSTM(8)(h)))


def frames():
    x = Input((5, 16, 16, 4))
    h = layers.ConvLSTM2D(8, 3, padding="same", return_sequences=True, dropout=0.1)(x)
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(layers.ConvLSTM2D(6, 3, strides=2, go_backwards=True)(h))))


def masked_attention():
    x = Input((48,), dtype="int32")
    h = layers.Embedding(200, 64, mask_zero=True)(x)
    for attention in (layers.MultiHeadAttention(4, 16, dropout=0.1), layers.GroupQueryAttention(16, 4, 2, dropout=0.1)):
        h = layers.LayerNormalization()(layers.Add()([h, attention(h, h)]))
        h = layers.LayerNormalization()(h + layers.Dropout(0.1, seed=1)(layers.Dense(64)(layers.Dense(128, activation="gelu")(h))))
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling1D()(h)))


def penalised():
    x = h = Input((256,))
    for _ in range(3):
        h = layers.Dense(256, activation="relu", kernel_regularizer="l2", bias_regularizer="l1", activity_regularizer="l1")(h)
    return Model(x, layers.Dense(10, activation="softmax", kernel_regularizer="l1l2")(h))


def gated():
    x = h = Input((32, 32, 8))
    for _ in range(3):
        h = layers.Conv2D(16, 3, padding="same", activation="relu")(h)
        h = layers.Multiply()([h, layers.Conv2D(1, 7, padding="same", activation="sigmoid")(h)])
    h = layers.Dense(512, activation="sigmoid")(layers.Dense(512, activation="sigmoid")(layers.GlobalAveragePooling2D()(h)))
    return Model(x, layers.Dense(10, activation="softmax")(h))


def segments():
    x = Input((64, 64, 3))
    h = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    return Model(x, layers.Conv2D(20, 1, activation="softmax")(h))


def tokens():
    x = Input((64,), dtype="int32")
    return Model(x, layers.Dense(1000, activation="softmax")(layers.Dense(64, activation="relu")(layers.Embedding(1000, 48)(x))))


def autoencoder():
    x = Input((64, 64, 3))
    h = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(x)
    return Model(x, layers.Conv2DTranspose(3, 3, strides=2, padding="same")(h))


def foreground():
    x = Input((64, 64, 3))
    return Model(x, layers.Conv2D(1, 1, activation="sigmoid")(layers.Conv2D(16, 3, padding="same", activation="relu")(x)))


def branches():
    x = h = Input((24, 24, 8))
    for _ in range(3):
        parts = [layers.Conv2D(8, 1, activation="relu")(h)]
        parts.append(layers.Conv2D(8, 3, padding="same", activation="relu")(layers.Conv2D(8, 1, activation="relu")(h)))
        parts.append(layers.Conv2D(16, 1)(layers.MaxPooling2D(3, 1, padding="same")(h)))
        h = layers.Concatenate()(parts)
    return Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(h)))


def wide_layers():
    x = Input((32, 32, 3))
    h = layers.Conv2D(16, 3, padding="same", activation="relu", dtype="float32")(layers.Conv2D(16, 3, padding="same")(x))
    h = layers.Conv2D(16, 3, padding="same")(layers.BatchNormalization(dtype="float32")(h))
    return Model(x, layers.Dense(4, activation="softmax", dtype="float32")(layers.GlobalAveragePooling2D()(h)))


OPTIMIZERS = ("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "lamb", "lion", "muon", "nadam", "rmsprop",
              "schedulefreeadamw", "sgd")
OPTIONS = [{"global_clipnorm": 1.0}, {"gradient_accumulation_steps": 4}, {"use_ema": True}, {"global_clipnorm": 1.0, "use_ema": True}]
STEPS = [(dense, optimizer, "float32") for optimizer in OPTIMIZERS]
STEPS += [(dense, (optimizer, options), "float32") for optimizer in ("adam", "sgd") for options in OPTIONS]
STEPS += [(dense, "adam", policy) for policy in ("mixed_float16", "mixed_bfloat16")]
STEPS += [(model, "adam", policy) for model in (convolutions, separable, nested) for policy in ("float32", "mixed_float16")]
STEPS += [(recurrent, "sgd", policy) for policy in ("float32", "mixed_float16")]
STEPS += [(model, "adam", policy) for model in (bidirectional, time_distributed, group_norm, einsum, operations)
          for policy in ("float32", "mixed_float16")]
STEPS += [(attention, "adam", policy) for policy in ("float32", "mixed_float16", "mixed_bfloat16")]
STEPS += [(model, "sgd", policy) for model in (kernels, composed, rectified, dots, translation) for policy in ("float32", "mixed_float16")]
STEPS.append((attentions, "sgd", "float32"))
STEPS += [(model, "sgd", policy) for model in (branches, grouped, masked, upsampled, wrapped_model) for policy in ("float32", "mixed_float16")]
STEPS.append((augmented, "sgd", "float32"))
STEPS.append((frames, "sgd", "float32"))
STEPS += [(model, "sgd", policy) for model in (cells, other_functions, masked_sequences, masked_translation, masked_attention, penalised, gated,
                                               segments, tokens, autoencoder, foreground) for policy in ("float32", "mixed_float16")]
LOSSES = {autoencoder: "mse", foreground: "binary_crossentropy"}


def collected(call):
    """Keras' trees leave cycles that hold tensors until Python happens to collect them: after each layer here."""
    depth = 0

    def run(self, *args, **kwargs):
        nonlocal depth
        depth += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            depth -= 1
            if depth < 2:
                gc.collect()

    return run
STEPS.append((wide_layers, "sgd", "mixed_float16"))


def answer():
    """What Keras and PyTorch ask of values that fake tensors do not have."""
    layers.Layer.__call__ = collected(layers.Layer.__call__)
    sys.modules["keras.src.backend.torch.rnn"]._is_cuda_cudnn_available = lambda: True
    keras.src.backend.torch.random.torch_seed_generator = lambda seed: None
    keras.src.backend.torch.core.convert_to_numpy = lambda tensor: 0.5  # Nadam asks for a product of its rates
    # What a GPU since Ampere takes (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
    torch.backends.cuda.can_use_flash_attention = lambda given, debug: given.query.dtype != torch.float32 and given.attn_mask is None
    asked = torch.ops.aten._local_scalar_dense.default
    op_implementations_dict[asked] = lambda mode, function, tensor: torch.ones((), dtype=tensor.dtype).item()


def measure(make, optimizer, options, policy):
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    with fake_cuda():
        model = make()
        optimizer = next(known for name, known in vars(keras.optimizers).items() if name.lower() == optimizer)
        loss = LOSSES.get(make)
        model.compile(optimizer=optimizer(**options), loss=loss or "sparse_categorical_crossentropy", jit_compile=False)
        x = [torch.zeros((BATCH, *i.shape[1:]), dtype=getattr(torch, i.dtype), device="cuda") for i in model.inputs]
        shape = model.outputs[0].shape
        y = torch.zeros((BATCH, *(shape[1:] if loss else shape[1:-1])), dtype=torch.float32 if loss else torch.int64, device="cuda")
        if loss == "mse":
            y = x[0]
        model.optimizer.build(model.trainable_variables)
        tracker = Tracker()
        tracker.phase = "forward"
        for variable in [*model.variables, *model.optimizer.variables]:
            tracker.mark(variable.value, "param")
        for tensor in (*x, y):
            tracker.mark(tensor, "oth")
        with tracker:
            for _ in range(2):
                tracker.reset_peak()
                model.train_step((x if len(x) > 1 else x[0], y))
        return tracker.peak["bytes"]


def config(make, policy):
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    with keras.device("cpu"):
        return json.loads(make().to_json())


def main():
    answer()
    steps = []
    for make, optimizer, policy in STEPS:
        name, options = optimizer if isinstance(optimizer, tuple) else (optimizer, {})
        step = {"model": make.__name__, "optimizer": name, "policy": policy, "batch": BATCH}
        if options:
            step["options"] = options
        steps.append({**step, "peak_bytes": measure(make, name, options, policy), "config": config(make, policy)})
    print('{"torch": "%s", "keras": "%s", "steps": [' % (torch.__version__, keras.__version__))
    print(",\n".join(json.dumps(step, separators=(",", ":")) for step in steps))
    print("]}")


if __name__ == "__main__":
    main()
