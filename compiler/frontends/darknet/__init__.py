"""Darknet .cfg files and .weights files -> network graphs with float parameters."""
