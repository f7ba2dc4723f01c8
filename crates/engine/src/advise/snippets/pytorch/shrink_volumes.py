x = torch.nn.functional.interpolate(x, size=(x.shape[2], __SIDE__, __SIDE__), mode="trilinear")
