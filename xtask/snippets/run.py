"""Runs the lines of code that memfit's advice gives, on a CPU and a small model.

run.py versions  prints what is installed: {"torch": [2, 15], "tensorflow": [2, 21], "keras on torch": [2, 15]}
run.py NAME      of one of these reads [[name, code], ...] from standard input and runs each in a namespace of its own

Out of memory and a second card are played: what a snippet does then is checked too.
"""

import importlib.metadata
import importlib.util
import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
BATCH, MOST = 8, 3  # Samples in a batch; more than MOST at once are "out of memory" where that is played.


def versions():
    found = {}
    for name, packages in {"torch": ["torch"], "tensorflow": ["tensorflow", "tensorflow-cpu"]}.items():
        for package in packages:
            try:
                found[name] = [int(part) for part in importlib.metadata.version(package).split(".")[:2]]
            except importlib.metadata.PackageNotFoundError:
                pass
    if "torch" in found and importlib.util.find_spec("keras"):
        found["keras on torch"] = found["torch"]
    print(json.dumps(found))


TOOLS = {"close-others": "nvidia-smi", "close-others-of-amd": "rocm-smi", "close-others-of-apple": "top"}


def played_tool(name, code, names):
    """As on a host with the vendor's tool."""
    import subprocess

    was, said = subprocess.run, []
    subprocess.run = lambda words, **_: said.append(words[0]) or subprocess.CompletedProcess(words, 0, "", "")
    try:
        exec(compile(code, name, "exec"), names)
    finally:
        subprocess.run = was
    assert said == [TOOLS[name]], said


def alone_in_a_group(run):
    """As the only process of several."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        run()
    finally:
        dist.destroy_process_group()


class Torch:
    def namespace(self):
        import torch

        torch.manual_seed(0)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                block = lambda i, o: torch.nn.Sequential(torch.nn.Conv2d(i, o, 3, padding=1), torch.nn.ReLU())
                self.blocks = torch.nn.Sequential(block(3, 8), block(8, 8))
                self.head = torch.nn.Linear(8, 4)
                self.head_beside = torch.nn.Linear(8, 4)  # Its name begins as the head's does.
                self.most = None

            def forward(self, x):
                if self.most and len(x) > self.most:
                    raise torch.OutOfMemoryError("CUDA out of memory. (played)")
                return self.head(self.blocks(x).mean((2, 3)))

        model, x, y = Model(), torch.randn(BATCH, 3, 32, 32), torch.randint(4, (BATCH,))
        dataset = torch.utils.data.TensorDataset(torch.randn(2 * BATCH, 3, 32, 32), torch.randint(4, (2 * BATCH,)))
        return {
            "torch": torch,
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "loss_fn": torch.nn.CrossEntropyLoss(),
            "x": x,
            "y": y,
            "dataset": dataset,
            "val_dataset": dataset,
            "loader": torch.utils.data.DataLoader(dataset, batch_size=BATCH),
        }

    def weights(self, names):
        return [p.detach().clone() for p in names["model"].parameters()]

    def check(self, name, code):
        import torch

        names = self.namespace()
        before = self.weights(names)
        if name in TOOLS:
            return played_tool(name, code, names)
        if name in ("pipeline", "zero-1", "zero-2", "zero-3"):
            return alone_in_a_group(lambda: self.of_several(name, code, names))
        if name == "smaller-volumes":
            names["x"] = torch.randn(2, 3, 5, 32, 32)
        exec(compile(code, name, "exec"), names)
        if name in ("accumulate", "accumulate-parts", "mixed-precision", "prefetch", "retry"):
            assert any((a != b).any() for a, b in zip(before, self.weights(names))), "nothing was learnt"
        if name == "retry":
            tight = self.namespace()
            tight["model"].most = MOST
            exec(compile(code, name, "exec"), tight)
            assert tight["micro"] <= MOST, tight["micro"]
            same = zip(self.weights(names), self.weights(tight))
            near = 1e-2 if "autocast" in code else 1e-5
            assert all(torch.allclose(a, b, atol=near) for a, b in same), "another step than with memory enough"
        if name == "checkpoint":
            names["loss_fn"](names["model"](names["x"]), names["y"]).backward()
            self.blocks_with_named_inputs(code, names)
        if name == "half-precision":
            assert names["model"](names["x"]).dtype == torch.bfloat16
        if name == "smaller-volumes":
            assert names["x"].shape == (2, 3, 5, 24, 24)
        if name == "channels-last":
            assert names["x"].is_contiguous(memory_format=torch.channels_last)
        if name == "freeze":
            trained = [n for n, p in names["model"].named_parameters() if p.requires_grad]
            assert trained == ["head.weight", "head.bias"], trained
        if name == "fewer-models":
            assert "model" not in names and "optimizer" not in names

    def blocks_with_named_inputs(self, code, names):
        """Blocks may be called with keywords, may have attributes that the model reads, and keep their parameters' names."""
        import torch

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.kind, self.fc = "full", torch.nn.Linear(8, 8)

            def forward(self, x, mask=None):
                return torch.relu(self.fc(x)) * mask

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.ModuleList([Block(), Block()])

            def forward(self, x):
                for block in self.blocks:
                    x = block(x, mask={"full": torch.ones(8)}[block.kind])
                return x

        names = {**names, "model": Model()}
        named = [n for n, _ in names["model"].named_parameters()]
        exec(compile(code, "checkpoint", "exec"), names)
        names["model"](torch.randn(2, 8)).sum().backward()
        assert [n for n, p in names["model"].named_parameters() if p.grad is not None] == named

    def of_several(self, name, code, names):
        import torch

        before = self.weights(names)
        if name == "pipeline":
            from torch.distributed.pipelining import PipelineStage

            names["stage"] = PipelineStage(names["model"], 0, 1, torch.device("cpu"))
        exec(compile(code, name, "exec"), names)
        if name != "pipeline":
            names["loss_fn"](names["model"](names["x"]), names["y"]).backward()
            names["optimizer"].step()
        after = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in self.weights(names)]
        assert any((a != b).any() for a, b in zip(before, after)), "nothing was learnt"


class Tensorflow:
    def framework(self):
        import tensorflow as tf

        return {"tf": tf}

    def out_of_memory(self):
        import tensorflow as tf

        return tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor (played)")

    def namespace(self):
        import keras
        import numpy

        keras.utils.set_random_seed(0)
        keras.mixed_precision.set_global_policy("float32")
        layers = [keras.layers.Dense(8, activation="relu", name="body"), keras.layers.Dense(1, name="head")]
        model = keras.Sequential([keras.Input((16,))] + layers)
        model.compile(optimizer="adam", loss="mse")
        data = numpy.random.default_rng(0)
        x, y = data.normal(size=(2 * BATCH, 16)).astype("float32"), data.normal(size=(2 * BATCH, 1)).astype("float32")
        names = {"keras": keras, "model": model, "loss": "mse", "epochs": 2, "x": x, "y": y, "val_x": x, "val_y": y}
        return {**self.framework(), **names, "tokens": [[1] * 20, [2, 3]]}

    def check(self, name, code):
        names = self.namespace()
        if name in TOOLS:
            return played_tool(name, code, names)
        if name in ("memory-growth", "logical-limit"):
            return self.on_a_card(name, code, names)
        if name == "retry":
            fit = type(names["model"]).fit

            def tight(model, *args, batch_size, **kwargs):
                if batch_size > MOST:
                    raise self.out_of_memory()
                return fit(model, *args, batch_size=batch_size, verbose=0, **kwargs)

            names["model"].fit = tight.__get__(names["model"])
        before = names["model"].get_weights()
        exec(compile(code, name, "exec"), names)
        if name == "retry":
            assert names["micro"] <= MOST and names["micro"] * names["pieces"] % BATCH == 0, names["micro"]
        if name in ("accumulate", "prefetch", "retry", "validation-batch"):
            after = names["model"].get_weights()
            assert any((a != b).any() for a, b in zip(before, after)), "nothing was learnt"
        if name == "freeze":
            trained = ["/".join(v.path.split("/")[-2:]) for v in names["model"].trainable_variables]
            assert trained == ["head/kernel", "head/bias"], trained
        if name == "fewer-models":
            assert "model" not in names
        if name == "smaller-volumes":
            volume = names["x"].reshape(1, 2, 8, 16, 1)
            assert tuple(names["resize"](volume).shape) == (1, 2, 24, 24, 1)

    def on_a_card(self, name, code, names):
        """As on a host with a GPU: what is set for it is written down."""
        config, was, said = names["tf"].config, {}, []
        targets = [
            (config, "list_physical_devices", lambda kind=None: ["GPU:0"]),
            (config.experimental, "set_memory_growth", lambda *args: said.append(args)),
            (config, "set_logical_device_configuration", lambda *args: said.append(args)),
        ]
        for owner, attribute, played in targets:
            was[attribute] = (owner, getattr(owner, attribute))
            setattr(owner, attribute, played)
        try:
            exec(compile(code, name, "exec"), names)
        finally:
            for attribute, (owner, function) in was.items():
                setattr(owner, attribute, function)
        assert len(said) == 1 and said[0][0] == "GPU:0", said


class KerasOnTorch(Tensorflow):
    def __init__(self):
        os.environ["KERAS_BACKEND"] = "torch"

    def framework(self):
        import torch

        return {"torch": torch}

    def out_of_memory(self):
        import torch

        return torch.OutOfMemoryError("CUDA out of memory. (played)")


def main():
    if sys.argv[1] == "versions":
        return versions()
    runner = {"torch": Torch, "tensorflow": Tensorflow, "keras on torch": KerasOnTorch}[sys.argv[1]]()
    failed = 0
    for name, code in json.load(sys.stdin):
        environment = dict(os.environ)
        try:
            runner.check(name, code)
            print(f"ok      {sys.argv[1]} {name}")
        except Exception:
            failed += 1
            print(f"FAILED  {sys.argv[1]} {name}\n{code}\n{traceback.format_exc()}")
        os.environ.clear()
        os.environ.update(environment)
    sys.exit(1 if failed else 0)


main()
