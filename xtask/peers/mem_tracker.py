"""Two training steps of torchvision's ResNet-50 on fake tensors, followed by PyTorch's own MemTracker.

    python mem_tracker.py BATCH RUNS

Prints version, answer (the peak in bytes) and the median of the seconds that a run takes, imports excluded, between tabs.
The fake tensors are on the CPU: a build for CUDA asks for a driver in backward.
"""

import statistics
import sys
import time

import torch
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker


def peak(batch):
    with FakeTensorMode(), torch.device("cpu"):
        model = torchvision.models.resnet50()
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        images, classes = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
        with tracker:
            for step in range(2):
                torch.nn.functional.cross_entropy(model(images), classes).backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    return max(sizes["Total"] for sizes in snapshot.values())


def main():
    batch, runs = int(sys.argv[1]), int(sys.argv[2])
    seconds = []
    while len(seconds) < runs and sum(seconds) < 30:
        begin = time.perf_counter()
        answer = peak(batch)
        seconds.append(time.perf_counter() - begin)
    print(f"torch {torch.__version__}", f"{answer} bytes", statistics.median(seconds), sep="\t")


main()
