import os

# Before tensorflow is imported.
os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"
