from torch.utils.checkpoint import checkpoint


class Checkpointed(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *inputs):
        return checkpoint(self.block, *inputs__REENTRANT__)


# Every repeated block of the model; for transformers: model.gradient_checkpointing_enable()
for blocks in __LISTS__:
    for name, block in blocks.named_children():
        setattr(blocks, name, Checkpointed(block))
