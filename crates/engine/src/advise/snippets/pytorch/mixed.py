device = next(model.parameters()).device.type
dtype = getattr(torch, __DTYPE__)
scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
with torch.autocast(device, dtype=dtype):
    loss = loss_fn(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
