"""Records what TensorFlow's own BFC allocator does with sequences of requests, into tensorflow_bfc.json.

The allocator runs on the CPU too (TF_CPU_ALLOCATOR_USE_BFC), with memory growth, and tells how many bytes are in use: those of the
chunks that it gave out, so how it rounds, splits, finds and grows can be seen. Each tensor is one Empty operator. A case is
a list of events: a request in bytes, or -1 - i, the death of the tensor of event i; after each, the bytes in use and their peak. The
operator reads a shape, a tensor of 4 bytes that is there while it runs, which is written down as well.

Of equally large free chunks the allocator takes the one with the lowest address, and on a CPU later regions lie lower, not higher:
sizes that could tie between regions are left out.

    python tensorflow_bfc.py > tensorflow_bfc.json        # TensorFlow 2.21
"""

import json
import os
import random
import subprocess
import sys

KIB, MIB = 1 << 10, 1 << 20
# Name, limit in MiB, sizes of requests, share of requests among the events, how many events.
CASES = [
    ("small", 256, [1, 255, 256, 257, 1000, 4 * KIB, 30 * KIB], 0.6, 160),
    ("layers", 2048, [KIB, 64 * KIB, 500 * KIB, MIB, 3 * MIB, 7 * MIB, 11 * MIB], 0.55, 160),
    ("near the split", 2048, [256 * n for n in (*range(4000, 4200), *range(8100, 8300), *range(16300, 16400))], 0.5, 160),
    ("large", 2048, [40 * MIB, 90 * MIB, 129 * MIB, 200 * MIB, 256 * KIB], 0.5, 80),
    ("any", 1024, None, 0.55, 240),
]


def record(name, sizes, share, count):
    import tensorflow as tf

    draw = random.Random(name)
    events, told, live = [], [], {}
    info = lambda: tf.config.experimental.get_memory_info("CPU:0")

    def tell(event):
        events.append(event)
        now = info()
        told.append([now["current"], now["peak"]])

    with tf.device("CPU:0"):
        while len(events) < count:
            if not live or draw.random() < share and sum(size for size, _ in live.values()) < 600 * MIB:
                size = draw.choice(sizes) if sizes else int(2 ** draw.uniform(0, 24))
                shape = tf.constant([size], tf.int32)
                tell(4)
                of_shape = len(events) - 1
                at = len(events)
                tensor = tf.raw_ops.Empty(shape=shape, dtype=tf.int8)
                tell(size)
                live[at] = size, tensor
                del shape, tensor
                tell(-1 - of_shape)
            else:
                at = draw.choice(sorted(live))
                del live[at]
                tell(-1 - at)
    return {"name": name, "events": events, "told": told}


def main():
    if len(sys.argv) > 1:
        name, _, sizes, share, count = CASES[int(sys.argv[1])]
        print(json.dumps(record(name, sizes, share, count)))
        return
    cases = []
    for i, (_, limit, *_) in enumerate(CASES):
        environment = dict(
            os.environ,
            TF_CPU_ALLOCATOR_USE_BFC="true",
            TF_CPU_BFC_MEM_LIMIT_IN_MB=str(limit),
            TF_CPP_MIN_LOG_LEVEL="3",
            CUDA_VISIBLE_DEVICES="",
        )
        child = subprocess.run([sys.executable, __file__, str(i)], env=environment, capture_output=True, text=True, check=True)
        cases.append({"limit_mib": limit, **json.loads(child.stdout)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    print(f"[\n{lines}\n]")


main()
