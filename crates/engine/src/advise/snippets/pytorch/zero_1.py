from torch.distributed.optim import ZeroRedundancyOptimizer

# `model` inside of DistributedDataParallel as before. Before a checkpoint of it: optimizer.consolidate_state_dict()
optimizer = ZeroRedundancyOptimizer(__PARAMETERS__, optimizer_class=__OPTIMIZER__, lr=__RATE__, __FLAGS____FUSED__)
