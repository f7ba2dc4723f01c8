# Batches wait in the host's memory, not on the device: no prefetch_to_device, no copy_to_device.
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(__BATCH__).prefetch(tf.data.AUTOTUNE)
model.fit(data)
