optimizer = keras.optimizers.Adam(gradient_accumulation_steps=__K__)
model.compile(optimizer=optimizer, loss=loss)
model.fit(x, y, batch_size=__MICRO__)
