"""Says which framework would run steps and where. Written by memfit; prints a line of JSON."""

import json
import os
import sys

# --- the settings ---


def say(**line):
    print(json.dumps(line), flush=True)
    sys.exit(0)


def torch_device():
    import torch

    cuda = torch.cuda.is_available() if DEVICE is None else DEVICE == "cuda"
    if cuda and not torch.cuda.is_available():
        say(missing="cuda", message="PyTorch finds no CUDA device")
    return f"torch {torch.__version__}", torch.cuda.get_device_properties(0).name if cuda else None


def keras_device():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf
    import keras

    devices = tf.config.list_physical_devices("GPU")
    if DEVICE == "cuda" and not devices:
        say(missing="cuda", message="TensorFlow finds no GPU")
    gpu = bool(devices) and DEVICE != "cpu"
    name = tf.config.experimental.get_device_details(devices[0]).get("device_name", "GPU") if gpu else None
    return f"keras {keras.__version__}, tensorflow {tf.__version__}", name


try:
    framework, card = torch_device() if RUNNER == "torch" else keras_device()
except ImportError as error:
    say(missing="torch" if RUNNER == "torch" else "tensorflow and keras", message=str(error))
report = {"framework": framework, "backend": "cuda" if card else "cpu", "device": card or "the processor"}
say(report=report)
