"""Records what one training step of small Keras models allocates under TensorFlow, into keras_steps.json.

The step is traced on the CPU, by one thread, in graph mode with the graph optimizers and without XLA: the allocations of each kernel,
in the order of their times. What a kernel frees before it ends is its scratch memory and left out. Variables were there before.
The executor's order depends on addresses where kernels do not depend on each other, so optimizers are those whose peak does not.

    python keras_steps.py > keras_steps.json        # TensorFlow 2.21, Keras 3.15; TF_ENABLE_ONEDNN_OPTS=0 is set here
"""

import json
import os

os.environ.update(TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import keras
import numpy as np
import tensorflow as tf
from keras import Input, Model, layers, ops

v1 = tf.compat.v1
BATCH = 8


def group_norm():
    return keras.Sequential([
        Input((48, 48, 3)), layers.Conv2D(32, 3, padding="same"), layers.GroupNormalization(8), layers.Activation("swish"),
        layers.Conv2D(64, 3, 2, padding="same"), layers.GroupNormalization(8), layers.Activation("mish"),
        layers.Flatten(), layers.Dense(10),
    ])


def time_distributed():
    each = layers.TimeDistributed
    return keras.Sequential([
        Input((6, 32, 32, 3)), each(layers.Conv2D(16, 3, activation="relu")), each(layers.MaxPooling2D()),
        each(layers.Flatten()), layers.Dense(32), layers.GlobalAveragePooling1D(), layers.Dense(4),
    ])


def two_heads():
    image = Input((48, 48, 3))
    x = layers.MaxPooling2D()(layers.Conv2D(32, 3, activation="relu")(image))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(64, 3, activation="relu")(x))
    return Model(image, [layers.Dense(10, activation="softmax")(x), layers.Dense(4)(x)])


def siamese():
    tower = keras.Sequential([
        Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.Flatten(), layers.Dense(64),
    ])
    a, b = Input((32, 32, 3)), Input((32, 32, 3))
    x, y = tower(a), tower(b)
    difference, cosine = ops.abs(layers.Subtract()([x, y])), layers.Dot(1, normalize=True)([x, y])
    return Model([a, b], layers.Dense(1, activation="sigmoid")(layers.Concatenate()([difference, cosine])))


def attentions():
    query, value = Input((40, 32)), Input((50, 32))
    x, y = layers.Attention(use_scale=True)([query, value]), layers.AdditiveAttention()([query, value])
    return Model([query, value], layers.Dense(3)(layers.GlobalAveragePooling1D()(layers.Concatenate()([x, y]))))


def corrected():
    model = keras.Sequential([
        Input((64,)), layers.Dense(256, activation="relu"), layers.Reshape((16, 16)),
        layers.EinsumDense("abc,cd->abd", output_shape=(None, 128), bias_axes="d"), layers.GlobalAveragePooling1D(),
        layers.Dense(10),
    ])
    for layer in (model.layers[0], model.layers[2]):
        layer.enable_lora(4)
    return model


def between_layers():
    image = Input((32, 32, 8))
    x = ops.image.resize(layers.Conv2D(16, 3, padding="same")(image), (48, 48))
    x = ops.normalize(x, axis=-1)
    x = layers.Conv2D(8, 3)(x * ops.rsqrt(ops.var(x, axis=(1, 2), keepdims=True) + 1e-3))
    y = ops.logsumexp(x, axis=-1) - ops.norm(x, axis=-1)
    told = layers.Concatenate()([ops.reshape(y, (-1, 46 * 46)), ops.std(x, axis=(1, 2))])
    return Model(image, layers.Dense(5)(told))


def patches():
    image = Input((64, 64, 3))
    x = layers.Dense(64)(ops.reshape(ops.image.extract_patches(image, 8), (-1, 64, 192)))
    x = ops.glu(x + layers.Dense(64)(layers.LayerNormalization()(x)))
    x = ops.diff(ops.logaddexp(layers.Dense(32)(x), x), axis=1)
    x = ops.tensordot(x, np.ones((32, 16), "float32"), axes=1)
    return Model(image, layers.Dense(5)(layers.Flatten()(ops.take(x, [0, 1, 2, 3], axis=2))))


def positions():
    words = Input((64, 32))
    x = ops.gelu(layers.Dense(32)(words) + np.ones((64, 32), "float32"))
    return Model(words, layers.Dense(5)(layers.GlobalAveragePooling1D()(ops.tanh(x) * x)))


def wrapped_model():
    frames = keras.Sequential([
        Input((24, 24, 3)), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(16, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
    ])
    video = Input((5, 24, 24, 3))
    return Model(video, layers.Dense(4)(layers.GlobalAveragePooling1D()(layers.TimeDistributed(frames)(video))))


def over_axes():
    image = Input((2, 160, 16))
    x = layers.MultiHeadAttention(2, 8, attention_axes=(2,))(image, image)
    return Model(image, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))


def over_two_axes():
    image = Input((6, 32, 32))
    x = layers.MultiHeadAttention(2, 16)(image, image)
    return Model(image, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))


def concat_scores():
    query, value = Input((40, 32)), Input((50, 32))
    x = layers.Attention(score_mode="concat", use_scale=True)([layers.Dense(32)(query), layers.Dense(32)(value)])
    return Model([query, value], layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def adaptive():
    image = Input((32, 32, 8))
    x = layers.AdaptiveMaxPooling2D((9, 11))(layers.Conv2D(16, 3)(image))
    x = layers.AdaptiveAveragePooling2D((5, 7))(layers.Conv2D(16, 3, padding="same")(x))
    return Model(image, layers.Dense(4)(layers.Flatten()(x)))


def shrunk():
    x = image = Input((32, 32, 8))
    for name in ("soft_shrink", "sparse_sigmoid"):
        x = layers.Activation(name)(layers.Conv2D(16, 3)(x))
    return Model(image, layers.Dense(4)(layers.GlobalAveragePooling2D()(layers.Conv2D(16, 3)(x))))


def chosen():
    image = Input((32, 32, 8))
    x = layers.LayerNormalization(rms_scaling=True)(layers.Conv2D(16, 3)(image))
    x = layers.Conv2D(16, 3)(layers.AlphaDropout(0.3)(x))
    x = layers.Softmax(axis=[1, 2])(x)
    x = layers.Conv2D(16, 3)(ops.where(x > 0.1, x, 0.5))
    x = layers.Conv2D(8, 3)(ops.take(x, [0, 1, 3, 5, 7], axis=2))
    return Model(image, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))


def penalised():
    both = keras.regularizers.L1L2(0.01, 0.01)
    return keras.Sequential([
        Input((32, 32, 3)), layers.Conv2D(64, 3, activation="relu", kernel_regularizer="l2"),
        layers.BatchNormalization(gamma_regularizer=both),
        layers.Conv2D(128, 3, activation="relu", kernel_regularizer=both, bias_regularizer="l1"), layers.GlobalAveragePooling2D(), layers.Dense(10),
    ])


def sorting():
    image = Input((24, 24, 8))
    x = layers.Conv2D(16, 3)(image)
    x = x - ops.median(x, axis=-1, keepdims=True)
    x = layers.Activation("sparsemax", dtype="float32")(layers.Conv2D(16, 3)(x))
    return Model(image, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def spectrogram():
    signal = Input((4000, 1))
    x = layers.Conv2D(8, 3)(layers.STFTSpectrogram("log", 256, 64, 256, expand_dims=True)(signal))
    return Model(signal, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def mel_bands():
    signal = Input((8000,))
    x = layers.Conv1D(16, 3)(layers.MelSpectrogram(fft_length=512, sequence_stride=256)(signal))
    return Model(signal, layers.Dense(5)(layers.GlobalAveragePooling1D()(x)))


def dilated():
    return keras.Sequential([
        Input((200, 16)), layers.Conv1D(32, 5, padding="causal", dilation_rate=2), layers.Conv1D(32, 5),
        layers.GlobalAveragePooling1D(), layers.Dense(5),
    ])


def separated():
    sequence = Input((200, 16))
    x = layers.SeparableConv1D(32, 5, dilation_rate=2, padding="same")(sequence)
    return Model(sequence, layers.Dense(5)(layers.GlobalAveragePooling1D()(layers.SeparableConv1D(32, 5, dilation_rate=3)(x))))


def quantized():
    model = keras.Sequential([Input((128,)), layers.Dense(512, activation="relu"), layers.Dense(512, activation="relu"), layers.Dense(10)])
    for layer in model.layers[:2]:
        layer.enable_lora(8)
        layer.quantize("int8")
    return model


def matrices():
    return keras.Sequential([Input((256,)), layers.Dense(1024, activation="relu"), layers.Dense(512, activation="relu"), layers.Dense(10)])


MODELS = [group_norm, time_distributed, two_heads, siamese, attentions, corrected, between_layers, patches, positions,
          wrapped_model, penalised, over_axes, over_two_axes, concat_scores, adaptive, shrunk, chosen, sorting, spectrogram,
          mel_bands, dilated, separated, quantized]
STEPS = [("float32", "sgd"), ("mixed_float16", "sgd")]
OTHERS = [(matrices, "float32", "muon")]
# Here TensorFlow itself has several peaks, by session: 6.37, 6.39, 7.23 or 7.28 MB. There Keras refuses half precision.
LEFT_OUT = [(between_layers, "mixed_float16"), (quantized, "mixed_float16")]


def target(output, draw):
    """Labels and their loss: classes for rows of several values, numbers for all else."""
    if len(output.shape) == 2 and output.shape[1] > 1:
        return tf.constant(draw.integers(0, output.shape[1], BATCH)), keras.losses.SparseCategoricalCrossentropy()
    return tf.constant(draw.random((BATCH, *output.shape[1:])), tf.float32), keras.losses.MeanSquaredError()


def traced(function, arguments):
    """Runs the function's graph twice in a session and gives the second run's statistics."""
    concrete = tf.function(function).get_concrete_function(*[tf.TensorSpec(a.shape, a.dtype) for a in arguments])
    variables = {id(v.handle): v for v in concrete.graph.variables}
    captured = [variables.get(id(outer), outer).numpy() for outer, _ in concrete.graph.captures]
    values = [a.numpy() for a in arguments]
    graph = tf.Graph()
    with graph.as_default():
        fed = [v1.placeholder(a.dtype, a.shape) for a in arguments]
        inputs, first = {i.name: p for i, p in zip(concrete.inputs, fed)}, []
        for k, ((_, inner), value) in enumerate(zip(concrete.graph.captures, captured)):
            if inner.dtype == tf.resource:
                handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=f"v{k}", container="")
                first.append(tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value)))
                inputs[inner.name] = handle
            else:
                inputs[inner.name] = tf.constant(value)
        loss = concrete.outputs[0].name
        fetched = tf.import_graph_def(concrete.graph.as_graph_def(), inputs, [loss], name="step")
        fetched += [graph.get_operation_by_name("step/" + op.name) for op in concrete.graph.control_outputs]
    one = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with v1.Session(graph=graph, config=one) as session:
        session.run(first)
        session.run(fetched, dict(zip(fed, values)))
        trace, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
        session.run(fetched, dict(zip(fed, values)), options=trace, run_metadata=metadata)
    return metadata.step_stats


def peak(statistics):
    """The most bytes alive at once, scratch memory left out."""
    events = []
    for node in (n for device in statistics.dev_stats for n in device.node_stats):
        begin, end = node.all_start_micros, node.all_start_micros + node.all_end_rel_micros
        for memory in node.memory:
            live = []
            for record in memory.allocation_records:
                if record.alloc_bytes > 0:
                    live.append(record)
                    continue
                made = next((m for m in live if m.alloc_bytes == -record.alloc_bytes), None)
                if made is None:
                    continue
                live.remove(made)
                if made.alloc_micros < begin or record.alloc_micros > end:
                    events += [(made.alloc_micros, 1, made.alloc_bytes), (record.alloc_micros, 0, -made.alloc_bytes)]
            events += [(m.alloc_micros, 1, m.alloc_bytes) for m in live]
    highest = now = 0
    for *_, change in sorted(events):
        now += change
        highest = max(highest, now)
    return highest


def step(make, policy, optimizer):
    keras.backend.clear_session()
    keras.config.set_dtype_policy(policy)
    draw = np.random.default_rng(0)
    model, rule = make(), keras.optimizers.get(optimizer)
    inputs = [tf.constant(draw.random((BATCH, *i.shape[1:])), tf.float32) for i in model.inputs]
    targets, losses = zip(*(target(output, draw) for output in model.outputs))
    rule.build(model.trainable_variables)

    def train(*arguments):
        x, y = list(arguments[: len(inputs)]), arguments[len(inputs) :]
        with tf.GradientTape() as tape:
            told = model(x if len(x) > 1 else x[0], training=True)
            told = told if isinstance(told, (list, tuple)) else [told]
            loss = sum([loss(a, b) for loss, a, b in zip(losses, y, told)] + model.losses)
        rule.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    statistics = traced(train, [*inputs, *targets])
    return {"policy": policy, "optimizer": optimizer, "config": json.loads(model.to_json()), "step_bytes": peak(statistics)}


def main():
    of_all = [(make, *how) for make in MODELS for how in STEPS if (make, how[0]) not in LEFT_OUT]
    steps = [{"model": make.__name__, "batch": BATCH, **step(make, *how)} for make, *how in of_all + OTHERS]
    lines = ",\n".join(json.dumps(s, separators=(",", ":")) for s in steps)
    print(f'{{"tensorflow": "{tf.__version__}", "keras": "{keras.__version__}", "steps": [\n{lines}\n]}}')


main()
