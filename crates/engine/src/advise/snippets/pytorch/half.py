model = model.to(torch.__DTYPE__)
x = x.to(torch.__DTYPE__) if x.is_floating_point() else x
