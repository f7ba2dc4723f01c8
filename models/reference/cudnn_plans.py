# /// script
# requires-python = ">=3.11"
# dependencies = ["nvidia-cudnn-cu13==9.26.0.51"]
# ///
"""The scratch memory of the plan that cuDNN's heuristics put first for a convolution, as cuDNN itself says.

PyTorch runs that plan where `torch.backends.cudnn.benchmark` is off. No GPU is needed: since release 9.8 cuDNN answers
for a card that is described to it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Release 9.26 is the one that PyTorch 2.15 for CUDA 13
comes with. memfit's rule (crates/engine/src/frameworks/pytorch/heuristics.rs) is compared with what is printed here.

    python cudnn_plans.py < cudnn_plans.tsv > new.tsv

Takes the convolutions of such a table (channels, height, width, outputs, filter's height and width, stride, padding,
dilation, groups; 32 images each) and prints it anew: bytes of the passes forward, input's gradient, filter's gradient for each
card, dtype and layout (`cards` below), -1 where there is no plan.
"""

import ctypes
import glob
import json
import os
import site
import sys

BATCH = 32
A100 = {
    "deviceVer": 800, "deviceName": "NVIDIA A100-SXM4-40GB", "cudaDeviceId": 0, "driverVer": 13020,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 108, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 166912, "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 42505273344,
    "smClockRateKHz": 1410000, "memClockRateKHz": 1215000, "l2CacheSize": 41943040,
}
H100 = A100 | {
    "deviceVer": 900, "deviceName": "NVIDIA H100 80GB HBM3", "multiProcessorCount": 132,
    "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 85029158912, "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000, "l2CacheSize": 52428800,
}
RTX_3090 = A100 | {
    "deviceVer": 860, "deviceName": "NVIDIA GeForce RTX 3090", "multiProcessorCount": 82,
    "maxSharedMemoryPerBlockOptin": 101376, "maxCtasPerSM": 16, "maxThreadsPerSM": 1536, "totalGlobalMem": 25296961536,
    "smClockRateKHz": 1695000, "memClockRateKHz": 9751000, "l2CacheSize": 6291456,
}
T4 = A100 | {
    "deviceVer": 750, "deviceName": "Tesla T4", "multiProcessorCount": 40, "maxSharedMemoryPerBlockOptin": 65536,
    "reservedSharedMemoryPerBlock": 0, "maxCtasPerSM": 16, "maxThreadsPerSM": 1024, "totalGlobalMem": 15828320256,
    "smClockRateKHz": 1590000, "memClockRateKHz": 5001000, "l2CacheSize": 4194304,
}
CARDS = {"a100-40gb": A100, "h100-80gb": H100, "rtx-3090": RTX_3090, "t4": T4}
# Card, dtype, whether channels are innermost.
CASES = [(card, dtype, last) for card in CARDS for dtype in ("float32", "float16") for last in (0, 1)]

# Numbers of cudnn_graph.h: kinds of descriptors, then of values.
CONVOLUTION, ENGINE_CONFIG, HEURISTIC, PLAN, GRAPH, TENSOR, DEVICE = 1, 3, 4, 5, 15, 17, 38
DATA_TYPE, INT64, FLOAT, CONVOLUTION_MODE, HEURISTIC_MODE, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 15, 24
DTYPES = {"float32": (0, 4), "float16": (2, 2)}
# By pass: the kind, and the attributes input, filter, output, convolution, alpha, beta.
PASSES = [
    (10, (704, 703, 705, 702, 700, 701)),
    (12, (710, 709, 711, 708, 706, 707)),
    (11, (716, 715, 717, 714, 712, 713)),
]


def load():
    folder = os.path.join(next(d for d in site.getsitepackages() if os.path.isdir(os.path.join(d, "nvidia/cudnn"))), "nvidia")
    for path in sorted(glob.glob(folder + "/cu13/lib/libcublas*.so.*")):
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(folder + "/cudnn/lib/libcudnn.so.9", ctypes.RTLD_GLOBAL)


CUDNN = load()


class Failed(Exception):
    pass


def check(status):
    if status:
        raise Failed(status)


def made(kind, attributes):
    """A descriptor with attributes: name, kind of value, values."""
    descriptor = ctypes.c_void_p()
    check(CUDNN.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)))
    types = {DATA_TYPE: ctypes.c_int, INT64: ctypes.c_int64, FLOAT: ctypes.c_float, CONVOLUTION_MODE: ctypes.c_int,
             HEURISTIC_MODE: ctypes.c_int, DESCRIPTOR: ctypes.c_void_p}
    for name, value_kind, values in attributes:
        if value_kind == CHAR:
            array = ctypes.create_string_buffer(values, len(values))
        else:
            array = (types[value_kind] * len(values))(*values)
        check(CUDNN.cudnnBackendSetAttribute(descriptor, name, value_kind, ctypes.c_int64(len(values)), array))
    check(CUDNN.cudnnBackendFinalize(descriptor))
    return descriptor


def tensor(uid, shape, dtype, last):
    n, c, h, w = shape
    strides = (c * h * w, 1, c * w, c) if last else (c * h * w, h * w, w, 1)
    return made(TENSOR, [(906, INT64, [uid]), (901, DATA_TYPE, [dtype]), (900, INT64, [16]),
                         (902, INT64, shape), (903, INT64, strides)])


def first_plan(graph, device):
    """Bytes that the first plan which can be built asks for."""
    heuristic = made(HEURISTIC, [(201, DESCRIPTOR, [graph]), (200, HEURISTIC_MODE, [0]), (204, DESCRIPTOR, [device])])
    count = ctypes.c_int64()
    check(CUDNN.cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, ctypes.c_int64(0), ctypes.byref(count), None))
    configs = (ctypes.c_void_p * count.value)()
    for i in range(count.value):
        config = ctypes.c_void_p()
        check(CUDNN.cudnnBackendCreateDescriptor(ENGINE_CONFIG, ctypes.byref(config)))
        configs[i] = config
    check(CUDNN.cudnnBackendGetAttribute(heuristic, 202, DESCRIPTOR, count, ctypes.byref(count), configs))
    for config in list(configs)[: count.value]:
        try:
            plan = made(PLAN, [(401, DESCRIPTOR, [config]), (407, DESCRIPTOR, [device])])
        except Failed:
            continue
        found = ctypes.c_int64()
        check(CUDNN.cudnnBackendGetAttribute(plan, 402, INT64, ctypes.c_int64(1), ctypes.byref(count), ctypes.byref(found)))
        return found.value
    return -1


def workspaces(convolution, dtype, last, device):
    channels, height, width, outputs, r, s, stride, padding, dilation, groups = convolution
    number, _ = DTYPES[dtype]
    side = lambda n, filter: (n + 2 * padding - dilation * (filter - 1) - 1) // stride + 1
    x = tensor(1, (BATCH, channels, height, width), number, last)
    w = tensor(2, (outputs, channels // groups, r, s), number, last)
    y = tensor(3, (BATCH, outputs, side(height, r), side(width, s)), number, last)
    described = made(CONVOLUTION, [(106, INT64, [2]), (100, DATA_TYPE, [0]), (101, CONVOLUTION_MODE, [1]),
                                   (105, INT64, [padding] * 2), (104, INT64, [padding] * 2),
                                   (102, INT64, [dilation] * 2), (103, INT64, [stride] * 2)])
    for kind, (input, filter, output, convolution, alpha, beta) in PASSES:
        try:
            operation = made(kind, [(input, DESCRIPTOR, [x]), (filter, DESCRIPTOR, [w]), (output, DESCRIPTOR, [y]),
                                    (convolution, DESCRIPTOR, [described]), (alpha, FLOAT, [1.0]), (beta, FLOAT, [0.0])])
            yield first_plan(made(GRAPH, [(801, DESCRIPTOR, [operation])]), device)
        except Failed:
            yield -1


def main():
    rows = [line.split("\t") for line in sys.stdin.read().splitlines()[1:]]
    devices = {card: made(DEVICE, [(2702, CHAR, json.dumps(properties).encode())]) for card, properties in CARDS.items()}
    names = [f"{card} {dtype} {'last' if last else 'first'}" for card, dtype, last in CASES]
    print("convolution", *names, sep="\t")
    for row in rows:
        convolution = [int(n) for n in row[0].split()]
        cells = [" ".join(map(str, workspaces(convolution, dtype, last, devices[card]))) for card, dtype, last in CASES]
        print(row[0], *cells, sep="\t", flush=True)


if __name__ == "__main__":
    main()
