"""Pictures of any size as the input of a detector: scaled to fit, centred, the rest grey; and boxes back again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.program import ProgramInput
from binpoint.runtime.images import decode, load_pillow
from binpoint.runtime.pixels import FloatArray

if TYPE_CHECKING:
    from PIL.Image import Image

GREY = 127.5
"""The pixels beside the picture: half of white (Darknet's letterbox_image)."""


@dataclass(frozen=True)
class Placement:
    """Where a picture lies in the input of the network. All sizes are (width, height) in pixels.

    Attributes:
        picture: the size of the picture.
        scaled: its size in the input.
        corner: (left, top) of the picture in the input.
    """

    picture: tuple[int, int]
    scaled: tuple[int, int]
    corner: tuple[int, int]

    def to_picture(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Boxes (n, 4) of x0, y0, x1, y1 in pixels of the input -> in pixels of the picture, cut at its edges."""
        corner = np.array(self.corner * 2, np.float64)
        scale = np.array(self.picture * 2, np.float64) / np.array(self.scaled * 2, np.float64)
        return np.clip((boxes - corner) * scale, 0, np.array(self.picture * 2, np.float64))


def place(picture: tuple[int, int], inside: tuple[int, int]) -> Placement:
    """The placement of a picture (width, height) in an input (width, height): as large as it fits, and centred."""
    (width, height), (columns, rows) = picture, inside
    if columns * height < rows * width:
        scaled = columns, max(1, height * columns // width)
    else:
        scaled = max(1, width * rows // height), rows
    return Placement(picture, scaled, ((columns - scaled[0]) // 2, (rows - scaled[1]) // 2))


def letterbox(picture: Image, placement: Placement, inside: tuple[int, int]) -> NDArray[np.float32]:
    """A picture as the pixels (C, rows, columns) of an input (columns, rows), 0 to 255; scaled bicubically."""
    columns, rows = inside
    channels = len(picture.getbands())
    scaled = picture.resize(placement.scaled, load_pillow().Resampling.BICUBIC)
    (width, height), (left, top) = placement.scaled, placement.corner
    boxed = np.full((rows, columns, channels), GREY, np.float32)
    boxed[top : top + height, left : left + width] = np.asarray(scaled).reshape(height, width, channels)
    return boxed.transpose(2, 0, 1)


@dataclass(frozen=True)
class PictureFiles:
    """Image files of any size as feature maps of a detector's input, decoded when they are needed."""

    declared: ProgramInput
    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, start: int, stop: int) -> FloatArray:
        """Pictures start .. stop as (n, C, H, W). Raises UserError for a file that cannot be used."""
        return self.read_placed(start, stop)[0]

    def take(self, indices: NDArray[np.int64]) -> FloatArray:
        """The pictures of these numbers as (n, C, H, W). Raises UserError as `read`."""
        return self._numbers([self.paths[index] for index in indices])[0]

    def read_placed(self, start: int, stop: int) -> tuple[FloatArray, list[Placement]]:
        """As `read`, and where each picture lies in the input."""
        return self._numbers(self.paths[start:stop])

    def placement(self, size: tuple[int, int]) -> Placement:
        """Where a picture (width, height) lies in the input."""
        _, rows, columns = self.declared.tensor.shape
        return place(size, (columns, rows))

    def _numbers(self, paths: Sequence[Path]) -> tuple[FloatArray, list[Placement]]:
        pixels, placements = zip(*map(self._pixels, paths), strict=True)
        return self._scaled(np.stack(pixels)), list(placements)

    def _pixels(self, path: Path) -> tuple[NDArray[np.float32], Placement]:
        """One picture as (C, rows, columns), and where it lies."""
        channels, rows, columns = self.declared.tensor.shape
        picture = decode(path, channels)
        placement = self.placement(picture.size)
        return letterbox(picture, placement, (columns, rows)), placement

    def _scaled(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the network reads: (p * scale - mean) / deviation."""
        mean, deviation = _by_channel(self.declared.mean), _by_channel(self.declared.deviation)
        return np.asarray((pixels * float(self.declared.scale) - mean) / deviation, np.float32)


def _by_channel(numbers: tuple[Fraction, ...]) -> NDArray[np.float64]:
    return np.array([float(number) for number in numbers]).reshape(-1, 1, 1)
