resize = keras.layers.Resizing(__SIDE__, __SIDE__)
