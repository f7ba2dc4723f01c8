for layer in model.layers:
    layer.trainable = layer.name.startswith(__HEAD__)
model.compile(optimizer=__OPTIMIZER__(__FLAGS__), loss=loss)
