optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=__MOMENTUM__)
