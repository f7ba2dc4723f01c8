model.fit(x, y, validation_data=(val_x, val_y), validation_batch_size=__BATCH__)
