# Before the first operation; or TF_FORCE_GPU_ALLOW_GROWTH=true in the environment, before tensorflow is imported.
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
