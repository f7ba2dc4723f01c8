tokens = keras.utils.pad_sequences(tokens, maxlen=__LENGTH__, padding="post", truncating="post")
