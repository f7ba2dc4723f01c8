images = tf.image.resize(images, (__SIDE__, __SIDE__))
