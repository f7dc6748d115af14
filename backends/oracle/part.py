"""The part of a layer's results that one call of the specification computes."""

from __future__ import annotations

from dataclasses import dataclass

Channels = tuple[int, int]
"""Channels of a result, first (inclusive) and last (exclusive)."""

Rows = tuple[int, int]
"""Rows of a result, first (inclusive) and last (exclusive); see `gradients.result_rows`."""


@dataclass(frozen=True)
class Part:
    """The part of a layer to compute: a range of output channels of the images given.

    `first_image` is the number of the part's first row within the layer's result of the whole step. A row is an image,
    but for the gradients of parameters, which sum over all images given; their rows are output channels of the layer,
    and `rows` says which.
    """

    channels: Channels
    first_image: int = 0
    rows: Rows | None = None
