"""Records what TensorFlow's own BFC allocator does with sequences of requests, into tensorflow_bfc.json.

The allocator is a class of TensorFlow's library, which asks a sub-allocator for regions. tensorflow_bfc.cpp is a program that gives it
one that only counts and places regions behind each other, so it runs as on a GPU where there is none: growth, a driver that has less
than the limit, collection of empty regions. A case is a list of events: a request in bytes, or -1 - i, the death of what event i got.
After each it tells what is in use, what is taken of the device, and a fingerprint of where the chunks in use lie; `failed` are the
events that ran out of memory.

    python tensorflow_bfc.py > tensorflow_bfc.json        # tensorflow 2.21, g++
"""

import json
import os
import subprocess
import tempfile

from request_sequence import sequence

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
MIXED, LARGE = (1, 64 * MIB), (MIB, 400 * MIB)
# Where the driver has too little for a request of ten chunks or fewer, TensorFlow 2.21 asks for ever: none are so small there.
# The limit and the device's memory in bytes, growth, whether empty regions are collected, the smallest and largest request.
CASES = [
    (1 << 40, 1 << 40, True, True, MIXED),
    (1 << 40, 1 << 40, True, True, (1, 40_000)),
    (1 << 40, 1 << 40, True, True, LARGE),
    (5000 * MIB, 1 << 40, False, True, LARGE),
    (400 * MIB, 1 << 40, True, True, MIXED),
    (400 * MIB, 1 << 40, True, False, MIXED),
    (400 * MIB + 77, 1 << 40, False, True, MIXED),
    (2000 * MIB, 1 << 40, True, True, LARGE),
    (2000 * MIB, 1700 * MIB, True, True, LARGE),
    (2000 * MIB, 1700 * MIB, False, True, LARGE),
    (500 * MIB, 300 * MIB + 5000, True, True, (4096, 64 * MIB)),
    (4000, 1 << 40, True, True, (1, 1500)),
]


def build(program):
    import tensorflow

    own = os.path.dirname(tensorflow.__file__)
    subprocess.run(
        ["g++", "-w", "-std=c++17", "-O1", "-D_GLIBCXX_USE_CXX11_ABI=1", f"-I{own}/include", f"{HERE}/tensorflow_bfc.cpp", "-o", program]
        + [f"-L{own}", "-l:libtensorflow_framework.so.2", f"-Wl,-rpath,{own}"],
        check=True,
    )


def record(program, limit, device, growth, collects, sizes, count=160):
    events = sequence(f"{limit} {device} {growth} {collects} {sizes}", *sizes, min(limit, device, 4096 * MIB) * 0.85, count)
    arguments = [program, str(limit), str(device), str(int(growth)), str(int(collects))]
    told = subprocess.run(arguments, input="\n".join(map(str, events)), capture_output=True, text=True, check=True, timeout=20)
    lines = [line.split() for line in told.stdout.splitlines()]
    return {
        "limit": limit,
        "device": device,
        "growth": growth,
        "collects": collects,
        "events": events,
        "told": [[int(n) for n in line[:3]] for line in lines],
        "failed": [i for i, line in enumerate(lines) if line[3:]],
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "tensorflow_bfc")
        build(program)
        cases = [record(program, *case) for case in CASES]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    print(f"[\n{lines}\n]")


main()
