loader = torch.utils.data.DataLoader(dataset, batch_size=__MICRO__, shuffle=True)
optimizer.zero_grad(set_to_none=True)
for i, (x, y) in enumerate(loader, start=1):
    loss = loss_fn(model(x), y) / __K__
    loss.backward()
    if i % __K__ == 0:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
