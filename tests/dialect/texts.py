"""Small modules of both dialects that the tests of the IR start from."""

from pathlib import Path

NN = Path(__file__).with_name("nn.mlir").read_text()
"""A network that verifies."""

FX = Path(__file__).with_name("fx.mlir").read_text()
"""A program that verifies, exactly as the printer writes it."""

TRAINING = Path(__file__).with_name("training.mlir").read_text()
"""A mini-batch of training that verifies, with one of each operation, exactly as the printer writes it."""
