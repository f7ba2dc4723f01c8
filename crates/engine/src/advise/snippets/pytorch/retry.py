def gradients(batches, micro):
    for x, y in batches:
        for part_x, part_y in zip(x.split(micro), y.split(micro)):
            loss = loss_fn(model(part_x), part_y) * (len(part_x) / len(x) / len(batches))
            loss.backward()


micro, batches = __BATCH__, []
for batch in loader:
    batches.append(batch)
    if len(batches) < __PIECES__:
        continue
    optimizer.zero_grad(set_to_none=True)
    while True:
        failed = False
        try:
            gradients(batches, micro)
        except __OUT_OF_MEMORY__
            failed = True
        if not failed:
            break
        if micro == 1:
            raise MemoryError("not even one sample fits")
        # Outside of `except`, whose traceback keeps the step's tensors alive. The effective batch stays the same.
        micro = (micro + 1) // 2
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    optimizer.step()
    batches = []
