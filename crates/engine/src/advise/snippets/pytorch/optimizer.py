optimizer = __OPTIMIZER__(model.parameters(), lr=0.1, __FLAGS__)
