optimizer = __OPTIMIZER__(__PARAMETERS__, lr=1e-3, __FLAGS__, fused=True)
