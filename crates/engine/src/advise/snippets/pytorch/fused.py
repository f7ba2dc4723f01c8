optimizer = torch.optim.__OPTIMIZER__(model.parameters(), lr=1e-3, fused=True)
