x = torch.nn.functional.interpolate(x, size=(__SIDE__, __SIDE__), mode="bilinear"__ANTIALIAS__)
# torchvision: transforms.RandomResizedCrop(__SIDE__)
