# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.15.0", "timm==1.0.31", "bitsandbytes==0.50.2", "keras==3.15.1"]
# ///
"""What one optimizer step allocates on a GPU, as PyTorch itself decides it: state and temporaries, event by event.

Two steps run on fake tensors (FakeTensorMode) on the device "cuda": nothing is computed and no GPU is needed, but
every storage is made and freed as it would be. The second step is recorded, so state exists already. Prints JSON;
memfit's own rules (crates/engine/src/optimizers) are compared with it event by event.

    python optimizers.py > optimizers.json

A case: the parameters' dtypes, the optimizer, its implementation, whether weight decay is on; `state`: bytes of the
tensors on the device that stay, in order; `events`: bytes allocated (positive) and freed (negative) by the step, as
requested, before any allocator's rounding; `peak_bytes`: the highest sum of live temporaries, each rounded up to
512 bytes.
"""

import json
import os
import sys
import weakref

os.environ["KERAS_BACKEND"] = "torch"
os.environ["TIMM_FOREACH_CHUNK_SIZE"] = "0"  # chunks depend on the card's L2 cache; the rule is the whole list

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

SHAPES = [(48, 32), (48,), (16, 3, 3, 3), (700,), (), (20, 90), (90,), (90, 70)]
BLOCK = 512


class Recorder(TorchDispatchMode):
    """Writes down when storages on the device come and go."""

    def __init__(self, item):
        super().__init__()
        self.item = item  # what .item() answers: fake tensors have no values
        self.known = {}
        self.events = []
        self.recording = False

    def track(self, tensor):
        if tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        size = storage.nbytes()

        def gone(_, key=key, size=size):
            del self.known[key]
            if self.recording and size:
                self.events.append(-size)

        self.known[key] = weakref.ref(storage, gone)
        if self.recording and size:
            self.events.append(size)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return self.item
        if func.overloadpacket.__name__.startswith("_fused_") or func.namespace == "bitsandbytes":
            return None  # one kernel that updates in place
        if func is torch.ops.aten.index_put_.default and args[1][0].dtype is torch.bool:
            return args[0]  # a mask of the tensor's own shape and a scalar: masked_fill_, in place
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self.track(tensor)
        return out


class OfKeras:
    """Keras' rule on its PyTorch backend: PyTorch has none. Weight decay is Keras' own, in place before the step."""

    def __init__(self, parameters, foreach=False, weight_decay=0.0):
        import keras
        with keras.device("cuda"):
            self.rule = getattr(keras.optimizers, type(self).__name__)(weight_decay=weight_decay or None)
            self.parameters = parameters
            self.variables = [keras.Variable(p, dtype=str(p.dtype).split(".")[1]) for p in parameters]
            self.rule.build(self.variables)
        slots = zip(*(getattr(self.rule, name) for name in self.slots))
        self.state = {p: {slot.name: slot.value for slot in of} for p, of in zip(parameters, slots)}

    @torch.no_grad()
    def step(self):
        import keras
        with keras.device("cuda"):
            for p, variable in zip(self.parameters, self.variables):
                self.rule.update_step(p.grad, variable, 0.001)


class Ftrl(OfKeras):
    slots = ("_accumulators", "_linears")


class ScheduleFreeAdamW(OfKeras):
    slots = ("_momentums", "_velocities")


def optimizers():
    """(name, constructor, accepted implementations, what .item() answers)."""
    from bitsandbytes.optim import Adam8bit, AdamW8bit
    from timm.optim import Lamb, Lars, Lion
    o = torch.optim
    every, two = ("foreach", "fused", "loop"), ("foreach", "loop")
    yield "sgd", o.SGD, dict(lr=0.1), every, 100.0
    yield "momentum", o.SGD, dict(lr=0.1, momentum=0.9), every, 100.0
    yield "nesterov", o.SGD, dict(lr=0.1, momentum=0.9, nesterov=True), every, 100.0
    yield "adam", o.Adam, {}, every, 100.0
    yield "adamw", o.AdamW, {}, every, 100.0
    yield "amsgrad", o.Adam, dict(amsgrad=True), every, 100.0
    yield "rmsprop", o.RMSprop, {}, two, 100.0
    yield "rmsprop-centered", o.RMSprop, dict(centered=True), two, 100.0
    yield "rmsprop-momentum", o.RMSprop, dict(momentum=0.9), two, 100.0
    yield "adagrad", o.Adagrad, {}, every, 100.0
    yield "adadelta", o.Adadelta, {}, two, 100.0
    yield "adamax", o.Adamax, {}, two, 100.0
    yield "nadam", o.NAdam, {}, two, 100.0
    yield "radam", o.RAdam, {}, two, 100.0
    yield "rprop", o.Rprop, {}, two, 100.0
    yield "asgd", o.ASGD, {}, two, 1.0  # mu is 1 for the first million steps
    yield "lamb", Lamb, {}, two, 100.0
    yield "lars", Lars, dict(momentum=0.9), two, 100.0
    yield "lion", Lion, {}, two, 100.0
    yield "adafactor", o.Adafactor, {}, two, 100.0
    yield "adam8bit", Adam8bit, {}, ("fused",), 100.0
    yield "adamw8bit", AdamW8bit, {}, ("fused",), 100.0
    yield "ftrl", Ftrl, {}, ("loop",), 100.0
    yield "schedule-free-adamw", ScheduleFreeAdamW, {}, ("loop",), 100.0
    yield "muon", None, {}, two, 100.0


def make(name, cls, options, implementation, decay, parameters):
    flags = {}
    if not name.endswith("8bit"):
        flags["foreach"] = implementation == "foreach"
        if implementation == "fused":
            flags["fused"] = True
    if name != "rprop":
        flags["weight_decay"] = 0.01 if decay else 0.0
    if name != "muon":
        return [cls(parameters, **options, **flags)]
    # Muon takes matrices; the rest goes to AdamW, as its documentation says.
    muon = torch.optim.Muon([p for p in parameters if p.ndim == 2], weight_decay=flags["weight_decay"])
    return [muon, torch.optim.AdamW([p for p in parameters if p.ndim != 2], **flags)]


def state_bytes(optimizers, parameters):
    """By parameter, in the order in which they were given; what parameters share comes once, with the first."""
    found, seen = [], set()
    for p in parameters:
        for optimizer in optimizers:
            for tensor in optimizer.state.get(p, {}).values():
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                    storage = tensor.untyped_storage()
                    if storage._cdata not in seen:
                        seen.add(storage._cdata)
                        found.append(storage.nbytes())
    return found


def peak(events):
    live = highest = 0
    for size in events:
        rounded = -(-abs(size) // BLOCK) * BLOCK
        live += rounded if size > 0 else -rounded
        highest = max(highest, live)
    return highest


def measure(name, cls, options, implementation, decay, dtypes, item):
    recorder = Recorder(item)
    with FakeTensorMode(), recorder:
        parameters = [
            torch.nn.Parameter(torch.empty(shape, device="cuda", dtype=dtypes[i % len(dtypes)]))
            for i, shape in enumerate(SHAPES)
        ]
        steps = make(name, cls, options, implementation, decay, parameters)
        for p in parameters:
            p.grad = torch.empty_like(p)
        for optimizer in steps:
            optimizer.step()
        recorder.recording = True
        for optimizer in steps:
            optimizer.step()
        recorder.recording = False
        assert sum(recorder.events) == 0, (name, recorder.events)
        return state_bytes(steps, parameters), list(recorder.events)


def main():
    cases = []
    torch.cuda.synchronize = lambda *_: None  # bitsandbytes waits for the device after each parameter
    kinds = {"fp32": [torch.float32], "bf16": [torch.bfloat16], "mixed": [torch.float32, torch.bfloat16]}
    for name, cls, options, implementations, item in optimizers():
        for implementation in implementations:
            for decay in (False, True):
                for kind, dtypes in kinds.items():
                    try:
                        state, events = measure(name, cls, options, implementation, decay, dtypes, item)
                    except Exception as e:
                        print(name, implementation, decay, kind, repr(e)[:300], file=sys.stderr)
                        continue
                    cases.append(
                        dict(optimizer=name, implementation=implementation, weight_decay=decay, dtypes=kind,
                             state=state, state_bytes=sum(state), peak_bytes=peak(events), events=events)
                    )
    print('{"torch": %s, "shapes": %s, "cases": [' % (json.dumps(torch.__version__), json.dumps(SHAPES)))
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
    print("]}")


if __name__ == "__main__":
    main()
