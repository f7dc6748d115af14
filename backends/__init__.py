"""How a kernel becomes code: the NumPy oracle, which is the meaning, and TVM tensor expressions."""
