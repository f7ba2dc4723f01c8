from functools import partial
from torch.utils.checkpoint import checkpoint

# Every repeated block of the model; for transformers: model.gradient_checkpointing_enable()
for blocks in __LISTS__:
    for block in blocks.children():
        block.forward = partial(checkpoint, block.forward__REENTRANT__)
