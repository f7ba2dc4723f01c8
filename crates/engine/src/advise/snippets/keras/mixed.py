# Before the model is built; the last layer stays in float32: Dense(n, dtype="float32")
keras.mixed_precision.set_global_policy("mixed___DTYPE__")
