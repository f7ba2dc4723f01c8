from torch.distributed.pipelining import Schedule1F1B

# `stage` is this process's PipelineStage. The schedule splits a batch into micro-batches of __MICRO__ and runs their backward passes.
schedule = Schedule1F1B(stage, n_microbatches=__K__, loss_fn=loss_fn)
loader = torch.utils.data.DataLoader(dataset, batch_size=__K__ * __MICRO__, shuffle=True, drop_last=True)
optimizer.zero_grad(set_to_none=True)
for x, y in loader:
    schedule.step(*([x] if stage.is_first else []), target=y if stage.is_last else None)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
