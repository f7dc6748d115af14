"""One ONNX node as its importer sees it: attributes with defaults, inputs as constants or feature maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.onnx.builder import FloatArray, NetworkBuilder
from binpoint.compiler.frontends.onnx.values import Constant, FeatureMap, PaddedMap, UnsupportedError, Value


@dataclass(frozen=True)
class Node:
    """A node with the values it reads and the network that its layers go to.

    `inputs` has None for an optional input left out; `opset` is the version whose meaning of the operator
    holds; `batch` is the number of images the model was exported for, None if any number.
    """

    proto: Any
    opset: int
    batch: int | None
    inputs: tuple[Value | None, ...]
    builder: NetworkBuilder

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value: text as str, lists as tuples."""
        from onnx import helper

        for attribute in self.proto.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                if isinstance(value, bytes):
                    return value.decode("utf-8", "replace")
                return tuple(value) if isinstance(value, list) else value
        return default

    def real(self, name: str, default: str) -> Fraction:
        """A float attribute as the shortest decimal that float32 rounds to it: 0.01, not 0.00999999977648258."""
        value = self.attribute(name)
        if value is not None and not np.isfinite(value):
            raise UnsupportedError(f"its {name} is {value}")
        return Fraction(default if value is None else str(np.float32(value)))

    def value(self, position: int) -> Value | None:
        """The input at a position, None where it was left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def feature_map(self, position: int = 0) -> FeatureMap:
        """An input that must depend on the network's inputs."""
        return self.builder.plain(self.padded_map(position))

    def padded_map(self, position: int = 0) -> FeatureMap | PaddedMap:
        """As `feature_map`, for operators that can take over the zeros of a Pad before them."""
        value = self.value(position)
        if not isinstance(value, FeatureMap | PaddedMap):
            raise UnsupportedError(f"input {position} is a constant; a feature map is needed")
        return value

    def constant(self, position: int, what: str) -> NDArray[Any]:
        """An input that must be a constant; `what` names it in the refusal."""
        value = self.value(position)
        if not isinstance(value, Constant):
            raise UnsupportedError(f"its {what} depends on the network's inputs; it must be a constant")
        return value.array

    def scalar(self, position: int, what: str) -> float:
        """A constant of one number."""
        array = self.constant(position, what)
        if array.size != 1 or array.dtype.kind not in "fiub":
            raise UnsupportedError(f"its {what} is not one number")
        return float(array.reshape(())[()])

    def weights(self, position: int, what: str) -> FloatArray:
        """A constant of finite floating-point numbers, as float32 (float64 where it came as such)."""
        array = self.constant(position, what)
        # bfloat16 and its kin are no NumPy kinds; the test by name keeps quantised integers out.
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise UnsupportedError(f"its {what} is {array.dtype.name}; only floating-point models can be imported")
        if array.dtype != np.float64:
            array = array.astype(np.float32, copy=False)
        stored = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
        if not np.isfinite(stored).all():
            raise UnsupportedError(f"its {what} holds NaN or infinity")
        return array

    def integers(self, name: str, position: int | None) -> tuple[int, ...] | None:
        """Integers that older opsets have as an attribute and newer ones as an input; None where not given."""
        if position is None or self.value(position) is None:
            given = self.attribute(name)
            return None if given is None else tuple(int(number) for number in given)
        array = self.constant(position, name)
        if array.dtype.kind not in "iu":
            raise UnsupportedError(f"its {name} are {array.dtype.name}, not integers")
        return tuple(int(number) for number in array.reshape(-1))

    def axis(self, number: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= number < rank:
            raise UnsupportedError(f"axis {number} does not exist in a tensor of rank {rank}")
        return number % rank


Handler = Callable[[Node], Value]
"""Imports one node: adds layers to its builder where needed, returns the value of its first output."""
