"""The names of the tensors that belong to a parameter or a batch normalisation."""

from __future__ import annotations


def master_of(parameter: str) -> str:
    """The master copy, which updates accumulate in."""
    return f"{parameter}.master"


def velocity_of(parameter: str) -> str:
    """The velocity of SGD with momentum."""
    return f"{parameter}.velocity"


def gradient_of(parameter: str) -> str:
    """The gradient of the loss."""
    return f"{parameter}.grad"


def gamma_of(layer: str) -> str:
    """The trained scale of a batch normalisation."""
    return f"{layer}.gamma"


def beta_of(layer: str) -> str:
    """The trained shift of a batch normalisation."""
    return f"{layer}.beta"


def mean_of(layer: str) -> str:
    """The running mean of a batch normalisation."""
    return f"{layer}.mean"


def variance_of(layer: str) -> str:
    """The running variance of a batch normalisation."""
    return f"{layer}.variance"
