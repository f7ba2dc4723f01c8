from torch.distributed._composable.fsdp import fully_shard

# In the place of DistributedDataParallel; the optimizer is made of the parameters as they are then.
for blocks in __LISTS__:
    for block in blocks.children():
        fully_shard(block__KEEPS__)
fully_shard(model)
optimizer = __OPTIMIZER__(__PARAMETERS__, lr=__RATE__, __FLAGS____FUSED__)
