optimizer = __OPTIMIZER__(__FLAGS__)
model.compile(optimizer=optimizer, loss=loss)
model.fit(x, y, batch_size=__MICRO__)
