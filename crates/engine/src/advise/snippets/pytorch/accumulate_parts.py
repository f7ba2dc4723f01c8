loader = torch.utils.data.DataLoader(dataset, batch_size=__BATCH__, shuffle=True)
optimizer.zero_grad(set_to_none=True)
for x, y in loader:
    # The last part is smaller: each counts by its share of the samples.
    for part_x, part_y in zip(x.split(__MICRO__), y.split(__MICRO__)):
        loss = loss_fn(model(part_x), part_y) * (len(part_x) / len(x))
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
