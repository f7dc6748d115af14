"""Feature maps of the oracle."""

from __future__ import annotations

from dataclasses import dataclass

from binpoint.backends.kernel import IntArray


@dataclass(frozen=True)
class OracleBuffer:
    """A feature map as (N, C, H, W) mantissas in the smallest integer type that holds them."""

    mantissas: IntArray

    @property
    def batch(self) -> int:
        """N, the number of images."""
        return len(self.mantissas)
