model = model.to(memory_format=torch.channels_last)
x = x.to(memory_format=torch.channels_last)
