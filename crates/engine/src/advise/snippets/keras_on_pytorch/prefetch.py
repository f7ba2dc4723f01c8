# Batches wait in the host's memory, not on the device: fit copies each when its step begins.
pairs = torch.utils.data.TensorDataset(torch.as_tensor(x), torch.as_tensor(y))
model.fit(torch.utils.data.DataLoader(pairs, batch_size=__BATCH__))
