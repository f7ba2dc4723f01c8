for layer in model.layers:
    layer.trainable = layer.name.startswith(__HEAD__)
model.compile(optimizer="adam", loss=loss)
