from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.program import ProgramInput
from binpoint.runtime.images import SHOWN_FAULTS, ImageFiles, check_pictures, decode, list_folder, picture_size
from binpoint.runtime.pixels import PixelConverter
from binpoint.support.diagnostics import UserError
from tests.programs import PIXELS

GREY = np.arange(36, dtype=np.uint8).reshape(6, 6)
COLOUR = ProgramInput("image", TensorSpec(3, 4, 2, 8))


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def fault(files: ImageFiles) -> str:
    with pytest.raises(UserError) as caught:
        files.read(0, len(files))
    (diagnostic,) = caught.value.diagnostics
    return f"{diagnostic.code}: {diagnostic}"


def test_reads_images_in_order_as_numbers(tmp_path: Path) -> None:
    paths = tuple(save(tmp_path / f"{index}.png", GREY + index) for index in range(3))
    files = ImageFiles(PIXELS, paths)
    assert len(files) == 3
    expected = PixelConverter(PIXELS)(np.stack([GREY + 1, GREY + 2])[:, np.newaxis])
    np.testing.assert_array_equal(files.read(1, 3), expected)
    np.testing.assert_array_equal(files.take(np.array([2, 1])), expected[::-1])


def test_colour_images_become_three_channels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 2, 3)).astype(np.uint8)
    values = ImageFiles(COLOUR, (save(tmp_path / "a.png", pixels),)).read(0, 1)
    np.testing.assert_array_equal(values, pixels.transpose(2, 0, 1)[np.newaxis])


def test_another_size_is_an_error_unless_resized(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", np.full((12, 9), 200, np.uint8))
    message = fault(ImageFiles(PIXELS, (path,)))
    assert message.startswith("wrong-size")
    assert "9 x 12 pixels" in message
    assert "6 x 6 pixels" in message
    assert "--resize" in message
    resized = ImageFiles(PIXELS, (path,), resize=True).read(0, 1)
    np.testing.assert_array_equal(resized, PixelConverter(PIXELS)(np.full((1, 1, 6, 6), 200, np.uint8)))


def test_damaged_and_unfit_images_are_user_errors(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.png", np.random.default_rng(0).integers(0, 256, (6, 6)).astype(np.uint8))
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole.read_bytes()[:50])
    text = tmp_path / "text.png"
    text.write_text("no image")
    deep = save(tmp_path / "deep.png", np.zeros((6, 6), np.uint16))
    for path, code in (
        (cut, "not-an-image"),
        (text, "not-an-image"),
        (tmp_path / "no.png", "unreadable-file"),
        (deep, "wrong-dtype"),
    ):
        assert fault(ImageFiles(PIXELS, (path,))).startswith(code)
    two_channels = replace(PIXELS, tensor=TensorSpec(2, 6, 6, 8))
    assert fault(ImageFiles(two_channels, (whole,))).startswith("wrong-shape")


UPRIGHT = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.T,
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].T,
    8: lambda stored: np.rot90(stored),
    9: lambda stored: stored,
}
"""What a camera that was held so has stored, as it was seen (EXIF 2.32, orientation); 9 means nothing."""


def save_turned(path: Path, orientation: int, pixels: np.ndarray) -> Path:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"tiffinfo": {0x0112: orientation}} if path.suffix == ".tif" else {"exif": exif.tobytes()}
    Image.fromarray(pixels).save(path, lossless=True, quality=100, **options)
    return path


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp"])
def test_images_are_turned_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    stored = np.kron(np.array([[0, 90, 180], [250, 130, 40]], np.uint8), np.ones((8, 8), np.uint8))
    upright = UPRIGHT[orientation](stored)
    path = save_turned(tmp_path / f"a{suffix}", orientation, stored)
    assert picture_size(path) == (upright.shape[1], upright.shape[0])
    np.testing.assert_allclose(np.asarray(decode(path, 1)), upright, atol=2)
    assert decode(path, 3).size == picture_size(path)


def test_the_size_of_an_input_is_that_of_upright_images(tmp_path: Path) -> None:
    lying = save_turned(tmp_path / "a.png", 6, np.arange(8, dtype=np.uint8).reshape(2, 4))
    declared = ProgramInput("image", TensorSpec(1, 4, 2, 8))
    (found,) = ImageFiles(declared, (lying,)).read(0, 1)
    np.testing.assert_array_equal(found[0], [[4, 0], [5, 1], [6, 2], [7, 3]])
    assert "2 x 4 pixels" in fault(ImageFiles(PIXELS, (lying,)))


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_exif_data_that_cannot_be_read_do_not_make_an_image_unreadable(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    Image.fromarray(GREY[:4]).save(path, exif=b"Exif\0\0no TIFF at all")
    assert picture_size(path) == decode(path, 1).size == (6, 4)


def test_headers_are_checked_together(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.png", GREY)
    check_pictures([whole, whole])
    deep = save(tmp_path / "deep.png", np.zeros((6, 6), np.uint16))
    text = tmp_path / "text.png"
    text.write_text("no image")
    with pytest.raises(UserError) as caught:
        check_pictures([whole, text, deep, whole, tmp_path / "no.png"])
    found = [(each.code, Path(each.location.file).name) for each in caught.value.diagnostics]
    assert found == [("not-an-image", "text.png"), ("wrong-dtype", "deep.png"), ("unreadable-file", "no.png")]
    with pytest.raises(UserError) as caught:
        check_pictures([text] * (SHOWN_FAULTS + 1))
    assert len(caught.value.diagnostics) == SHOWN_FAULTS


def test_sub_folders_named_by_numbers_are_those_labels(tmp_path: Path) -> None:
    for name in ("7/b.png", "7/a.png", "10/c.png"):
        save(tmp_path / name, GREY)
    (tmp_path / "7" / "notes.txt").write_text("skipped")
    (tmp_path / "empty").mkdir()
    paths, labels = list_folder(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in paths] == ["10/c.png", "7/a.png", "7/b.png"]
    np.testing.assert_array_equal(labels, [10, 7, 7])


def test_sub_folders_named_by_numbers_past_64_bits_are_labels_in_order(tmp_path: Path) -> None:
    for name in ("9" * 30, "1" * 30):
        save(tmp_path / name / "a.png", GREY)
    np.testing.assert_array_equal(list_folder(tmp_path)[1], [0, 1])


def test_sub_folders_named_by_words_are_labels_in_order(tmp_path: Path) -> None:
    for name in ("dog/1.png", "cat/1.png", "dog/2.png"):
        save(tmp_path / name, GREY)
    np.testing.assert_array_equal(list_folder(tmp_path)[1], [0, 1, 1])


def test_images_alone_have_no_labels(tmp_path: Path) -> None:
    save(tmp_path / "b.png", GREY)
    save(tmp_path / "a.jpg", GREY)
    paths, labels = list_folder(tmp_path)
    assert [path.name for path in paths] == ["a.jpg", "b.png"]
    assert labels is None


def test_folders_without_a_clear_meaning_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no images"):
        list_folder(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").touch()
    with pytest.raises(UserError, match="mnist:"):
        list_folder(tmp_path)
    save(tmp_path / "a.png", GREY)
    save(tmp_path / "dog" / "a.png", GREY)
    with pytest.raises(UserError, match="sub-folders of images"):
        list_folder(tmp_path)
