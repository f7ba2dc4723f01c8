model.compile(optimizer=__OPTIMIZER__(learning_rate=0.1, __FLAGS__), loss=loss)
