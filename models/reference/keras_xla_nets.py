"""Networks whose steps under XLA are recorded (keras_xla_steps.py): model, batch, optimizer, loss, policy.

Rules were made on `MADE_ON`; none on those of `HELD_OUT`.
"""

import keras
from keras import Input, Model, layers, ops


def block(x, d, h, act, drop=0., post=False, **k):
    y = x if post else layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dropout(drop)(layers.MultiHeadAttention(h, d // h, dropout=drop)(y, y, **k))
    x = layers.Add()([x, y])
    if post:
        x = layers.LayerNormalization()(x)
    y = x if post else layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(4 * d, activation=act)(y)
    y = layers.Dropout(drop)(layers.Dense(d)(y))
    x = layers.Add()([x, y])
    return layers.LayerNormalization()(x) if post else x


def embed(T, V, d):
    i = Input((T,), dtype="int32")
    x = layers.Embedding(V, d)(i)
    p = layers.Embedding(T, d)(ops.arange(T, dtype="int32") * ops.ones_like(i))
    return i, layers.Add()([x, p])


def vit():
    i = Input((96, 96, 3))
    x = layers.Conv2D(192, 8, 8)(i)
    x = layers.Reshape((144, 192))(x)
    for _ in range(6):
        x = block(x, 192, 3, "gelu", .1)
    x = layers.LayerNormalization()(x)
    return Model(i, layers.Dense(100)(layers.GlobalAveragePooling1D()(x)))


def bert():
    i, x = embed(128, 8000, 256)
    x = layers.Dropout(.1)(layers.LayerNormalization()(x))
    for _ in range(4):
        x = block(x, 256, 4, "gelu", .1, True)
    return Model(i, layers.Dense(20)(x[:, 0]))


def gpt():
    i, x = embed(256, 6000, 256)
    g = lambda t: keras.activations.gelu(t, approximate=True)
    for _ in range(4):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(4, 64)(y, y, use_causal_mask=True)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization()(x)
        y = ops.gelu(layers.Dense(1024)(y), approximate=True)
        x = layers.Add()([x, layers.Dense(256)(y)])
    return Model(i, layers.Dense(6000)(layers.LayerNormalization()(x)))


def llama():
    i = Input((128,), dtype="int32")
    x = layers.Embedding(4000, 256)(i)
    for _ in range(4):
        y = layers.RMSNormalization()(x)
        y = layers.GroupQueryAttention(32, 8, 2, use_bias=False)(y, y, use_causal_mask=True)
        x = layers.Add()([x, y])
        y = layers.RMSNormalization()(x)
        y = layers.Multiply()([layers.Dense(688, activation="silu", use_bias=False)(y), layers.Dense(688, use_bias=False)(y)])
        x = layers.Add()([x, layers.Dense(256, use_bias=False)(y)])
    return Model(i, layers.Dense(4000)(layers.RMSNormalization()(x)))


def cbr(x, f, k=3, s=1, act="relu"):
    return layers.Activation(act)(layers.BatchNormalization()(layers.Conv2D(f, k, s, padding="same", use_bias=False)(x)))


def unetbn():
    i = x = Input((128, 128, 3))
    sk = []
    for f in (16, 32, 64):
        x = cbr(cbr(x, f), f)
        sk.append(x)
        x = layers.MaxPooling2D()(x)
    x = cbr(cbr(x, 128), 128)
    for f, s in zip((64, 32, 16), sk[::-1]):
        x = layers.UpSampling2D(interpolation="bilinear")(x)
        x = layers.Concatenate()([x, s])
        x = cbr(cbr(x, f), f)
    return Model(i, layers.Conv2D(5, 1)(x))


def aebn():
    i = x = Input((96, 96, 3))
    for f in (32, 64, 128):
        x = layers.LeakyReLU(.2)(layers.BatchNormalization()(layers.Conv2D(f, 4, 2, padding="same")(x)))
    x = layers.Conv2D(16, 1)(x)
    for f in (128, 64, 32):
        x = layers.UpSampling2D()(x)
        x = layers.LeakyReLU(.2)(layers.BatchNormalization()(layers.Conv2D(f, 3, padding="same")(x)))
    return Model(i, layers.Conv2D(3, 3, padding="same", activation="sigmoid")(x))


def wrn():
    i = Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same")(i)
    for f, s in ((64, 1), (128, 2), (256, 2)):
        for k in range(2):
            y = layers.ReLU()(layers.GroupNormalization(16)(x))
            c = layers.Conv2D(f, 1, s if k == 0 else 1)(y) if k == 0 else x
            y = layers.Conv2D(f, 3, s if k == 0 else 1, padding="same")(y)
            y = layers.ReLU()(layers.GroupNormalization(16)(y))
            y = layers.Conv2D(f, 3, padding="same")(y)
            x = layers.Add()([c, y])
    x = layers.ReLU()(layers.GroupNormalization(16)(x))
    return Model(i, layers.Dense(100)(layers.GlobalAveragePooling2D()(x)))


def lstm():
    i = Input((48,), dtype="int32")
    x = layers.Embedding(5000, 128)(i)
    x = layers.LSTM(256, return_sequences=True, use_cudnn=False)(x)
    x = layers.LSTM(256, use_cudnn=False)(x)
    return Model(i, layers.Dense(10)(x))


def bigru():
    i = Input((40, 64))
    x = layers.Bidirectional(layers.GRU(128, return_sequences=True, use_cudnn=False))(i)
    x = layers.Bidirectional(layers.GRU(128, use_cudnn=False))(x)
    return Model(i, layers.Dense(10)(x))


def recsys():
    i = Input((20,), dtype="int32")
    x = layers.Embedding(100000, 64)(i)
    x = layers.Flatten()(x)
    for u in (1024, 512, 256):
        x = layers.Dropout(.2)(layers.Dense(u, activation="relu")(x))
    return Model(i, layers.Dense(10)(x))


def sep():
    i = Input((64, 64, 3))
    x = layers.ReLU(6.)(layers.BatchNormalization()(layers.Conv2D(32, 3, 2, padding="same", use_bias=False)(i)))
    for f in (64, 128, 256):
        for _ in range(2):
            x = layers.ReLU(6.)(layers.BatchNormalization()(layers.SeparableConv2D(f, 3, padding="same", use_bias=False)(x)))
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def audio1d():
    i = x = Input((4000, 1))
    for f in (32, 64, 128, 128):
        x = layers.MaxPooling1D(4)(layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(f, 9, padding="same")(x))))
    return Model(i, layers.Dense(35)(layers.GlobalAveragePooling1D()(x)))


def video3d():
    i = x = Input((16, 32, 32, 3))
    for f in (16, 32, 64):
        x = layers.Conv3D(f, 3, padding="same", activation="relu")(x)
        x = layers.Conv3D(f, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling3D(2)(x)
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling3D()(x)))


def padded():
    i = x = Input((64, 64, 3))
    for f in (32, 64, 96, 128):
        x = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
        x = layers.ReLU(6.)(layers.Conv2D(f, 3, 2)(x))
        x = layers.ZeroPadding2D(1)(x)
        x = layers.ReLU(6.)(layers.Conv2D(f, 3)(x))
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def resnet():
    i = Input((64, 64, 3))
    x = cbr(i, 32)
    for f, s in ((32, 1), (64, 2), (128, 2)):
        for k in range(2):
            y = cbr(x, f, 3, s if k == 0 else 1)
            y = layers.BatchNormalization()(layers.Conv2D(f, 3, padding="same", use_bias=False)(y))
            c = x if x.shape[1:] == y.shape[1:] else layers.BatchNormalization()(layers.Conv2D(f, 1, s, use_bias=False)(x))
            x = layers.ReLU()(layers.Add()([y, c]))
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def alexnet():
    i = Input((128, 128, 3))
    x = layers.Conv2D(64, 11, 4, activation="relu", padding="same")(i)
    x = layers.MaxPooling2D(3, 2)(x)
    x = layers.Conv2D(192, 5, activation="relu", padding="same")(x)
    x = layers.MaxPooling2D(3, 2)(x)
    for f in (256, 192):
        x = layers.Conv2D(f, 3, activation="relu", padding="same")(x)
    x = layers.Flatten()(layers.MaxPooling2D(2)(x))
    for u in (1024, 1024):
        x = layers.Dropout(.5)(layers.Dense(u, activation="relu")(x))
    return Model(i, layers.Dense(100, activation="softmax")(x))


def senet():
    i = Input((64, 64, 3))
    x = cbr(i, 32, 3, 1, "swish")
    for f, s in ((32, 1), (64, 2), (128, 2)):
        y = cbr(cbr(x, f, 3, s, "swish"), f, 3, 1, "swish")
        g = layers.GlobalAveragePooling2D()(y)
        g = layers.Dense(f, activation="sigmoid")(layers.Dense(f // 4, activation="swish")(g))
        x = layers.Multiply()([y, layers.Reshape((1, 1, f))(g)])
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def incept():
    i = Input((64, 64, 3))
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(i)
    for f in (16, 32):
        for _ in range(2):
            a = layers.Conv2D(f, 1, activation="relu")(x)
            b = layers.Conv2D(f * 2, 3, padding="same", activation="relu")(layers.Conv2D(f, 1, activation="relu")(x))
            c = layers.Conv2D(f, 5, padding="same", activation="relu")(layers.Conv2D(f // 2, 1, activation="relu")(x))
            p = layers.Conv2D(f, 1, activation="relu")(layers.MaxPooling2D(3, 1, padding="same")(x))
            x = layers.Concatenate()([a, b, c, p])
        x = layers.MaxPooling2D(2)(x)
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def elu():
    i = x = Input((512,))
    for u in (2048, 2048, 1024):
        x = layers.Dropout(.3)(layers.ELU()(layers.BatchNormalization()(layers.Dense(u)(x))))
    return Model(i, layers.Dense(50)(x))


def convmixer():
    i = Input((64, 64, 3))
    x = layers.BatchNormalization()(layers.Activation("gelu")(layers.Conv2D(128, 4, 4)(i)))
    for _ in range(4):
        y = layers.BatchNormalization()(layers.Activation("gelu")(layers.DepthwiseConv2D(5, padding="same")(x)))
        x = layers.Add()([x, y])
        x = layers.BatchNormalization()(layers.Activation("gelu")(layers.Conv2D(128, 1)(x)))
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def vggbn():
    i = x = Input((48, 48, 3))
    for f in (32, 64, 128):
        for _ in range(2):
            x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(f, 3, padding="same")(x)))
        x = layers.MaxPooling2D()(x)
    x = layers.Dropout(.4)(layers.Dense(256, activation="relu")(layers.Flatten()(x)))
    return Model(i, layers.Dense(10)(x))


def seq2seq():
    a = Input((64,), dtype="int32")
    b = Input((64,), dtype="int32")
    x = layers.Embedding(3000, 192)(a)
    y = layers.Embedding(3000, 192)(b)
    for _ in range(2):
        x = block(x, 192, 4, "relu", .1)
    for _ in range(2):
        z = layers.LayerNormalization()(y)
        y = layers.Add()([y, layers.MultiHeadAttention(4, 48)(z, z, use_causal_mask=True)])
        z = layers.LayerNormalization()(y)
        y = layers.Add()([y, layers.MultiHeadAttention(4, 48)(z, x)])
        z = layers.LayerNormalization()(y)
        y = layers.Add()([y, layers.Dense(192)(layers.Dense(768, activation="relu")(z))])
    return Model([a, b], layers.Dense(3000)(layers.LayerNormalization()(y)))


def tcn():
    i = x = Input((256, 16))
    for d in (1, 2, 4, 8):
        y = layers.ReLU()(layers.LayerNormalization()(layers.Conv1D(64, 3, dilation_rate=d, padding="causal")(x)))
        y = layers.Dropout(.1)(layers.ReLU()(layers.Conv1D(64, 3, dilation_rate=d, padding="causal")(y)))
        c = x if x.shape[-1] == 64 else layers.Conv1D(64, 1)(x)
        x = layers.Add()([c, y])
    return Model(i, layers.Dense(10)(x[:, -1]))


def disc():
    i = x = Input((64, 64, 3))
    for f in (64, 128, 256):
        x = layers.Dropout(.3)(layers.LeakyReLU(.2)(layers.Conv2D(f, 5, 2, padding="same")(x)))
    return Model(i, layers.Dense(1)(layers.Flatten()(x)))


def unet3d():
    i = x = Input((16, 32, 32, 1))
    sk = []
    def cb(x, f):
        for _ in range(2):
            x = layers.ReLU()(layers.GroupNormalization(4)(layers.Conv3D(f, 3, padding="same")(x)))
        return x
    for f in (16, 32):
        x = cb(x, f)
        sk.append(x)
        x = layers.MaxPooling3D(2)(x)
    x = cb(x, 64)
    for f, s in zip((32, 16), sk[::-1]):
        x = layers.Conv3DTranspose(f, 2, 2)(x)
        x = cb(layers.Concatenate()([x, s]), f)
    return Model(i, layers.Conv3D(2, 1)(x))


def tabular():
    i = x = Input((200,))
    for u in (1024, 1024, 512):
        x = layers.Dropout(.2)(layers.Activation("silu")(layers.BatchNormalization()(layers.Dense(u)(x))))
    return Model(i, layers.Dense(8)(x))


def segnet():
    i = x = Input((96, 96, 3))
    for f in (32, 64):
        x = layers.Conv2D(f, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(f, 3, 2, padding="same", activation="relu")(x)
    for f in (64, 32):
        x = layers.Conv2DTranspose(f, 4, 2, padding="same", activation="relu")(x)
    return Model(i, layers.Conv2D(3, 1, activation="sigmoid")(x))


def gru():
    i = Input((32,), dtype="int32")
    x = layers.Embedding(4000, 96)(i)
    x = layers.GRU(192, return_sequences=True, use_cudnn=False)(x)
    return Model(i, layers.Dense(10)(layers.GRU(192, use_cudnn=False)(x)))


def textcnn():
    i = Input((200,), dtype="int32")
    x = layers.Embedding(20000, 128)(i)
    x = layers.Concatenate()([layers.GlobalMaxPooling1D()(layers.Conv1D(128, k, activation="relu")(x)) for k in (3, 4, 5)])
    return Model(i, layers.Dense(5)(layers.Dropout(.5)(x)))


def resleaky():
    i = Input((64, 64, 3))
    x = layers.Conv2D(32, 3, padding="same")(i)
    for f, s in ((32, 1), (64, 2), (128, 2)):
        y = layers.LeakyReLU(.1)(layers.BatchNormalization()(layers.Conv2D(f, 3, s, padding="same")(x)))
        y = layers.BatchNormalization()(layers.Conv2D(f, 3, padding="same")(y))
        x = layers.LeakyReLU(.1)(layers.Add()([y, layers.Conv2D(f, 1, s)(x)]))
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def mlp_wide():
    i = x = Input((784,))
    for units in (4096, 4096, 2048):
        x = layers.Dense(units, activation="relu")(x)
    return Model(i, layers.Dense(10)(x))


def cnnbn():
    i = x = Input((96, 96, 3))
    for f in (32, 64, 128):
        for _ in range(2):
            x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(f, 3, padding="same", use_bias=False)(x)))
        x = layers.MaxPooling2D()(x)
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def dw():
    i = Input((96, 96, 3))
    x = layers.Conv2D(32, 3, padding="same", strides=2)(i)
    for f in (64, 128, 128, 256):
        x = layers.ReLU(6.0)(layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)))
        x = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(f, 1, use_bias=False)(x)))
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def gnres():
    i = Input((64, 64, 3))
    x = layers.Conv2D(32, 3, padding="same")(i)
    for f in (32, 64, 128):
        for _ in range(2):
            s = x if x.shape[-1] == f else layers.Conv2D(f, 1)(x)
            y = layers.Conv2D(f, 3, padding="same")(layers.Activation("silu")(layers.GroupNormalization(8)(x)))
            y = layers.Conv2D(f, 3, padding="same")(layers.Activation("silu")(layers.GroupNormalization(8)(y)))
            x = layers.Add()([s, y])
        x = layers.AveragePooling2D(2)(x)
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def wavenet():
    i = x = Input((64, 64))
    for d in (1, 2, 4, 8):
        y = layers.Conv1D(64, 3, dilation_rate=d, padding="causal", activation="tanh")(x)
        g = layers.Conv1D(64, 3, dilation_rate=d, padding="causal", activation="sigmoid")(x)
        x = layers.Add()([x, layers.Multiply()([y, g])])
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def mixer():
    i = x = Input((196, 256))
    for _ in range(4):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(196)(layers.Dense(384, activation="gelu")(y))
        x = layers.Add()([x, layers.Permute((2, 1))(y)])
        y = layers.Dense(1024, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(256)(y)])
    return Model(i, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def convae():
    i = x = Input((96, 96, 3))
    for f in (32, 64, 128):
        x = layers.LeakyReLU(.2)(layers.Conv2D(f, 3, 2, padding="same")(x))
    z = layers.Dense(128)(layers.Flatten()(x))
    x = layers.Reshape((12, 12, 128))(layers.Dense(12 * 12 * 128)(z))
    for f in (128, 64, 32):
        x = layers.LeakyReLU(.2)(layers.Conv2DTranspose(f, 3, 2, padding="same")(x))
    return Model(i, layers.Conv2D(3, 3, padding="same", activation="sigmoid")(x))


def audio():
    i = x = Input((8000, 1))
    x = layers.MaxPooling1D(4)(layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(48, 80, 4, padding="same")(x))))
    for f in (48, 96, 192):
        for _ in range(2):
            x = layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(f, 3, padding="same")(x)))
        x = layers.MaxPooling1D(4)(x)
    return Model(i, layers.Dense(35)(layers.GlobalAveragePooling1D()(x)))


def textconv():
    i = Input((256,), dtype="int32")
    x = layers.Dropout(.3)(layers.Embedding(15000, 100)(i))
    for k in (7, 7):
        x = layers.Conv1D(128, k, strides=3, activation="relu")(x)
    return Model(i, layers.Dense(4)(layers.Dropout(.5)(layers.Dense(128, activation="relu")(layers.GlobalMaxPooling1D()(x)))))


def sentiment():
    i = Input((100,), dtype="int32")
    x = layers.SpatialDropout1D(.2)(layers.Embedding(8000, 64)(i))
    x = layers.Bidirectional(layers.LSTM(48, return_sequences=True, use_cudnn=False))(x)
    x = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)])
    return Model(i, layers.Dense(2)(layers.Dense(64, activation="relu")(x)))


def forecast():
    i = Input((48, 12))
    x = layers.Conv1D(32, 5, padding="causal", activation="relu")(i)
    x = layers.GRU(128, return_sequences=True, use_cudnn=False)(x)
    x = layers.GRU(64, use_cudnn=False)(x)
    return Model(i, layers.Dense(24)(x))


def enc(x, d, h, act="gelu", drop=.1, mask=False):
    y = layers.MultiHeadAttention(h, d // h, dropout=drop)(x, x, use_causal_mask=mask)
    x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, layers.Dropout(drop)(y)]))
    y = layers.Dense(d)(layers.Dense(4 * d, activation=act)(x))
    return layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, layers.Dropout(drop)(y)]))


def tabtransformer():
    cat = Input((24,), dtype="int32")
    num = Input((16,))
    x = layers.Embedding(500, 32)(cat)
    for _ in range(4):
        x = enc(x, 32, 4)
    x = layers.Concatenate()([layers.Flatten()(x), layers.LayerNormalization()(num)])
    for u in (512, 256):
        x = layers.Dropout(.2)(layers.Dense(u, activation="selu")(layers.BatchNormalization()(x)))
    return Model([cat, num], layers.Dense(2)(x))


def resnet18():
    i = x = Input((112, 112, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(64, 7, 2, padding="same", use_bias=False)(x)))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for f, s in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for k in range(2):
            t = s if k == 0 else 1
            y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(f, 3, t, padding="same", use_bias=False)(x)))
            y = layers.BatchNormalization()(layers.Conv2D(f, 3, padding="same", use_bias=False)(y))
            c = x if t == 1 and x.shape[-1] == f else layers.BatchNormalization()(layers.Conv2D(f, 1, t, use_bias=False)(x))
            x = layers.ReLU()(layers.Add()([y, c]))
    return Model(i, layers.Dense(100)(layers.GlobalAveragePooling2D()(x)))


def tagger():
    i = Input((60,), dtype="int32")
    x = layers.Dropout(.1)(layers.Embedding(6000, 80)(i))
    for u in (96, 64):
        x = layers.Bidirectional(layers.GRU(u, return_sequences=True, use_cudnn=False))(x)
    return Model(i, layers.Dense(12)(x))


def upsampler():
    i = x = Input((64, 64, 3))
    for f in (16, 32, 64):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(f, 3, 2, padding="same", use_bias=False)(x)))
    for f in (64, 32, 16):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2DTranspose(f, 3, 2, padding="same", use_bias=False)(x)))
    return Model(i, layers.Conv2D(1, 3, padding="same")(x))


CLASSES, NUMBERS = "cross-entropy", "mse"

# The rules were made on these.
MADE_ON = [
    (mlp_wide, 256, "sgd", CLASSES, "float32"), (mlp_wide, 256, "adam", CLASSES, "float32"), (cnnbn, 32, "sgd", CLASSES, "float32"),
    (dw, 32, "sgd", CLASSES, "float32"), (mixer, 32, "adam", CLASSES, "float32"), (gnres, 16, "sgd", CLASSES, "float32"),
    (wavenet, 64, "sgd", CLASSES, "float32"), (vit, 16, "adamw", CLASSES, "float32"), (vit, 32, "adamw", CLASSES, "mixed_bfloat16"),
    (bert, 16, "adam", CLASSES, "float32"), (gpt, 8, "adamw", CLASSES, "float32"), (gpt, 8, "adamw", CLASSES, "mixed_bfloat16"),
    (llama, 8, "adamw", CLASSES, "float32"), (unetbn, 8, "adam", NUMBERS, "float32"), (aebn, 32, "adam", NUMBERS, "float32"),
    (wrn, 32, "sgd", CLASSES, "float32"), (lstm, 32, "adam", CLASSES, "float32"), (bigru, 32, "sgd", CLASSES, "float32"),
    (recsys, 64, "adam", CLASSES, "float32"), (sep, 32, "sgd", CLASSES, "float32"), (audio1d, 32, "adam", CLASSES, "float32"),
    (video3d, 8, "adam", CLASSES, "float32"), (padded, 16, "sgd", CLASSES, "float32"), (resnet, 32, "sgd", CLASSES, "mixed_bfloat16"),
    (resnet, 32, "adam", CLASSES, "float32"), (alexnet, 32, "sgd", CLASSES, "float32"), (senet, 32, "rmsprop", CLASSES, "float32"),
    (incept, 32, "adam", CLASSES, "float32"), (elu, 64, "adamw", CLASSES, "float32"), (convmixer, 16, "adam", CLASSES, "float32"),
    (disc, 32, "adam", NUMBERS, "float32"), (convae, 32, "adam", NUMBERS, "float32"), (audio, 32, "adam", CLASSES, "float32"),
    (textconv, 64, "rmsprop", CLASSES, "float32"), (sentiment, 32, "adam", CLASSES, "float32"), (forecast, 64, "adam", NUMBERS, "float32"),
    (tabtransformer, 256, "adamw", CLASSES, "float32"), (resnet18, 32, "sgd", CLASSES, "float32"), (segnet, 16, "sgd", NUMBERS, "float32"),
    (gru, 16, "adam", CLASSES, "float32"), (textcnn, 64, "adam", CLASSES, "float32"),
]
# No rule was made on these.
HELD_OUT = [
    (vggbn, 64, "sgd", CLASSES, "float32"), (seq2seq, 16, "adam", CLASSES, "float32"), (tcn, 32, "adam", CLASSES, "float32"),
    (unet3d, 4, "adam", NUMBERS, "float32"), (tabular, 64, "rmsprop", CLASSES, "mixed_bfloat16"),
    (resleaky, 16, "sgd", CLASSES, "mixed_float16"), (tagger, 32, "adam", CLASSES, "float32"), (upsampler, 8, "adam", NUMBERS, "float32"),
]
