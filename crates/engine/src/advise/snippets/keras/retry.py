# An epoch that runs out of memory begins anew with half the micro-batch and twice as many of them a step.
pieces, micro = __PIECES__, __BATCH__
weights = model.get_weights()
for epoch in range(epochs):
    while True:
        failed = False
        try:
            model.fit(x, y, batch_size=micro, initial_epoch=epoch, epochs=epoch + 1)
        except __OUT_OF_MEMORY__
            failed = True
        if not failed:
            break
        if micro == 1:
            raise MemoryError("not even one sample fits")
        # Outside of `except`, whose traceback keeps tensors alive. The optimizer begins anew.
        pieces, micro = pieces * 2, (micro + 1) // 2
        model.set_weights(weights)
        optimizer = __OPTIMIZER__(__FLAGS__, gradient_accumulation_steps=pieces)
        model.compile(optimizer=optimizer, loss=loss)
    weights = model.get_weights()
