"""Records what one training step of small Keras models takes under XLA, into keras_xla_steps.json.

Keras' own `train_step` is traced by TensorFlow, its HLO compiled ahead of time for an A100: no GPU is needed. The bytes are those that
XLA's buffer assignment gives the step: arguments, results that are not put in an argument's place, and temporaries.
Products are cuBLAS' (`xla_gpu_enable_triton_gemm=false`), since what a GPU would choose by measuring cannot be told without one.

    pip install tensorflow-cpu==2.21.0 keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 jax-cuda13-plugin==0.10.2 jax-cuda13-pjrt==0.10.2 nvidia-cuda-nvcc nvidia-nvvm
    python keras_xla_steps.py > keras_xla_steps.json        # names of models as arguments: only those
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 167936
  threads_per_core_limit: 2048 core_count: 108 fpus_per_core: 64 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 2039040000000 l2_cache_size: 41943040 clock_rate_ghz: 1.41 device_memory_size: 85100068864
  shared_memory_per_block_optin: 166912 cuda_compute_capability { major: 8 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } runtime_version { major: 13 }
device_description_str: "NVIDIA A100-SXM4-80GB"
"""


def compile_only(folder):
    """Compiles folder/step.hlo for the target; XLA writes its report there before it makes code."""
    import nvidia

    cuda = next(str(Path(p, "cu13")) for p in nvidia.__path__ if Path(p, "cu13").exists())
    os.environ["XLA_FLAGS"] = (
        f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false "
        f"--xla_gpu_cuda_data_dir={cuda}"
    )
    os.environ["PATH"] = f"{cuda}/bin:" + os.environ["PATH"]
    import jax_plugins.xla_cuda13 as plugin
    import numpy as np
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jaxlib.mlir import ir

    library = str(Path(plugin.__file__).parent / "xla_cuda_plugin.so")
    xla_bridge.register_plugin("cuda", priority=500, library_path=library, options=None)
    topology = xla_bridge.make_pjrt_topology("cuda", "a", target_config=TARGET, topology="1x1x1")
    devices = topology._make_compile_only_devices()
    # Which argument each result takes the place of: the conversion to StableHLO leaves it out.
    head = Path(folder, "head.txt").read_text()
    places = {int(of): int(result) for result, of in re.findall(r"\{(\d+)\}: \((\d+), \{\}", head)}
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(Path(folder, "step.hlo").read_bytes()))
        copies = []

        def visit(op):
            if op.name == "mhlo.copy":
                op.results[0].replace_all_uses_with(op.operands[0])
                copies.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for copy in copies:
            copy.erase()
        main = next(op for op in module.body.operations if "main" in str(op.attributes["sym_name"]))
        number = lambda n: ir.IntegerAttr.get(ir.IntegerType.get_signless(32), n)
        attributes = [{"tf.aliasing_output": number(places[i])} if i in places else {} for i in range(len(main.type.inputs))]
        main.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in attributes])
        if "mhlo.input_output_alias" in list(module.operation.attributes):
            del module.operation.attributes["mhlo.input_output_alias"]
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = options.num_partitions = build.num_replicas = build.num_partitions = 1
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
    devices[0].client.compile(module, _jax.DeviceList(tuple(devices[:1])), options)


def total(folder):
    """The bytes of XLA's report, as soon as it is there."""
    run = subprocess.Popen([sys.executable, __file__, "--compile", folder], stderr=subprocess.PIPE, text=True)
    while True:
        done = run.poll() is not None
        for report in Path(folder).glob("*memory-usage-report.txt"):
            if found := re.search(r"Total bytes: (\d+)", report.read_text()):
                run.kill()
                return int(found[1])
        if done:
            raise SystemExit(run.stderr.read()[-2000:])
        time.sleep(0.5)


def step(make, batch, optimizer, loss, policy):
    import keras
    import numpy as np
    import tensorflow as tf

    keras.backend.clear_session()
    keras.config.set_dtype_policy(policy)
    model = make()
    config = json.loads(model.to_json())
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=model.layers[-1].get_config().get("activation") != "softmax")
    model.compile(optimizer, classes if loss == "cross-entropy" else "mse", jit_compile=True)
    inputs = [np.zeros((batch, *i.shape[1:]), "int32" if "int" in i.dtype else "float32") for i in model.inputs]
    inputs = inputs if len(inputs) > 1 else inputs[0]
    shape = model.output_shape[1:]
    target = np.zeros((batch, *shape[:-1]), "int32") if loss == "cross-entropy" else np.zeros((batch, *shape), "float32")
    model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=(inputs, target, None))
    traced = tf.function(lambda x, y: model.train_step((x, y)), jit_compile=True)
    hlo = traced.experimental_get_compiler_ir(tf.nest.map_structure(tf.constant, inputs), tf.constant(target))
    for layer in recurrent(config["config"]["layers"]):
        # Keras leaves out of a config that cuDNN is not asked for: with it, no part of a model is compiled.
        layer["config"]["use_cudnn"] = False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "head.txt").write_text(hlo(stage="hlo").split("\n")[0])
        Path(folder, "step.hlo").write_bytes(hlo(stage="hlo_serialized"))
        return {"policy": policy, "optimizer": optimizer, "loss": loss, "config": pruned(config), "step_bytes": total(folder)}


def pruned(config):
    """Without what says nothing of memory: where values come from, and what Keras builds again."""
    if isinstance(config, dict):
        gone = ("build_config", "registered_name")
        kept = {k: v for k, v in config.items() if k not in gone and not k.endswith("_initializer")}
        return {k: pruned(v) for k, v in kept.items()}
    return [pruned(c) for c in config] if isinstance(config, list) else config


def recurrent(layers):
    for layer in layers:
        if layer["class_name"] in ("LSTM", "GRU"):
            yield layer
        yield from recurrent([layer["config"][k] for k in ("layer", "backward_layer") if k in layer["config"]])


def main(names):
    os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    import keras
    import tensorflow as tf
    from keras_xla_nets import HELD_OUT, MADE_ON

    chosen = [s for s in MADE_ON + HELD_OUT if not names or s[0].__name__ in names]
    steps = [{"model": s[0].__name__, "batch": s[1], "held_out": s in HELD_OUT, **step(*s)} for s in chosen]
    lines = ",\n".join(json.dumps(s, separators=(",", ":")) for s in steps)
    print(f'{{"tensorflow": "{tf.__version__}", "keras": "{keras.__version__}", "jax": "0.10.2", "steps": [\n{lines}\n]}}')


if sys.argv[1:2] == ["--compile"]:
    compile_only(sys.argv[2])
else:
    main(sys.argv[1:])
