# Before the first operation, in MiB; what is left is for others.
for gpu in tf.config.list_physical_devices("GPU"):
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=__LIMIT__)
    tf.config.set_logical_device_configuration(gpu, [limit])
