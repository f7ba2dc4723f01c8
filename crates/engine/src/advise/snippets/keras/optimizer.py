model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.1, momentum=__MOMENTUM__), loss=loss)
