"""Training steps of a Keras file, and what TensorFlow says of its memory. Written by memfit; prints lines of JSON.

TensorFlow counts the memory of GPUs alone; on the processor the steps run and no bytes are reported.
"""

import json
import os
import sys
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
# --- the settings ---

try:
    import numpy as np
    import tensorflow as tf
    import keras
except ImportError as error:
    print(json.dumps({"missing": "tensorflow and keras", "message": str(error)}), flush=True)
    sys.exit(0)


def say(**line):
    print(json.dumps(line), flush=True)


def load(path):
    """The file as it is; where its weights were taken out, its architecture, whose weights are random."""
    if path.endswith(".json"):
        with open(path) as file:
            return keras.models.model_from_json(file.read())
    try:
        return keras.models.load_model(path, compile=False)
    except (ValueError, KeyError, OSError):
        config = architecture(path)
        if config is None:
            raise
        return keras.models.model_from_json(config)


def architecture(path):
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return archive.read("config.json").decode()
    import h5py

    with h5py.File(path) as file:
        config = file.attrs.get("model_config")
        return config.decode() if isinstance(config, bytes) else config


def array(shape, dtype, below=2, elements=None):
    if elements is not None:
        return np.array(elements, dtype=dtype).reshape(shape)
    if np.issubdtype(np.dtype(dtype), np.floating):
        return np.random.standard_normal(shape).astype(dtype)
    return np.random.randint(0, max(below, 1), shape).astype(dtype)


def made(module, what):
    return getattr(module, what["class"])(**what["options"])


def read(gpu):
    return tf.config.experimental.get_memory_info("GPU:0") if gpu else None


def size_of(variables):
    return sum(int(np.prod(v.shape)) * tf.dtypes.as_dtype(v.dtype).size for v in variables)


def mean(x=None, y=None, y_pred=None, sample_weight=None, training=True):
    """A loss of the first output alone."""
    return keras.ops.mean(y_pred[0] if isinstance(y_pred, (list, tuple)) else y_pred)


def train(report, gpu):
    if CONFIG["autocast"]:
        policy = keras.DTypePolicy("mixed_" + CONFIG["autocast"])
        keras.config.set_dtype_policy(policy)
    model = load(CONFIG["file"])
    if CONFIG["autocast"]:
        for layer in model._flatten_layers():
            layer.dtype_policy = policy
    report["parameters"] = int(model.count_params())
    report["bytes"]["parameters"] = size_of(model.trainable_variables)
    inputs = [array(i["shape"], i["dtype"], 2, i["elements"]) for i in CONFIG["inputs"]]
    feed = inputs[0] if len(inputs) == 1 else inputs
    target = CONFIG["target"]
    if CONFIG["loss"] is None:
        label = None
    elif "input" in target:
        label = inputs[target["input"]]
    else:
        label = array(target["shape"], target["dtype"], target.get("below", 2))
    outputs = len(model.outputs)
    # The first output is compared; the others are made and have no loss.
    if CONFIG["loss"] is None:
        model.compute_loss = mean
        loss = labels = None
    else:
        loss = made(keras.losses, CONFIG["loss"])
        loss = [loss] + [None] * (outputs - 1) if outputs > 1 else loss
        labels = [label] + [None] * (outputs - 1) if outputs > 1 else label
    optimizer = made(keras.optimizers, CONFIG["optimizer"])
    # Keras 2, whose mixed policy decides alone, does not know the word.
    scaled = {} if CONFIG["loss_scale"] else {"auto_scale_loss": False}
    model.compile(
        optimizer=optimizer, loss=loss, jit_compile=CONFIG["xla"] and gpu, run_eagerly=CONFIG["run_eagerly"], **scaled
    )
    for step in range(CONFIG["steps"]):
        if gpu:
            before = read(gpu)
            report["bytes"]["before"] = before["current"]
            tf.config.experimental.reset_memory_stats("GPU:0")
        # The optimizer adds up what so many batches give, and makes one update of them.
        for _ in range(CONFIG["accumulate"]):
            if CONFIG["train"]:
                report["losses"].append(float(np.ravel(model.train_on_batch(feed, labels))[0]))
            else:
                model.predict_on_batch(feed)
        if gpu:
            after = read(gpu)
            report["bytes"]["peak"] = after["peak"]
            report["after_step_bytes"].append(after["current"])
        report["steps"] = step + 1
        say(progress={"step": step + 1, "peak_bytes": report["bytes"].get("peak", 0)})
    if CONFIG["train"]:
        report["bytes"]["optimizer"] = size_of(v for v in optimizer.variables if v.shape)


def main():
    devices = tf.config.list_physical_devices("GPU")
    if CONFIG["device"] == "cuda" and not devices:
        say(missing="cuda", message="TensorFlow finds no GPU")
        return
    gpu = bool(devices) and CONFIG["device"] != "cpu"
    if not gpu:
        tf.config.set_visible_devices([], "GPU")
    elif CONFIG["limit_bytes"]:
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=CONFIG["limit_bytes"] >> 20)
        tf.config.set_logical_device_configuration(devices[0], [limit])
    elif CONFIG["growth"]:
        tf.config.experimental.set_memory_growth(devices[0], True)
    if not CONFIG["grappler"]:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    details = tf.config.experimental.get_device_details(devices[0]) if gpu else {}
    report = {
        "framework": f"keras {keras.__version__}, tensorflow {tf.__version__}",
        "backend": "cuda" if gpu else "cpu",
        "device": details.get("device_name", "GPU") if gpu else "the processor",
        "driver": None,
        "total_bytes": None,
        "counted": False,
        "steps": 0,
        "losses": [],
        "parameters": 0,
        "bytes": {},
        "saved": {},
        "context": {},
        "after_step_bytes": [],
        "ended": None,
    }
    try:
        train(report, gpu)
    except KeyboardInterrupt:
        report["ended"] = {"kind": "interrupted", "message": "ended by the user"}
    except Exception as error:
        out = isinstance(error, (MemoryError, tf.errors.ResourceExhaustedError))
        kind = "out-of-memory" if out else "failed"
        report["ended"] = {"kind": kind, "message": f"{type(error).__name__}: {error}"}
    if report["ended"]:
        report["ended"] |= {"layer": "", "function": "train_on_batch"}
    say(report=report)


main()
