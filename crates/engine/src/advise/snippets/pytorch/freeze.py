for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.startswith(__HEAD__))
optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
