# Batches wait in pinned host memory; one is copied when its step begins.
loader = torch.utils.data.DataLoader(dataset, batch_size=__BATCH__, pin_memory=torch.cuda.is_available())
device = next(model.parameters()).device
for x, y in loader:
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
