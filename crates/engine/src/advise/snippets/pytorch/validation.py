val_loader = torch.utils.data.DataLoader(val_dataset, batch_size=__BATCH__)
model.eval()
total = 0.0
with torch.no_grad():
    for x, y in val_loader:
        loss = loss_fn(model(x), y)
        total += loss.item() * len(x)
model.train()
