"""Records what PyTorch's own caching allocator does with sequences of requests, into pytorch_caching.json.

The allocator is a library of its own in a CUDA build, libc10_cuda, and asks the CUDA runtime for memory. pytorch_caching.cpp is a
program that puts a runtime in front of it that only counts, so it runs where there is no card: segments, pages of growing
segments, a card's end and what happens there are the allocator's own work. A case is a list of events: a request in bytes, -1 - i,
the death of what event i got, or 0, `empty_cache`. After each it tells what is allocated and reserved, how often it gave
everything back to try again, and a fingerprint of where its blocks lie; `failed` are the events that ran out of memory. At the end it tells its segments by address: blocks in
order, live ones negative.

    python pytorch_caching.py > pytorch_caching.json        # torch 2.15.0+cu132, g++
"""

import json
import os
import subprocess
import tempfile

from request_sequence import sequence

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
MIXED = (1, 64 * MIB)
# Settings, the card in MiB, the fraction of it that is allowed (0: not set), the smallest and largest request; where more than the
# usual number of events is needed to come to what seldom happens, the seed and that number.
CASES = [
    ("", 1 << 20, 0, MIXED),
    ("", 400, 0, MIXED),
    ("", 300, 0.6, MIXED),
    ("max_split_size_mb:20", 1 << 20, 0, (MIB, 90 * MIB)),
    ("max_split_size_mb:40,max_non_split_rounding_mb:30", 500, 0, (MIB, 120 * MIB)),
    ("roundup_power2_divisions:8", 1 << 20, 0, MIXED),
    ("roundup_power2_divisions:[4:2,16:4,32:1,>:8]", 600, 0, MIXED),
    ("garbage_collection_threshold:0.5", 800, 0.75, MIXED),
    ("garbage_collection_threshold:0.3,max_split_size_mb:30", 500, 1, (MIB, 60 * MIB)),
    ("large_segment_size_mb:32", 500, 0, MIXED),
    ("large_segment_size_mb:31", 1 << 20, 0, (MIB, 12 * MIB)),
    ("large_segment_size_mb:48,max_split_size_mb:64", 1 << 20, 0, (MIB, 160 * MIB)),
    ("expandable_segments:True", 1 << 20, 0, MIXED),
    # A request that fails leaves address space behind, which comes before that of a later segment.
    ("expandable_segments:True", 300, 0, MIXED, 23, 400),
    # Whole pages are mapped beyond what is allowed.
    ("expandable_segments:True", 500, 0.6, MIXED, 0, 400),
    ("expandable_segments:True,max_split_size_mb:40", 400, 0, (MIB, 90 * MIB)),
    ("expandable_segments:True,large_segment_size_mb:32", 400, 0, MIXED),
]


def build(program):
    import torch

    packages = os.path.dirname(os.path.dirname(torch.__file__))
    own, runtime = f"{packages}/torch", f"{packages}/nvidia/cu13/lib"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-rdynamic", f"-I{own}/include", f"-I{packages}/triton/backends/nvidia/include"]
        + [f"{HERE}/pytorch_caching.cpp", "-o", program, f"-L{own}/lib", "-lc10_cuda", "-lc10", f"-L{runtime}", "-l:libcudart.so.13"]
        + [f"-Wl,-rpath,{own}/lib", f"-Wl,-rpath,{runtime}"],
        check=True,
    )


def record(program, settings, total, fraction, sizes, seed=0, count=160):
    allowed = min(total * (fraction or 1), 2048) * MIB
    events = sequence(f"{settings} {total} {fraction} {seed}", *sizes, allowed * 0.85, count, emptied=0.01)
    environment = dict(os.environ, PYTORCH_ALLOC_CONF=settings)
    arguments = [program, str(total), str(fraction)]
    told = subprocess.run(arguments, input="\n".join(map(str, events)), env=environment, capture_output=True, text=True, check=True)
    lines = [line.split() for line in told.stdout.splitlines()]
    after = lines[: len(events)]
    return {
        "settings": settings,
        "total_mib": total,
        "fraction": fraction,
        "events": events,
        "told": [[int(n) for n in line[:4]] for line in after],
        "failed": [i for i, line in enumerate(after) if line[4:]],
        "segments": [[int(n) for n in line[1:]] for line in lines[len(events) :]],
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "pytorch_caching")
        build(program)
        cases = [record(program, *case) for case in CASES]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    print(f"[\n{lines}\n]")


main()
