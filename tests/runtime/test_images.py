from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.program import ProgramInput
from binpoint.runtime.images import ImageFiles, list_folder
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
