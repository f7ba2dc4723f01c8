# Before the first operation. A second model in the same process: keras.backend.clear_session() first.
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
# Or a fixed limit in MiB: tf.config.set_logical_device_configuration(
#     gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])
keras.backend.clear_session()
