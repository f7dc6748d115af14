"""Image files and folders of images as samples, read with Pillow when they are needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.program import ProgramInput
from binpoint.runtime.pixels import FloatArray, PixelConverter
from binpoint.support.diagnostics import Collector, Location, UserError, user_error

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""File names that count as images in a folder."""

LABEL_DIGITS = 18
"""Digits of the longest folder name that is a label by its number: all such numbers fit 64 bits."""

SHOWN_FAULTS = 8
"""So many unfit files are reported at once."""

_MODES = {1: "L", 3: "RGB"}
"""Pillow's name of 8-bit pixels by number of channels."""

_ORIENTATION = 0x0112
"""The tag of EXIF that says how a camera was held."""

_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""Pillow's name of what makes a picture of that orientation upright."""

_LYING = (5, 6, 7, 8)
"""The orientations in which width and height change places."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files as the feature maps of one network input, decoded batch by batch.

    With `resize` an image of another size is scaled to the input's (bilinear, over the whole area that shrinks);
    without, it is an error.
    """

    declared: ProgramInput
    paths: tuple[Path, ...]
    resize: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, start: int, stop: int) -> FloatArray:
        """Images start .. stop as (n, C, H, W). Raises UserError for a file that cannot be used."""
        return self._numbers(self.paths[start:stop])

    def take(self, indices: NDArray[np.int64]) -> FloatArray:
        """The images of these numbers as (n, C, H, W). Raises UserError as `read`."""
        return self._numbers([self.paths[index] for index in indices])

    def _numbers(self, paths: Sequence[Path]) -> FloatArray:
        convert = PixelConverter(self.declared)
        return convert(np.stack([self._pixels(path) for path in paths]))

    def _pixels(self, path: Path) -> NDArray[np.uint8]:
        """One image as (C, H, W)."""
        pillow = load_pillow()
        channels, height, width = self.declared.tensor.shape
        decoded = decode(path, channels, lambda image: self._check(image, path))
        if decoded.size != (width, height):
            decoded = decoded.resize((width, height), pillow.Resampling.BILINEAR)
        return np.asarray(decoded, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)

    def _check(self, image: Image, path: Path) -> None:
        """The size and the kind of pixels, from the header alone."""
        channels, height, width = self.declared.tensor.shape
        if channels not in _MODES:
            raise user_error(
                "wrong-shape",
                f'images have 1 or 3 channels, the network input "{self.declared.name}" has {channels}',
                location=Location(str(path)),
                hint="give the input as a .npy array",
            )
        found = _upright_size(image)
        if found != (width, height) and not self.resize:
            raise user_error(
                "wrong-size",
                f'the image does not have the size of the network input "{self.declared.name}"',
                location=Location(str(path)),
                found=f"{found[0]} x {found[1]} pixels",
                expected=f"{width} x {height} pixels",
                hint="add --resize to scale images to the input",
            )


def decode(path: Path, channels: int, check: Callable[[Image], None] | None = None) -> Image:
    """The image of a file with 1 or 3 channels of 8 bits, upright as its EXIF data say.

    Args:
        path: the file.
        channels: 1 for grey, 3 for RGB.
        check: looks at the header before anything is decoded, and raises what it has to say.

    Raises:
        UserError: where the file is no image, damaged, or has more than 8 bits a channel.
    """
    with _opened(path) as image:
        if check is not None:
            check(image)
        _check_depth(image, path)
        image.load()
        orientation = _orientation(image)
        if orientation in _UPRIGHT:
            return image.transpose(load_pillow().Transpose[_UPRIGHT[orientation]]).convert(_MODES[channels])
        return image.convert(_MODES[channels])


def picture_size(path: Path) -> tuple[int, int]:
    """(width, height) of an image file in pixels, upright. Raises UserError for a file that is no image."""
    with _opened(path) as image:
        return _upright_size(image)


def check_pictures(paths: Iterable[Path]) -> None:
    """Refuse files whose headers say already that they cannot be decoded.

    Raises:
        UserError: with the first of them, at most SHOWN_FAULTS.
    """
    collector = Collector()
    for path in paths:
        with collector.catch(), _opened(path) as image:
            _check_depth(image, path)
        if len(collector.diagnostics) == SHOWN_FAULTS:
            break
    collector.raise_any()


def _upright_size(image: Image) -> tuple[int, int]:
    if image.format == "TIFF":
        image.load()  # Pillow turns these upright by itself, and its versions disagree about when the size says so
    width, height = image.size
    return (height, width) if _orientation(image) in _LYING else (width, height)


def _orientation(image: Image) -> int | None:
    """What the EXIF data say; None where there are none, or none that can be read: the picture itself may be whole."""
    with suppress(Exception):
        return image.getexif().get(_ORIENTATION)
    return None


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """The image of a file, of which only the header is read so far. What goes wrong inside becomes a UserError."""
    pillow = load_pillow()
    try:
        with warnings.catch_warnings():
            # Pillow warns of very large images; past twice that size it refuses, which is an error below.
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
            # Of a file that it opens itself, Pillow maps the pixels into memory, and some versions turn those wrongly.
            with path.open("rb") as file, pillow.open(file) as image:
                yield image
    except UserError:
        raise
    except FileNotFoundError:
        message, expected = "there is no such image", "an image file such as PNG or JPEG"
        raise user_error("unreadable-file", message, location=Location(str(path)), expected=expected) from None
    # Pillow's decoders raise many kinds of errors on damaged files.
    except Exception as error:
        raise user_error(
            "not-an-image",
            "the image cannot be read",
            location=Location(str(path)),
            found=_reason(error),
            expected="an image file such as PNG or JPEG, whole",
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, load_pillow().UnidentifiedImageError):
        return "no image format that is known"
    return str(error) or type(error).__name__


def _check_depth(image: Image, path: Path) -> None:
    if image.mode.startswith(("I", "F")):
        raise user_error(
            "wrong-dtype",
            "the image has more than 8 bits a channel",
            location=Location(str(path)),
            found=f"mode {image.mode}",
            expected="8-bit pixels",
            hint="convert the image, or give its pixels as a .npy array",
        )


def is_image(path: Path) -> bool:
    """Whether the file's name says that it is an image."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def list_folder(folder: Path) -> tuple[tuple[Path, ...], NDArray[np.int64] | None]:
    """The images of a folder in the order of their names, and their labels.

    Where the images lie in sub-folders, each sub-folder is a label: its number where all are named by numbers (of up
    to LABEL_DIGITS digits), else its place in the order of names. Images that lie in the folder itself have no labels.
    Other files are skipped.

    Raises:
        UserError: where the folder is unreadable, holds no images, or holds images beside sub-folders of images.
    """
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
        labelled = [
            (child.name, sorted(path for path in child.iterdir() if is_image(path)))
            for child in entries
            if child.is_dir() and not child.name.startswith(".")
        ]
    except OSError as error:
        raise user_error(
            "unreadable-file",
            "cannot list the folder",
            location=Location(str(error.filename or folder)),
            found=error.strerror,
        ) from None
    flat = tuple(entry for entry in entries if is_image(entry) and entry.is_file())
    labelled = [(name, paths) for name, paths in labelled if paths]
    if flat and labelled:
        raise user_error(
            "mixed-folder",
            "the folder holds images and sub-folders of images",
            location=Location(str(folder)),
            found=f'"{flat[0].name}" beside "{labelled[0][0]}"',
            expected="images in one sub-folder a label, or images alone",
        )
    if flat:
        return flat, None
    if not labelled:
        raise user_error(
            "empty-data",
            "the folder holds no images",
            location=Location(str(folder)),
            expected=f"files ending in {', '.join(SUFFIXES)}, or sub-folders of them",
            hint=f"for idx files write mnist:{folder}" if any("idx" in entry.name for entry in entries) else None,
        )
    numbers = _label_numbers([name for name, _ in labelled])
    labels = np.repeat(np.array(numbers, np.int64), [len(paths) for _, paths in labelled])
    return tuple(path for _, paths in labelled for path in paths), labels


def _label_numbers(names: list[str]) -> list[int]:
    if all(name.isascii() and name.isdigit() and len(name) <= LABEL_DIGITS for name in names):
        return [int(name) for name in names]
    return list(range(len(names)))


def load_pillow() -> Any:
    """The module PIL.Image. Raises UserError where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise user_error(
            "missing-package",
            "reading images needs Pillow",
            hint="install it with: pip install 'binpoint[images]'",
        ) from None
    return Image
