"""Writes models/keras/operations.json: every operation of keras.ops that can stand in a functional model, and what it gives.

Needs keras (3.15) and a backend: KERAS_BACKEND=tensorflow python models/reference/keras_operations.py
"""

import json
from pathlib import Path

import keras
import numpy as np
from keras import ops

HERE = Path(__file__).resolve().parent
S, I = (12, 8), (16, 16, 6)
WRITTEN = {}


def c(name, f, *shapes, dtype="float32", dtypes=None):
    """One case: f of tensors of these shapes, in a batch of two."""
    keras.utils.clear_session(free_memory=False)
    dtypes = dtypes or [dtype] * len(shapes)
    try:
        xs = [keras.Input(batch_shape=(2, *s), name=f"x{i}", dtype=d) for i, (s, d) in enumerate(zip(shapes, dtypes))]
        ys = [y for y in keras.tree.flatten(f(*xs)) if keras.backend.is_keras_tensor(y)]
        config = keras.Model(xs, ys).to_json()
    except Exception as error:
        return print(name, "left out:", repr(error)[:100])
    told = [[list(y.shape), keras.backend.standardize_dtype(y.dtype)] for y in ys]
    WRITTEN[name] = {"config": json.loads(config), "outputs": told}


def K(*shape):
    return np.ones(shape, "float32")


one = "abs absolute angle arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil celu conj conjugate copy cos cosh deg2rad elu erf erfc erfinv exp exp2 expm1 fabs floor gelu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh i0 identity imag isfinite isinf isnan isneginf isposinf isreal leaky_relu log log10 log1p log2 log_sigmoid log_softmax logical_not nan_to_num negative ones_like zeros_like empty_like rad2deg ravel real reciprocal relu relu6 round rsqrt selu sigmoid sign signbit silu sin sinc sinh soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax sqrt square squareplus stop_gradient swish tan tanh tanh_shrink trunc glu size shape ndim fliplr flipud tril triu sort argsort unique nonzero cumsum cumprod nancumsum nancumprod convert_to_tensor flip".split()
for n in one:
    c(n, lambda x, n=n: getattr(ops, n)(x), S)
for n in "exp sqrt sin mean sum relu gelu abs sigmoid softmax log_softmax square argmax max prod var cumsum round floor reciprocal tanh negative sign std any all median logsumexp norm count_nonzero average ptp".split():
    c(n + "_int", lambda x, n=n: getattr(ops, n)(x), S, dtype="int32")
    c(n + "_bool", lambda x, n=n: getattr(ops, n)(x), S, dtype="bool")
two = "add arctan2 divide divide_no_nan equal floor_divide fmax fmin fmod greater greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum mod multiply nextafter not_equal power subtract true_divide ldexp allclose dot inner vdot outer cross kron correlate isin take_along_axis append in_top_k".split()
for n in two:
    c(n, lambda x, y, n=n: getattr(ops, n)(x, y), S, S)
    c(n + "_broadcast", lambda x, y, n=n: getattr(ops, n)(x, y), S, (1, 8))
    c(n + "_scalar", lambda x, n=n: getattr(ops, n)(x, 2.5), S)
    c(n + "_mixed", lambda x, y, n=n: getattr(ops, n)(x, y), S, S, dtypes=["int32", "float16"])
    c(n + "_array", lambda x, n=n: getattr(ops, n)(x, np.ones((8,), "float32")), S)
for n in "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift left_shift right_shift gcd lcm".split():
    c(n, lambda x, y, n=n: getattr(ops, n)(x, y), S, S, dtype="int32")
    c(n + "_scalar", lambda x, n=n: getattr(ops, n)(x, 3), S, dtype="int32")
for n in ["bitwise_not", "bitwise_invert"]:
    c(n, lambda x, n=n: getattr(ops, n)(x), S, dtype="int32")
red = "all amax amin any argmax argmin average count_nonzero logsumexp max mean median min nanargmax nanargmin nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar norm prod ptp std sum var".split()
for n in red:
    for an, a in [
        ("all", {}),
        ("last", dict(axis=-1)),
        ("two", dict(axis=(1, 2))),
        ("kept", dict(axis=1, keepdims=True)),
        ("kept_all", dict(keepdims=True)),
    ]:
        c(f"{n}_{an}", lambda x, n=n, a=a: getattr(ops, n)(x, **a), S)
for a in [("all", {}), ("last", dict(axis=-1)), ("kept", dict(axis=1, keepdims=True))]:
    c("quantile_" + a[0], lambda x, a=a: ops.quantile(x, 0.5, **a[1]), S)
    c("quantiles_" + a[0], lambda x, a=a: ops.quantile(x, [0.1, 0.5, 0.9], **a[1]), S)
    for n in "percentile nanquantile nanpercentile".split():
        c(n + "_" + a[0], lambda x, a=a, n=n: getattr(ops, n)(x, 0.5, **a[1]), S)
    for n in "percentile nanquantile nanpercentile".split():
        c(n + "s_" + a[0], lambda x, a=a, n=n: getattr(ops, n)(x, [0.5, 0.7], **a[1]), S)
c("norm_fro", lambda x: ops.norm(x, ord="fro", axis=(1, 2)), S)
c("norm_1", lambda x: ops.norm(x, ord=1, axis=-1, keepdims=True), S)
c("norm_nuc", lambda x: ops.norm(x, ord="nuc", axis=(1, 2)), S)
c("linalg_norm", lambda x: ops.linalg.norm(x, axis=-1), S)
c("moments", lambda x: ops.moments(x, axes=[1]), S)
c("moments_kept", lambda x: ops.moments(x, axes=[0, 1], keepdims=True), S)
c("normalize", lambda x: ops.normalize(x, axis=-1), S)
c("normalize_int", lambda x: ops.normalize(x, axis=-1), S, dtype="int32")
c("softmax_axes", lambda x: ops.softmax(x, axis=(1, 2)), S)
c("argpartition", lambda x: ops.argpartition(x, 3), S)
c("argsort_axis", lambda x: ops.argsort(x, axis=1), S)
c("argsort_none", lambda x: ops.argsort(x, axis=None), S)
c("argmax_none_kept", lambda x: ops.argmax(x, keepdims=True), S)
c("array_split", lambda x: ops.array_split(x, 5, axis=1), S)
c("hsplit", lambda x: ops.hsplit(x, 3), S)
c("vsplit", lambda x: ops.vsplit(x, 1), S)
c("dsplit", lambda x: ops.dsplit(x, 2), S)
c("hsplit_at", lambda x: ops.hsplit(x, [3, 5]), S)
c("average_weights", lambda x: ops.average(x, axis=1, weights=np.ones(12, "float32")), S)
c("average_weights_t", lambda x, y: ops.average(x, axis=1, weights=y), S, S)
c("batch_normalization", lambda x, y: ops.batch_normalization(x, np.ones(8, "float32"), np.ones(8, "float32"), -1), S, S)
c("layer_normalization", lambda x: ops.layer_normalization(x), S)
c("rms_normalization", lambda x: ops.rms_normalization(x), S)
c("binary_crossentropy", lambda x, y: ops.binary_crossentropy(x, y), S, S)
c("categorical_crossentropy", lambda x, y: ops.categorical_crossentropy(x, y), S, S)
c("categorical_crossentropy_axis", lambda x, y: ops.categorical_crossentropy(x, y, axis=1, from_logits=True), S, S)
c("sparse_categorical_crossentropy", lambda x, y: ops.sparse_categorical_crossentropy(x, y), (12,), S, dtypes=["int32", "float32"])
c("ctc_loss", lambda a, b, d, e: ops.ctc_loss(a, b, d, e), (5,), (12, 8), (), (), dtypes=["int32", "float32", "int32", "int32"])
c("ctc_decode", lambda a, b: ops.ctc_decode(a, b), (12, 8), (), dtypes=["float32", "int32"])
c("bincount", lambda x: ops.bincount(x, minlength=10), (5,), dtype="int32")
c("bincount_w", lambda x, w: ops.bincount(x, weights=w, minlength=10), (5,), (5,), dtypes=["int32", "float32"])
c("broadcast_to", lambda x: ops.broadcast_to(x, (3, 12, 8)), ())
c("cast", lambda x: ops.cast(x, "int8"), S)
c("saturate_cast", lambda x: ops.saturate_cast(x, "uint8"), S)
c("cast_bool", lambda x: ops.cast(x, "bool"), S)
c("cdist", lambda x, y: ops.cdist(x, y), (5, 8), (7, 8))
for n in "cholesky cholesky_inverse inv det logdet slogdet eig eigh pinv trace matrix_rank diag diagonal".split():
    c("l_" + n, lambda x, n=n: getattr(ops, n)(x), (8, 8))
c("lu_factor", lambda x: ops.lu_factor(x), (8, 8))
c("qr", lambda x: ops.qr(x), S)
c("qr_complete", lambda x: ops.qr(x, mode="complete"), S)
c("svd", lambda x: ops.svd(x), S)
c("svd_full", lambda x: ops.svd(x, full_matrices=False), S)
c("svd_vals", lambda x: ops.svd(x, compute_uv=False), S)
c("pinv_rect", lambda x: ops.pinv(x), S)
c("solve", lambda x, y: ops.solve(x, y), (8, 8), (8, 3))
c("solve_vec", lambda x, y: ops.solve(x, y), (8, 8), (8,))
c("solve_triangular", lambda x, y: ops.solve_triangular(x, y, lower=True), (8, 8), (8, 3))
c("lstsq", lambda x, y: ops.lstsq(x, y), (8, 5), (8, 3))
c("jvp", lambda x: ops.jvp(lambda t: t, (x,), (x,)), S)
c("clip", lambda x: ops.clip(x, -1, 1), S)
c("clip_int", lambda x: ops.clip(x, -1.0, 1.0), S, dtype="int32")
c("clip_bool", lambda x: ops.clip(x, 0, 1), S, dtype="bool")
c("concatenate", lambda x, y: ops.concatenate([x, y], axis=1), S, (4, 8))
c("concatenate_mixed", lambda x, y: ops.concatenate([x, y], axis=-1), S, (12, 3), dtypes=["int32", "float32"])
c("concatenate0", lambda x, y: ops.concatenate([x, y], axis=0), S, S)
c("concatenate_const", lambda x: ops.concatenate([x, np.ones((1, 12, 2), "float32")], axis=-1), S)
c("dstack", lambda x, y: ops.dstack([x, y]), S, S)
c("hstack", lambda x, y: ops.hstack([x, y]), S, S)
c("vstack", lambda x, y: ops.vstack([x, y]), S, S)
c("stack", lambda x, y: ops.stack([x, y], axis=-2), S, S)
c("stack_mixed", lambda x, y: ops.stack([x, y], axis=1), S, S, dtypes=["int32", "float16"])
c("conv", lambda x: ops.conv(x, K(3, 3, 6, 5), strides=2, padding="same"), I)
c("conv_first", lambda x: ops.conv(x, K(3, 3, 16, 5), data_format="channels_first"), I)
c("conv1", lambda x: ops.conv(x, K(3, 8, 5), dilation_rate=2), S)
c("conv_causal", lambda x: ops.conv(x, K(3, 8, 5), padding="causal"), S)
c("conv_t", lambda x, k: ops.conv(x, ops.reshape(k[0], (3, 3, 6, 5)), strides=1, padding="valid"), I, (270,))
c("conv_transpose", lambda x: ops.conv_transpose(x, K(3, 3, 5, 6), strides=2, padding="same"), I)
c("conv_transpose_v", lambda x: ops.conv_transpose(x, K(4, 4, 5, 6), strides=(3, 2), output_padding=1), I)
c("conv_transpose1", lambda x: ops.conv_transpose(x, K(4, 5, 8), strides=2, padding="valid"), S)
c("depthwise_conv", lambda x: ops.depthwise_conv(x, K(3, 3, 6, 2), strides=1, padding="same"), I)
c("separable_conv", lambda x: ops.separable_conv(x, K(3, 3, 6, 2), K(1, 1, 12, 5), strides=2, padding="same"), I)
for n in ["max_pool", "average_pool"]:
    c(n, lambda x, n=n: getattr(ops, n)(x, 2, strides=2, padding="same"), I)
    c(n + "_1", lambda x, n=n: getattr(ops, n)(x, 3), S)
c("adaptive_average_pool", lambda x: ops.adaptive_average_pool(x, (3, 5)), I)
c("adaptive_max_pool", lambda x: ops.adaptive_max_pool(x, 4), I)
c("corrcoef", lambda x: ops.corrcoef(x), ())
c("corrcoef2", lambda x: ops.corrcoef(x[0]), S)
c("cross3", lambda x, y: ops.cross(x, y), (4, 3), (4, 3))
c("cross2", lambda x, y: ops.cross(x, y), (4, 2), (4, 2))
c("cumsum_axis", lambda x: ops.cumsum(x, axis=1), S)
c("cumprod_axis", lambda x: ops.cumprod(x, axis=-1), S)
c("cumsum_dtype", lambda x: ops.cumsum(x, axis=1, dtype="int32"), S)
c("diff", lambda x: ops.diff(x), S)
c("diff2", lambda x: ops.diff(x, n=2, axis=1), S)
c("digitize", lambda x: ops.digitize(x, np.array([0.0, 1.0, 2.0])), S)
c("diag_k", lambda x: ops.diag(x[0], k=1), (8,))
c("diagflat", lambda x: ops.diagflat(x), (8,))
c("diagonal_k", lambda x: ops.diagonal(x, offset=1, axis1=1, axis2=2), S)
c("dot_product_attention", lambda q, k: ops.dot_product_attention(q, k, k), (12, 2, 8), (5, 2, 8))
c(
    "dot_product_attention_mask",
    lambda q, k, m: ops.dot_product_attention(q, k, k, mask=m, is_causal=True),
    (12, 2, 8),
    (12, 2, 8),
    (1, 12, 12),
    dtypes=["float32", "float32", "bool"],
)
for e, sh in [
    ("bij,bjk->bik", [(12, 8), (8, 5)]),
    ("bij,bkj->bik", [(12, 8), (5, 8)]),
    ("...ij,...jk->...ik", [(12, 8), (8, 5)]),
    ("bij->bji", [(12, 8)]),
    ("bij->b", [(12, 8)]),
    ("bij,bij->bi", [(12, 8), (12, 8)]),
    ("...i->...", [(12, 8)]),
    ("bij,bjk,bkl->bil", [(12, 8), (8, 5), (5, 3)]),
    ("bij,bjk", [(12, 8), (8, 5)]),
    ("bii->bi", [(8, 8)]),
    ("...ij->...ji", [(3, 12, 8)]),
    ("bhqd,bhkd->bhqk", [(2, 12, 8), (2, 5, 8)]),
]:
    c("einsum_" + e.replace(",", "_").replace("->", "2").replace("...", "E"), lambda *x, e=e: ops.einsum(e, *x), *sh)
c("einsum_int", lambda x, y: ops.einsum("bij,bjk->bik", x, y), (12, 8), (8, 5), dtype="int8")
c("einsum_const", lambda x: ops.einsum("bij,jk->bik", x, K(8, 5)), S)
c("expand_dims", lambda x: ops.expand_dims(x, -1), S)
c("expand_dims2", lambda x: ops.expand_dims(x, (1, -1)), S)
c("extract_sequences", lambda x: ops.extract_sequences(x, 16, 4), (64,))
for n in "fft fft2 ifft2".split():
    c(n, lambda x, n=n: getattr(ops, n)((x, x)), S)
c("rfft", lambda x: ops.rfft(x), S)
c("rfft_n", lambda x: ops.rfft(x, fft_length=16), S)
c("irfft", lambda x: ops.irfft((x, x)), (12, 9))
c("irfft_n", lambda x: ops.irfft((x, x), fft_length=16), (12, 9))
c("stft", lambda x: ops.stft(x, 16, 4, 16), (64,))
c("istft", lambda x: ops.istft((x, x), 16, 4, 16), (12, 9))
c("stft_nc", lambda x: ops.stft(x, 16, 4, 32, center=False), (64,))
c("istft_len", lambda x: ops.istft((x, x), 16, 4, 16, length=40), (12, 9))
c("flip_axis", lambda x: ops.flip(x, axis=1), S)
c("fold", lambda x: ops.fold(x, (8, 8), 2, stride=2), (12, 16))
c("unfold", lambda x: ops.unfold(x, 3), (6, 16, 16))
c("unfold_s", lambda x: ops.unfold(x, (2, 3), dilation=1, padding=1, stride=2), (6, 16, 16))
c("full_like", lambda x: ops.full_like(x, 2), S)
c("full_like_dtype", lambda x: ops.full_like(x, 2, dtype="int32"), S)
c("zeros_like_dtype", lambda x: ops.zeros_like(x, dtype="int32"), S)
c("ones_like_dtype", lambda x: ops.ones_like(x, dtype="bool"), S)
c("gelu_exact", lambda x: ops.gelu(x, approximate=False), S)
c("glu_axis", lambda x: ops.glu(x, axis=1), S)
gi = {
    "index": lambda x: x[:, 0],
    "slice": lambda x: x[:, 1:-1],
    "step": lambda x: x[:, ::2],
    "new": lambda x: x[:, None],
    "ellipsis": lambda x: x[..., 0],
    "ell2": lambda x: x[..., None],
    "two": lambda x: x[:, 1:3, 2],
    "neg": lambda x: x[:, -3:],
    "list": lambda x: x[:, [0, 2]],
    "batch": lambda x: x[0],
    "batchslice": lambda x: x[1:],
    "rev": lambda x: x[:, ::-1],
    "bslice2": lambda x: x[:2, :3],
}
for k, f in gi.items():
    c("get_item_" + k, f, S)
c("get_item_tensor", lambda x, i: x[i[0, 0]], S, (1,), dtypes=["float32", "int32"])
c("histogram", lambda x: ops.histogram(x, bins=7), S)
im = ops.image
for nm, f in {
    "rgb_to_grayscale": im.rgb_to_grayscale,
    "rgb_to_hsv": im.rgb_to_hsv,
    "hsv_to_rgb": im.hsv_to_rgb,
    "resize": lambda x: im.resize(x, (7, 9)),
    "resize_crop": lambda x: im.resize(x, (7, 9), crop_to_aspect_ratio=True, interpolation="nearest"),
    "affine": lambda x: im.affine_transform(x, K(2, 8)[:1]),
    "extract_patches": lambda x: im.extract_patches(x, 4),
    "extract_patches2": lambda x: im.extract_patches(x, (3, 4), strides=2, padding="same"),
    "extract_patches3": lambda x: im.extract_patches(x, (3, 4), strides=(2, 1), dilation_rate=1),
    "pad_images": lambda x: im.pad_images(x, top_padding=2, left_padding=3, target_height=20, target_width=30),
    "crop_images": lambda x: im.crop_images(x, top_cropping=2, left_cropping=3, target_height=10, target_width=10),
    "gaussian_blur": lambda x: im.gaussian_blur(x),
    "perspective": lambda x: im.perspective_transform(x, K(1, 4, 2), K(1, 4, 2)),
    "elastic": lambda x: im.elastic_transform(x),
    "scale_and_translate": lambda x: im.scale_and_translate(x, (1, 8, 8, 3), K(2), K(2), (1, 2), "linear"),
    "map_coordinates": lambda x: im.map_coordinates(x, K(4, 5), order=1),
}.items():
    c("image_" + nm, f, (16, 16, 3))
c("image_map_coordinates2", lambda x: im.map_coordinates(x, K(2, 5, 6), order=1), (12,))
c("image_resize3", lambda x: im.resize(x, (7, 9), data_format="channels_first"), (3, 16, 16))
c("image_resize_u8", lambda x: im.resize(x, (7, 9)), (16, 16, 3), dtype="uint8")
c("leaky_relu_s", lambda x: ops.leaky_relu(x, 0.1), S)
c("logspace", lambda x, y: ops.logspace(x, y, 5), (3,), (3,))
c("linspace", lambda x, y: ops.linspace(x, y, 5, axis=-1), (3,), (3,))
c("linspace0", lambda x, y: ops.linspace(x, y, 5), (3,), (3,))
c("geomspace", lambda x, y: ops.geomspace(x, y, 5), (3,), (3,))
mm = [((12, 8), (8, 5)), ((3, 12, 8), (3, 8, 5)), ((12, 8), (8,)), ((8,), (8, 5))]
for i, (a, b) in enumerate(mm):
    c(f"matmul_{i}", lambda x, y: ops.matmul(x, y), a, b)
c("matmul_const", lambda x: ops.matmul(x, K(8, 5)), S)
c("matmul_const_left", lambda x: ops.matmul(K(5, 12), x), S)
c("matmul_int8", lambda x, y: ops.matmul(x, y), (12, 8), (8, 5), dtype="int8")
c("matmul_vec", lambda x: ops.matmul(x, K(8)), S)
c("meshgrid", lambda x, y: ops.meshgrid(x[0], y[0]), (3,), (4,))
c("moveaxis", lambda x: ops.moveaxis(x, 1, -1), I)
c("moveaxis2", lambda x: ops.moveaxis(x, (1, 2), (-1, 1)), I)
c("multi_hot", lambda x: ops.multi_hot(x, num_classes=9), (5,), dtype="int32")
c("multi_hot2", lambda x: ops.multi_hot(x, num_classes=9, axis=1), (5, 3), dtype="int32")
c("one_hot", lambda x: ops.one_hot(x, 9), (5,), dtype="int32")
c("one_hot_axis", lambda x: ops.one_hot(x, 9, axis=1, dtype="float16"), (5,), dtype="int32")
c("pad", lambda x: ops.pad(x, [[0, 0], [1, 2], [0, 3]]), S)
c("pad_reflect", lambda x: ops.pad(x, ((0, 0), (1, 1), (1, 1)), mode="reflect"), S)
c("pad_int", lambda x: ops.pad(x, 1), S)
c("pad_pair", lambda x: ops.pad(x, (1, 2)), S)
c("pad_one", lambda x: ops.pad(x, ((1, 2),)), S)
c("polar", lambda x, y: ops.polar(x, y), S, S)
c("psnr", lambda x, y: ops.psnr(x, y, 1.0), I, I)
c("rearrange", lambda x: ops.rearrange(x, "b (h w) c -> b h w c", h=3), S) if hasattr(ops, "rearrange") else None
c("rearrange2", lambda x: ops.rearrange(x, "b h w c -> b (h w) c"), I)
c("rearrange3", lambda x: ops.rearrange(x, "b (h p1) (w p2) c -> b (h w) (p1 p2 c)", p1=4, p2=4), I)
c("repeat", lambda x: ops.repeat(x, 3, axis=1), S)
c("repeat_none", lambda x: ops.repeat(x, 3), S)
c("repeat_list", lambda x: ops.repeat(x, [1, 2, 3, 1, 1, 1, 1, 1], axis=-1), S)
c("repeat0", lambda x: ops.repeat(x, 3, axis=0), S)
c("reshape", lambda x: ops.reshape(x, (-1, 96)), S)
c("reshape2", lambda x: ops.reshape(x, (-1, 4, 24)), S)
c("reshape_flat", lambda x: ops.reshape(x, (-1,)), S)
c("reshape_merge", lambda x: ops.reshape(x, (-1, 8)), S)
c("reshape_shape", lambda x: ops.reshape(x, (ops.shape(x)[0], 96)), S)
c("reshape_int", lambda x: ops.reshape(x, -1), S)
c("reshape_bpart", lambda x: ops.reshape(x, (-1, 2, 8)), S)
c("reshape_dyn", lambda x: ops.reshape(x, (-1, ops.shape(x)[1], 2, 4)), (None, 8))
c("roll", lambda x: ops.roll(x, 2, axis=1), S)
c("rot90", lambda x: ops.rot90(x, axes=(1, 2)), I)
c("rot90_2", lambda x: ops.rot90(x, k=2, axes=(1, 2)), S)
c("scatter", lambda x: ops.scatter(np.array([[0], [1]]), x[0, :2], (5, 8)), S)
c("scatter_update", lambda x: ops.scatter_update(x, np.array([[0, 1]]), K(1, 8)), S)
c("slice", lambda x: ops.slice(x, (0, 1, 2), (1, 3, 4)), S)
c("slice_t", lambda x: ops.slice(x, np.array([0, 1, 2]), (1, 3, 4)), S)
c("slice_update", lambda x, y: ops.slice_update(x, (0, 1, 2), y), S, (3, 4))
c("searchsorted", lambda x: ops.searchsorted(np.arange(5.0).astype("float32"), x[0]), (7,))
for n in ["segment_sum", "segment_max", "segment_min", "segment_prod"]:
    if hasattr(ops, n):
        c(n, lambda x, n=n: getattr(ops, n)(x[0], np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]), num_segments=6), S)
c("select", lambda x, y: ops.select([x > 0, y > 0], [x, y], 0.0), S, S)
c("softmax_none", lambda x: ops.softmax(x, axis=None), S)
c("space_to_depth", lambda x: ops.space_to_depth(x, 2), I)
c("depth_to_space", lambda x: ops.depth_to_space(x, 2), (16, 16, 8))
c("split", lambda x: ops.split(x, 4, axis=1), S)
c("split_at", lambda x: ops.split(x, [3, 5], axis=-1), S)
c("squeeze", lambda x: ops.squeeze(x), (1, 8, 1))
c("squeeze_axis", lambda x: ops.squeeze(x, axis=1), (1, 8, 1))
c("squeeze_axes", lambda x: ops.squeeze(x, axis=(1, 3)), (1, 8, 1))
c("swapaxes", lambda x: ops.swapaxes(x, 1, -1), I)
c("take", lambda x: ops.take(x, [0, 2], axis=1), S)
c("take_scalar", lambda x: ops.take(x, 3, axis=1), S)
c("take_none", lambda x: ops.take(x, [0, 2]), S)
c("take_t", lambda x, i: ops.take(x, i, axis=1), S, (4,), dtypes=["float32", "int32"])
c("take_table", lambda i: ops.take(K(20, 8), i, axis=0), (4,), dtype="int32")
c("take_along_axis_i", lambda x, i: ops.take_along_axis(x, i, axis=1), S, (4, 8), dtypes=["float32", "int32"])
c("take_along_none", lambda x, i: ops.take_along_axis(x, i, axis=None), S, (4, 8), dtypes=["float32", "int32"])
c("tensordot", lambda x: ops.tensordot(x, K(8, 5), axes=1), S)
c("tensordot2", lambda x, y: ops.tensordot(x, y, axes=[[1], [1]]), S, (12, 3))
c("tensordot3", lambda x: ops.tensordot(x, K(12, 8, 5), axes=2), S)
c("tensordot4", lambda x: ops.tensordot(x, K(5, 8), axes=[[-1], [1]]), S)
c("tensordot5", lambda x: ops.tensordot(x, K(5, 8), axes=(-1, 1)), S)
c("threshold", lambda x: ops.threshold(x, 0.5, 0.0), S)
c("tile", lambda x: ops.tile(x, (1, 2, 3)), S)
c("tile_long", lambda x: ops.tile(x, (2, 1, 1, 2)), S)
c("tile_int", lambda x: ops.tile(x, 3), S)
c("top_k", lambda x: ops.top_k(x, 3), S)
c("trace2", lambda x: ops.trace(x, axis1=1, axis2=2), (8, 8))
c("transpose", lambda x: ops.transpose(x), S)
c("transpose_axes", lambda x: ops.transpose(x, (0, 2, 1)), S)
c("trapezoid", lambda x: ops.trapezoid(x), S)
c("trapezoid_axis", lambda x: ops.trapezoid(x, axis=1), S)
c("tril_k", lambda x: ops.tril(x, k=1), S)
c("unravel_index", lambda x: ops.unravel_index(x, (3, 4)), (5,), dtype="int32")
c("unstack", lambda x: ops.unstack(x, axis=1), S)
c("vander", lambda x: ops.vander(x[0]), (5,))
c("vander_n", lambda x: ops.vander(x[0], N=3), (5,))
c("vectorize", lambda x: ops.vectorize(lambda t: t + 1)(x), S)
c("vectorized_map", lambda x: ops.vectorized_map(lambda t: ops.sum(t), x), S)
c("map", lambda x: ops.map(lambda t: t * 2, x), S)
c("view", lambda x: ops.view(x, "int32"), S)
c("view_as_complex", lambda x: ops.view_as_complex(x), (5, 2))
c("view_as_real", lambda x: ops.view_as_real(ops.view_as_complex(x)), (5, 2))
c("where", lambda x, y: ops.where(x > 0, x, y), S, S)
c("where_scalar", lambda x: ops.where(x > 0, x, 0.0), S)
c("where_ints", lambda x: ops.where(x > 0, 1, 0), S)
c("where_one", lambda x: ops.where(x > 0), S)
c("cond", lambda x: ops.cond(np.array(True), lambda: x, lambda: x * 2), S)
c("while_loop", lambda x: ops.while_loop(lambda a: True, lambda a: (a,), (x,), maximum_iterations=2), S)
c("fori_loop", lambda x: ops.fori_loop(0, 3, lambda i, a: a + 1, x), S)
c("scan", lambda x: ops.scan(lambda a, b: (a + b, b), x[0], x), S)
c("associative_scan", lambda x: ops.associative_scan(lambda a, b: a + b, x), S)
c("switch", lambda x: ops.switch(0, [lambda t: t], x), S)
c("convert_dtype", lambda x: ops.convert_to_tensor(x, dtype="float16"), S)
c("erf_half", lambda x: ops.erf(x), S, dtype="bfloat16")
c("arange_t", lambda x: ops.add(x, ops.arange(8)), S)
c("eye_t", lambda x: ops.matmul(x, ops.eye(8)), S)
c("in_top_k2", lambda t, p: ops.in_top_k(t, p, 3), (), (8,), dtypes=["int32", "float32"])
# nn namespace & operators of Python
for n, f in {
    "py_add": lambda x, y: x + y,
    "py_sub": lambda x, y: 1 - x,
    "py_mul": lambda x, y: x * 0.5,
    "py_div": lambda x, y: x / y,
    "py_floordiv": lambda x, y: x // 2,
    "py_mod": lambda x, y: x % 3,
    "py_pow": lambda x, y: x**2,
    "py_rpow": lambda x, y: 2**x,
    "py_neg": lambda x, y: -x,
    "py_abs": lambda x, y: abs(x),
    "py_matmul": lambda x, y: x @ ops.swapaxes(y, 1, 2),
    "py_and": lambda x, y: (x > 0) & (y > 0),
    "py_inv": lambda x, y: ~(x > 0),
    "py_lt": lambda x, y: x < y,
    "py_round": lambda x, y: round(x),
}.items():
    c(n, f, S, S)
# open sizes
for n, f in {
    "mean": lambda x: ops.mean(x, axis=1),
    "reshape": lambda x: ops.reshape(x, (-1, 2, 4)),
    "concat": lambda x: ops.concatenate([x, x], axis=1),
    "slice": lambda x: x[:, 1:],
    "pad": lambda x: ops.pad(x, [[0, 0], [1, 1], [0, 0]]),
    "diff": lambda x: ops.diff(x, axis=1),
    "mm": lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))),
    "tile": lambda x: ops.tile(x, (1, 2, 1)),
    "repeat": lambda x: ops.repeat(x, 2, axis=1),
    "step": lambda x: x[:, ::2],
    "neg": lambda x: x[:, :-3],
    "last3": lambda x: x[:, -3:],
    "split": lambda x: ops.split(x, 2, axis=-1),
    "bcast": lambda x: ops.broadcast_to(x, ops.shape(x)),
    "stack": lambda x: ops.stack([x, x], 1),
    "flat": lambda x: ops.reshape(x, (-1, 8)),
    "unstackl": lambda x: ops.unstack(x, axis=-1),
}.items():
    c("open_" + n, f, (None, 8))
# Their shapes depend on elements, or on functions that the file does not hold in words.
DYNAMIC = """vectorized_map map scan switch jvp unique bincount where_one ndim reshape_shape reshape_dyn open_bcast"""
# What Keras infers for these is not what it then computes, which is what memfit says.
WRONG = """reciprocal_half logsumexp_half kron_scalar kron_array gcd_scalar lcm_scalar categorical_crossentropy_axis l_slogdet l_eig
lu_factor adaptive_average_pool multi_hot multi_hot2 rot90_2"""
for name in (DYNAMIC + " " + WRONG).split():
    WRITTEN.pop(name, None)
lines = ",\n".join(json.dumps({"case": name, **case}, separators=(",", ":")) for name, case in WRITTEN.items())
path = HERE.parent / "keras" / "operations.json"
path.write_text(f'{{"made_by":"keras {keras.__version__}","cases":[\n{lines}\n]}}\n')
print(len(WRITTEN), "cases,", path.stat().st_size, "bytes")
