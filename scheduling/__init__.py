"""Which PE computes which image and channel in which round: pure functions on frozen dataclasses, no IR."""
