model = model.to(memory_format=torch.__FORMAT__)
x = x.to(memory_format=torch.__FORMAT__)
