for layer in model.layers:
    layer.trainable = layer.name == "__HEAD__"
model.compile(optimizer=__OPTIMIZER__(__FLAGS__), loss=loss)
