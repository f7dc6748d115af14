"""Pictures as network input, and boxes back."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.program import ProgramInput
from binpoint.runtime.detection.letterbox import PictureFiles, place
from binpoint.support.diagnostics import UserError

SCALED = ProgramInput("image", TensorSpec(3, 32, 48, 8), Fraction(1, 255))


@pytest.mark.parametrize(
    ("picture", "scaled", "corner"),
    [
        ((96, 64), (48, 32), (0, 0)),
        ((96, 16), (48, 8), (0, 12)),
        ((16, 16), (32, 32), (8, 0)),
        ((100, 33), (48, 15), (0, 8)),
        ((1, 1000), (1, 32), (23, 0)),
        ((1000, 1), (48, 1), (0, 15)),
    ],
)
def test_a_picture_is_as_large_as_it_fits_and_centred(picture, scaled, corner) -> None:
    placement = place(picture, (48, 32))
    assert (placement.scaled, placement.corner) == (scaled, corner)
    inside = np.array([[*corner, corner[0] + scaled[0], corner[1] + scaled[1]]], np.float64)
    assert np.allclose(placement.to_picture(inside), [[0, 0, *picture]])
    assert np.allclose(placement.to_picture(inside + np.array([-50, -50, 50, 50])), [[0, 0, *picture]])


def test_pixels_are_centred_on_grey_and_scaled(tmp_path: Path) -> None:
    Image.new("RGB", (24, 8), (255, 0, 51)).save(tmp_path / "a.png")
    Image.new("L", (10, 10), 102).save(tmp_path / "b.png")
    files = PictureFiles(SCALED, (tmp_path / "a.png", tmp_path / "b.png"))
    both = files.read(0, 2)
    assert (both.shape, both.dtype) == ((2, 3, 32, 48), np.float32)
    assert np.allclose(both[0, :, 8:24], np.array([1, 0, 0.2]).reshape(3, 1, 1))
    assert (both[0, :, :8] == 0.5).all()
    assert (both[0, :, 24:] == 0.5).all()
    assert np.allclose(both[1, :, :, 8:40], 0.4)
    assert np.array_equal(files.take(np.array([1, 0])), both[::-1])


def test_pictures_are_placed_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (40, 10), 255).save(tmp_path / "a.png", exif=exif.tobytes())
    files = PictureFiles(SCALED, (tmp_path / "a.png",))
    numbers, placements = files.read_placed(0, 1)
    assert placements == [files.placement((10, 40))]
    assert np.array_equal(numbers, files.read(0, 1))
    assert (numbers[0, 0, :, 20:28] == 1).all()
    assert (numbers[0, 0, :, :20] == 0.5).all()


def test_mean_and_deviation(tmp_path: Path) -> None:
    Image.new("RGB", (48, 32), (255, 0, 51)).save(tmp_path / "a.png")
    numbers = tuple(map(Fraction, (1, 2, 3)))
    declared = ProgramInput("image", SCALED.tensor, Fraction(1, 51), numbers, numbers)
    (found,) = PictureFiles(declared, (tmp_path / "a.png",)).read(0, 1)
    assert np.allclose(found[:, 0, 0], [4, -1, -2 / 3])


def test_a_damaged_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(UserError) as caught:
        PictureFiles(SCALED, (tmp_path / "a.png",)).read(0, 1)
    assert caught.value.diagnostics[0].code == "not-an-image"
