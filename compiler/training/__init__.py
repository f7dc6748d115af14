"""From a network to a training program: lowering, gradients, updates."""
