import os

# Before torch is imported; PYTORCH_CUDA_ALLOC_CONF before 2.9.
os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
