scaler = torch.cuda.amp.GradScaler(enabled=__SCALES__)
with torch.cuda.amp.autocast(__AUTOCAST__):
    loss = loss_fn(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
