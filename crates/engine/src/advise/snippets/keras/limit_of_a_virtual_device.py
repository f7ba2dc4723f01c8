# Before the first operation, in MiB; what is left is for others.
for gpu in tf.config.experimental.list_physical_devices("GPU"):
    limit = tf.config.experimental.VirtualDeviceConfiguration(memory_limit=__LIMIT__)
    tf.config.experimental.set_virtual_device_configuration(gpu, [limit])
