"""Training steps of one model in PyTorch, and what PyTorch says of its memory. Written by memfit; prints lines of JSON.

On CUDA the figures are torch.cuda's own. On the processor PyTorch keeps no count, so tensors are counted where its dispatcher makes
them, each storage rounded up to 512 bytes as on CUDA.
"""

import contextlib
import importlib
import json
import math
import os
import sys
import weakref

# --- the allocator ---
# Releases before 2.9 read the second name. What the environment says is not the plan.
for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
    os.environ.pop(variable, None)
if ALLOC_CONF:
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ALLOC_CONF

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(json.dumps({"missing": "torch", "message": str(error)}), flush=True)
    sys.exit(0)

BLOCK = 512


def rounded(size):
    return -(-size // BLOCK) * BLOCK


class Step(nn.Module):
    """What the written module stands on: its tensors are random, its layers are told as they begin."""

    def parameter(self, key, name, shape, trains=True, table=False):
        tensor = torch.empty(shape, dtype=DTYPE, device=DEVICE)
        fan = max(math.prod(shape[1:]), shape[0] if shape else 1, 1)
        low, high = (0.5, 1.5) if len(shape) < 2 else (-fan**-0.5, fan**-0.5)
        parameter = nn.Parameter(tensor.uniform_(low, high), requires_grad=trains)
        parameter.is_table = table
        self.register_parameter(key, parameter)

    def buffer(self, key, shape, dtype):
        tensor = torch.rand(shape, device=DEVICE) + 0.5
        self.register_buffer(key, tensor.to(dtype))

    def constant(self, key, elements, shape, dtype):
        self.register_buffer(key, given(elements, shape, dtype))

    def at(self, layer):
        METER.layer = layer


def given(elements, shape, dtype):
    return torch.tensor(elements, dtype=dtype, device=DEVICE).reshape(shape)


def random(shape, dtype, below):
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype, device=DEVICE)
    return torch.randint(0, 2 if dtype == torch.bool else below, shape, device=DEVICE).to(dtype)


def own(module, trains):
    """A module of torch's own, as the rest of the model is."""
    return module.to(device=DEVICE, dtype=DTYPE).requires_grad_(trains)


def recurrent(module, x, state, second=None, directions=1, outputs=1):
    """ONNX gives directions an axis of their own and the states of the last layer alone."""
    y, state = module(x, state if second is None else (state, second))
    states = state if isinstance(state, tuple) else (state,)
    y = y.reshape(*y.shape[:2], directions, -1)
    y = y if module.batch_first else y.transpose(1, 2)
    states = [s[-directions:] for s in states]
    if module.batch_first:
        states = [s.transpose(0, 1) for s in states]
    return (y, *states)[:outputs]


def is_matrix(parameter):
    """What Muon takes: torch's documentation hands embeddings to AdamW, which is everything else's."""
    return parameter.dim() == 2 and not getattr(parameter, "is_table", False)


def rms_norm(x, weight):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return y.to(x.dtype) if weight is None else (y * weight.float()).to(x.dtype)


def needed(package):
    """A package beside torch that an optimizer comes from."""
    try:
        module = importlib.import_module(package)
        importlib.import_module(package + ".optim")
        return module
    except ImportError as error:
        say(missing=package, message=str(error))
        sys.exit(0)


class Several:
    """Optimizers that share the parameters, as one."""

    def __init__(self, *parts):
        self.parts = [make(parameters, **options) for make, parameters, options in parts if parameters]
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @property
    def state(self):
        return {p: state for part in self.parts for p, state in part.state.items()}

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none)


class Masters:
    """An optimizer that sees float32 copies of half-precision parameters."""

    def __init__(self, parameters):
        self.halves = [p for p in parameters if p.dtype in (torch.float16, torch.bfloat16)]
        self.masters = [p.detach().float() for p in self.halves]
        for half, master in zip(self.halves, self.masters):
            master.is_table = getattr(half, "is_table", False)
        seen = dict(zip(self.halves, self.masters))
        self.inner = make_optimizer([seen.get(p, p) for p in parameters])
        self.param_groups = self.inner.param_groups

    @property
    def state(self):
        masters = {p: {"master": p} for p in self.masters}
        return masters | {p: masters.get(p, {}) | state for p, state in self.inner.state.items()}

    def step(self):
        for half, master in zip(self.halves, self.masters):
            master.grad = None if half.grad is None else half.grad.float()
        self.inner.step()
        with torch.no_grad():
            for half, master in zip(self.halves, self.masters):
                master.grad = None
                half.copy_(master)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)
        for half in self.halves:
            if set_to_none:
                half.grad = None
            elif half.grad is not None:
                half.grad.zero_()


class Counter(TorchDispatchMode):
    """Every storage from the operation that returns it to its last reference."""

    def __init__(self):
        super().__init__()
        self.storages = {}
        self.total = self.highest = 0

    def mark(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, rounded(storage.nbytes())
        if key in self.storages:
            return
        self.storages[key] = weakref.ref(storage, lambda _: self.gone(key, size))
        self.total += size
        self.highest = max(self.highest, self.total)
        limit = CONFIG["limit_bytes"]
        if limit and self.total > limit:
            raise MemoryError(f"{self.total} bytes of tensors, more than the {limit} that were allowed")

    def gone(self, key, size):
        self.storages.pop(key, None)
        self.total -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.mark(tensor)
        return out


class Meter:
    """Reads the device: torch.cuda, or the counter where there is none."""

    def __init__(self):
        self.layer, self.phase = "", "setup"
        self.counter = None if DEVICE == "cuda" else Counter()
        self.reserved = self.on_device = 0

    def now(self):
        return torch.cuda.memory_allocated() if self.counter is None else self.counter.total

    def reset(self):
        if self.counter is None:
            self.keep()
            torch.cuda.reset_peak_memory_stats()
        else:
            self.counter.highest = self.counter.total

    def highest(self):
        return torch.cuda.max_memory_allocated() if self.counter is None else self.counter.highest

    def keep(self):
        """The highest reserved so far, and what the driver shows."""
        if self.counter is None:
            self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
            free, total = torch.cuda.mem_get_info()
            self.on_device = max(self.on_device, total - free)

    def end(self):
        if self.counter is None:
            torch.cuda.synchronize()


class Saved:
    """Unique storages that autograd holds, parameters and buffers left out, by the layer that is the first to keep them."""

    def __init__(self, model):
        tensors = [*model.parameters(), *model.buffers()]
        self.ignored = {t.untyped_storage()._cdata for t in tensors}
        self.held = {}

    def pack(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.ignored:
            self.held.setdefault(storage._cdata, (weakref.ref(storage), storage.nbytes(), METER.layer))
        return tensor

    def by_layer(self):
        layers = {}
        for reference, size, layer in self.held.values():
            if reference() is not None:
                layers[layer] = layers.get(layer, 0) + size
        return layers


def autocast():
    name = CONFIG["autocast"]
    if name is None:
        return contextlib.nullcontext()
    return torch.autocast(DEVICE, dtype=getattr(torch, name))


def size_of(tensors):
    unique = {t.untyped_storage()._cdata: rounded(t.untyped_storage().nbytes()) for t in tensors}
    return sum(unique.values())


def say(**line):
    print(json.dumps(line), flush=True)


def train(report):
    model = Model().train(CONFIG["train"])
    inputs = make_inputs()
    if CONFIG["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    target = make_target(inputs)
    counter = METER.counter
    if counter is not None:
        for tensor in [*model.parameters(), *model.buffers(), *inputs, target]:
            if tensor is not None:
                counter.mark(tensor)
    parameters = [p for p in model.parameters() if p.requires_grad]
    report["parameters"] = sum(p.numel() for p in model.parameters())
    bytes_of = report["bytes"]
    bytes_of["parameters"] = size_of(model.parameters())
    bytes_of["buffers"] = size_of(model.buffers())
    bytes_of["inputs"] = size_of([t for t in [*inputs, target] if t is not None])
    optimizer = averaged = None
    if CONFIG["train"] and parameters:
        optimizer = Masters(parameters) if CONFIG["master_weights"] else make_optimizer(parameters)
        averaged = [p.detach().clone() for p in parameters] if CONFIG["ema"] else None
    if counter is not None and optimizer is not None:
        for tensor in [*(averaged or []), *getattr(optimizer, "masters", [])]:
            counter.mark(tensor)
    scaler = torch.amp.GradScaler(DEVICE) if CONFIG["scaler"] and DEVICE == "cuda" else None
    report["context"]["model"] = report_device()
    METER.end()
    with counter or contextlib.nullcontext():
        for step in range(CONFIG["steps"]):
            one_step(report, model, parameters, inputs, target, optimizer, averaged, scaler, first=step == 0)
            if step == 0:
                report["context"]["first_step"] = report_device()
            report["steps"] = step + 1
            report["after_step_bytes"].append(METER.now())
            say(progress={"step": step + 1, "peak_bytes": max(bytes_of[p] for p in PHASES if p in bytes_of)})


PHASES = ("before", "forward", "backward", "optimizer_step")


def one_step(report, model, parameters, inputs, target, optimizer, averaged, scaler, first):
    bytes_of = report["bytes"]
    saved = Saved(model)
    bytes_of["before"] = METER.now()

    def phase(name):
        METER.end()
        if METER.phase in PHASES:
            bytes_of[METER.phase] = max(high.get(METER.phase, 0), METER.highest())
            high[METER.phase] = bytes_of[METER.phase]
        METER.reset()
        METER.phase = name

    high = {}
    for part in range(CONFIG["accumulate"]):
        phase("forward")
        hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda t: t)
        with autocast(), (hooks if first else contextlib.nullcontext()):
            if optimizer is None:
                with torch.no_grad():
                    model(*inputs)
                continue
            loss = compute_loss(model(*inputs), target)
            if CONFIG["autocast_backward"]:
                phase("backward")
                (loss if scaler is None else scaler.scale(loss)).backward()
        if first and part == 0:
            report["saved"] = saved.by_layer()
            bytes_of["saved"] = sum(report["saved"].values())
        METER.layer = ""
        if not CONFIG["autocast_backward"]:
            phase("backward")
            (loss if scaler is None else scaler.scale(loss)).backward()
        loss = loss.detach()
        # Read where the step ends: a copy to the host would wait for the device in between.
        report["losses"].append(loss)
        del loss
    if optimizer is not None:
        phase("optimizer_step")
        bytes_of["gradients"] = size_of([p.grad for p in parameters if p.grad is not None])
        if CONFIG["clip_norm"]:
            if scaler is not None:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if averaged is not None:
            with torch.no_grad():
                torch._foreach_lerp_(averaged, parameters, 1e-3)
        # Counters of steps are on the host unless they are captured.
        state = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t) and t.dim() > 0]
        state += averaged or []
        bytes_of["optimizer"] = size_of(t for t in state if t.device.type == DEVICE)
        del state
        optimizer.zero_grad(set_to_none=not CONFIG["keep_gradients"])
    report["losses"] = [float(x) for x in report["losses"]]
    phase("between")
    METER.keep()


def report_device():
    """What the driver shows of the whole card, other processes included."""
    if DEVICE != "cuda":
        return None
    free, total = torch.cuda.mem_get_info()
    return {"used_bytes": total - free, "reserved_bytes": torch.cuda.memory_reserved()}


def main():
    report = {
        "framework": f"torch {torch.__version__}",
        "backend": DEVICE,
        "device": "the processor",
        "driver": None,
        "total_bytes": None,
        "counted": METER.counter is not None,
        "steps": 0,
        "losses": [],
        "parameters": 0,
        "bytes": {},
        "saved": {},
        "context": {},
        "after_step_bytes": [],
        "ended": None,
    }
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = CONFIG["cudnn_benchmark"]
    try:
        if DEVICE == "cuda":
            properties = torch.cuda.get_device_properties(0)
            report["device"], report["total_bytes"] = properties.name, properties.total_memory
            report["driver"] = f"CUDA {torch.version.cuda}"
            report["context"]["start"] = report_device()
            torch.zeros(1, device=DEVICE).add_(1)
            torch.cuda.synchronize()
            report["context"]["first_kernel"] = report_device()
            fraction = CONFIG["memory_fraction"] or 1.0
            if CONFIG["limit_bytes"]:
                fraction = min(fraction, CONFIG["limit_bytes"] / properties.total_memory)
            if fraction < 1.0:
                torch.cuda.set_per_process_memory_fraction(fraction)
        train(report)
    except KeyboardInterrupt:
        report["ended"] = {"kind": "interrupted", "message": "ended by the user"}
    except Exception as error:
        out = isinstance(error, (MemoryError, getattr(torch, "OutOfMemoryError", MemoryError)))
        out = out or "out of memory" in str(error).lower() or "can't allocate memory" in str(error)
        kind = "out-of-memory" if out else "failed"
        report["ended"] = {"kind": kind, "message": f"{type(error).__name__}: {error}"}
    if report["ended"]:
        report["ended"] |= {"layer": METER.layer, "function": METER.phase}
    losses = [float(x) for x in report["losses"]]
    report["losses"] = [x if math.isfinite(x) else None for x in losses]
    report["bytes"]["reserved"] = METER.reserved
    report["bytes"]["device"] = METER.on_device
    say(report=report)


# --- the model ---
DEVICE = CONFIG["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE == "cuda" and not torch.cuda.is_available():
    why = "this PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch finds no CUDA device"
    say(missing="cuda", message=why)
    sys.exit(0)
DTYPE = getattr(torch, CONFIG["dtype"])
METER = Meter()
main()
