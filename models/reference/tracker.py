"""Counts the device memory of a step as torch.distributed._tools.mem_tracker.MemTracker does: every storage, rounded
up to the caching allocator's 512 bytes, from the operation that returns it to the last reference."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

BLOCK = 512
CATEGORIES = ("param", "buffer", "grad", "act", "temp", "opt", "oth")
# What an operation makes belongs to the phase it runs in.
MADE_IN = {"forward": "act", "backward": "temp", "optimizer_step": "opt"}


def rounded(size):
    return -(-size // BLOCK) * BLOCK


class Tracker(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.storages = {}  # address -> [bytes, category, reference]
        self.live = dict.fromkeys(CATEGORIES, 0)
        self.total = self.unrounded = 0
        self.phase = None
        self.reset_peak()

    def reset_peak(self):
        self.peak = {"bytes": 0}

    def mark(self, tensor, category):
        """The tensor's storage is known from here on, and belongs to `category`."""
        if tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        known = self.storages.get(storage._cdata)
        if known:
            self.live[known[1]] -= rounded(known[0])
            self.live[category] += rounded(known[0])
            known[1] = category
            return
        key, size = storage._cdata, storage.nbytes()
        self.storages[key] = [size, category, weakref.ref(storage, lambda _: self.gone(key))]
        self.live[category] += rounded(size)
        self.total += rounded(size)
        self.unrounded += size

    def gone(self, key):
        size, category, _ = self.storages.pop(key)
        self.live[category] -= rounded(size)
        self.total -= rounded(size)
        self.unrounded -= size

    def mark_model(self, model, gradients=True):
        for buffer in model.buffers():
            self.mark(buffer, "buffer")
        for parameter in model.parameters():
            self.mark(parameter, "param")
            if not gradients:
                continue
            parameter.register_hook(lambda gradient: self.mark(gradient, "grad"))
            parameter.register_post_accumulate_grad_hook(lambda p: self.mark(p.grad, "grad"))

    def snapshot(self):
        return {**self.live, "total": self.total}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name.startswith("_fused_") and name.endswith("_"):
            return None  # an optimizer's one kernel, which updates in place
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                if tensor.untyped_storage()._cdata not in self.storages:
                    self.mark(tensor, MADE_IN[self.phase])
        if self.total > self.peak["bytes"]:
            self.peak = {
                "bytes": self.total,
                "unrounded": self.unrounded,
                "op": str(func),
                "phase": self.phase,
                "breakdown": self.snapshot(),
            }
        return out


class Saved:
    """What autograd keeps, from the hooks on saved tensors: unique storages that are alive when asked."""

    def __init__(self, tracker, ignore):
        self.tracker = tracker
        self.ignore = {t.untyped_storage()._cdata for t in ignore}
        self.storages = {}

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda t: t)
        self.hooks.__enter__()
        return self

    def __exit__(self, *exception):
        self.hooks.__exit__(*exception)

    def pack(self, tensor):
        storage = tensor.untyped_storage()
        if tensor.device.type == "cuda" and storage._cdata not in self.ignore:
            self.storages[storage._cdata] = weakref.ref(storage)
        return tensor

    def sizes(self):
        """Address to (bytes, category) of the storages that are alive."""
        alive = [key for key, reference in self.storages.items() if reference() is not None]
        return {key: tuple(self.tracker.storages[key][:2]) for key in alive}


def holders(root):
    """Address of a storage to the names of the autograd nodes that hold it, from their `_saved_…` attributes."""
    found, seen, pending = {}, set(), [root]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending.extend(next_node for next_node, _ in node.next_functions)
        for name in dir(node):
            if not name.startswith("_saved_"):
                continue
            for tensor in tree_iter(getattr(node, name)):
                if isinstance(tensor, torch.Tensor):
                    found.setdefault(tensor.untyped_storage()._cdata, set()).add(node.name())
    return found
