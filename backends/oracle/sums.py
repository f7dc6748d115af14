"""Exact sums over images and pixels of each channel: what the host reads of a batch norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from binpoint.backends.gradients import SumsSpec
from binpoint.backends.kernel import IntArray
from binpoint.backends.oracle.exact import INT64_LIMIT, Integers, holder, magnitude, multiply

if TYPE_CHECKING:
    from binpoint.backends.oracle.backend import OracleBuffer


@dataclass(frozen=True)
class OracleSums:
    """The sums of one spec."""

    spec: SumsSpec

    def __call__(self, inputs: Sequence[OracleBuffer]) -> IntArray:
        """int64 (terms, C) over all images and pixels of the inputs. Raises OverflowError past 64 bits."""
        maps = [buffer.mantissas.astype(np.int64) for buffer in inputs]
        sums = [channel_sums([maps[index] for index in term]) for term in self.spec.terms]
        if any(magnitude(each) >= INT64_LIMIT for each in sums):
            raise OverflowError(f"{self.spec.name}: a sum leaves 64 bits")
        return np.stack(sums).astype(np.int64)


def channel_sums(factors: Sequence[Integers]) -> Integers:
    """The sum of the factors' products over images and pixels of each channel, (C,)."""
    product = factors[0]
    for factor in factors[1:]:
        product = multiply(product, factor)
    bound = magnitude(product) * (product.size // product.shape[1])
    return np.asarray(holder(product, bound).sum(axis=(0, 2, 3)))
