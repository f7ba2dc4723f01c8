# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.15.0", "torchvision==0.29.2"]
# ///
"""What one training step of each model in definitions.py holds on a GPU, as PyTorch itself allocates it.

The step runs on fake tensors on the device "cuda" (fake_cuda.py) and is counted as MemTracker counts (tracker.py):

    loss = loss_fn(model(*inputs), target); loss.backward(); optimizer.step(); zero_grad(set_to_none=True)

Inputs and target are counted as `oth`; the output and the loss are not kept. Forward and backward run once without
optimizer state, which is constant there; `runs` takes the higher of that peak plus the state and the peak of a step
with state in place. Numbers are bytes with each storage rounded up to 512, except those of `saved_for_backward` (but
for its model inputs) and `unrounded`. Where gradients meet, fake tensors add out of place: one block more than a GPU.

    python pytorch.py > pytorch.json
"""

import json
import sys

import torch

from definitions import LANGUAGE_MODELS, MODELS, loss_and_target, make_input
from fake_cuda import fake_cuda
from tracker import CATEGORIES, Saved, Tracker, holders, rounded

OPTIMIZERS = {
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, foreach=True),
}
LOSSES = {
    "cross-entropy": "F.cross_entropy(model(*inputs), target)",
    "mse": "F.mse_loss(model(x), x)",
    "bce": "F.binary_cross_entropy_with_logits(model(*inputs), target)",
    "none": "model(*inputs).mean()",
}
TOKENS = "F.cross_entropy(model(input_ids).float().flatten(0, 1), target)"
DTYPES = {"fp32": torch.float32, "amp_bf16": torch.float32, "bf16": torch.bfloat16}


def build(make, dtype):
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            return make()
    finally:
        torch.set_default_dtype(torch.float32)


def measure(name, make, inputs, kind, batch, precision):
    dtype = DTYPES[precision]
    autocast = dict(device_type="cuda", dtype=torch.bfloat16, enabled=precision == "amp_bf16")
    with fake_cuda():
        model = build(make, dtype)
        tensors = [make_input(shape, of, batch, dtype, "cuda") for _, shape, of in inputs]
        with torch.no_grad(), Tracker() as inference:
            inference.phase = "forward"
            inference.mark_model(model, gradients=False)
            for tensor in tensors:
                inference.mark(tensor, "oth")
            with torch.autocast(**autocast):
                output = model.eval()(*tensors)
            shape = output.shape
            del output
        function, target = loss_and_target(name, kind, shape, tensors, dtype)

        tracker = Tracker()
        tracker.mark_model(model.train())
        for tensor in [*tensors, target]:
            if tensor is not None:
                tracker.mark(tensor, "oth")
        tracker.phase = "forward"
        saved = Saved(tracker, [*model.parameters(), *model.buffers()])
        with tracker:
            with saved, torch.autocast(**autocast):
                loss = function(model(*tensors), target)
            forward, sizes = tracker.snapshot(), saved.sizes()
            held = by_holder_set(sizes, holders(loss.grad_fn))
            loss.register_hook(lambda _: setattr(tracker, "phase", "backward"))
            loss.backward()
            del loss
            backward, peak = tracker.snapshot(), tracker.peak
            tracker.phase = "optimizer_step"
            runs = [run(name, optimizer, model, tracker, peak) for name, optimizer in OPTIMIZERS.items()]
    return {
        "batch": batch,
        "precision": precision,
        "input_shapes": {n: list(tensor.shape) for (n, _, _), tensor in zip(inputs, tensors)},
        "saved_for_backward": {
            "bytes": sum(size for size, _ in sizes.values()),
            "of_which_model_inputs": sum(rounded(size) for size, category in sizes.values() if category == "oth"),
            "by_holder_set": held,
        },
        "inference": {"peak_bytes": inference.peak["bytes"]},
        "live_after_forward": shown(forward),
        "live_after_backward": shown(backward),
        "forward_backward_peak": {
            "bytes": peak["bytes"],
            "unrounded": peak["unrounded"],
            "phase": peak["phase"],
            "op": peak["op"],
            "breakdown": shown(peak["breakdown"]),
        },
        "runs": runs,
    }


def by_holder_set(sizes, names):
    sets = {}
    for key, (size, _) in sizes.items():
        if size:
            entry = sets.setdefault("+".join(sorted(names.get(key, {"?"}))), {"bytes": 0, "storages": 0})
            entry["bytes"] += size
            entry["storages"] += 1
    return dict(sorted(sets.items()))


def run(name, make, model, tracker, peak):
    optimizer = make(model.parameters())
    optimizer.step()
    state = tracker.live["opt"]
    before = tracker.snapshot()
    tracker.reset_peak()
    optimizer.step()
    step = max(tracker.peak["bytes"], before["total"])
    forward_backward = peak["bytes"] + state
    if step > forward_backward:
        temporaries = step - before["total"]
        breakdown = shown({**before, "opt": state + temporaries, "total": step})
        breakdown |= {"opt_state": state, "opt_temporaries": temporaries}
    else:
        breakdown = shown({**peak["breakdown"], "opt": state, "total": forward_backward})
    return {
        "optimizer": name,
        "peak_bytes": max(step, forward_backward),
        "peak_phase": "optimizer_step" if step > forward_backward else peak["phase"],
        "breakdown_at_peak": breakdown,
        "optimizer_state_bytes": state,
        "optimizer_step_peak_bytes": step,
    }


def shown(snapshot):
    return {category: snapshot[category] for category in (*CATEGORIES, "total") if snapshot[category]}


def describe(name, make, inputs, kind, batches):
    with fake_cuda():
        model = build(make, torch.float32)
        parameters, buffers = list(model.parameters()), list(model.buffers())
        head = {
            "model": name,
            "settings": {"device": "cuda (fake)", "loss": TOKENS if name in LANGUAGE_MODELS else LOSSES[kind]},
            "params": {"numel": sum(p.numel() for p in parameters), "tensors": len(parameters)},
            "buffers": {"numel": sum(b.numel() for b in buffers), "tensors": len(buffers)},
        }
    head["cases"] = [measure(name, make, inputs, kind, b, p) for b in batches for p in DTYPES]
    return head


def main():
    wanted = sys.argv[1:]
    print('{"torch": %s, "models": [' % json.dumps(torch.__version__))
    models = [model for model in MODELS if not wanted or model[0] in wanted]
    for model in models:
        text = json.dumps(describe(*model), separators=(",", ":"))
        print(text + ("," if model is not models[-1] else ""), flush=True)
    print("]}")


if __name__ == "__main__":
    main()
