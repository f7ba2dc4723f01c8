# Each slice of a volume.
resize = keras.layers.TimeDistributed(keras.layers.Resizing(__SIDE__, __SIDE__))
