"""From network text to artifact: frontends, network graph, passes, kernels, pipeline."""
