vectorize = keras.layers.TextVectorization(output_sequence_length=__LENGTH__)
