# This Keras has no gradient_accumulation_steps, so the loop is written out.
optimizer = __OPTIMIZER__(__FLAGS__)
sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables]
compare = keras.losses.get(loss)
batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(__MICRO__, drop_remainder=True)
for i, (part_x, part_y) in enumerate(batches, start=1):
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(compare(part_y, model(part_x, training=True))) / __K__
    for s, gradient in zip(sums, tape.gradient(value, model.trainable_variables)):
        s.assign_add(gradient)
    if i % __K__ == 0:
        optimizer.apply_gradients(zip(sums, model.trainable_variables))
        for s in sums:
            s.assign(tf.zeros_like(s))
