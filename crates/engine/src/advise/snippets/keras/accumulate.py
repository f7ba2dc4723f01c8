# The effective batch stays the same; a batch that still does not fit is halved again.
pieces, micro = __K__, __MICRO__
while micro >= 1:
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=pieces)
    model.compile(optimizer=optimizer, loss=loss)
    try:
        model.fit(x, y, batch_size=micro)
        break
    except tf.errors.ResourceExhaustedError:
        pieces, micro = pieces * 2, micro // 2
