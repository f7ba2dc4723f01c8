import gc

# Before the next model is built; no other variable may refer to the old one.
del model
keras.backend.clear_session()
gc.collect()
torch.cuda.empty_cache()
