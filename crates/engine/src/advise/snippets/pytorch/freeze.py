# Before the first step: an optimizer keeps nothing for a parameter that never had a gradient.
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.startswith("__HEAD__."))
