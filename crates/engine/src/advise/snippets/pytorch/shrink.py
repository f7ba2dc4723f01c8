x = torch.nn.functional.interpolate(x, size=(__SIDE__, __SIDE__), mode="bilinear", antialias=True)
# torchvision: transforms.RandomResizedCrop(__SIDE__)
