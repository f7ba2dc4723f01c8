import gc

# Before the next model is built; no other variable may refer to the old one, nor to its outputs.
del model, optimizer
gc.collect()
torch.cuda.empty_cache()
