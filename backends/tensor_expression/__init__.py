"""Integer kernels as TVM tensor expressions, built for the host's CPU."""
