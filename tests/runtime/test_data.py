from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.program import ProgramInput
from binpoint.runtime.data import load_data, load_inputs
from binpoint.support.diagnostics import UserError
from tests.programs import PIXELS

MNIST = Path(__file__).parents[2] / "examples" / "data" / "mnist"
DIGIT = ProgramInput("image", TensorSpec(1, 28, 28, 8), Fraction(1, 255))
LEFT, RIGHT = (ProgramInput(name, TensorSpec(2, 1, 1, 8)) for name in ("left", "right"))
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 6)).astype(np.uint8)


def fault(load: object, *arguments: object, **options: object) -> str:
    assert callable(load)
    with pytest.raises(UserError) as caught:
        load(*arguments, **options)
    (diagnostic,) = caught.value.diagnostics
    return f"{diagnostic.code}: {diagnostic}"


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray) -> str:
    (folder / "t10k-images.idx3-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, *images.shape) + images.tobytes())
    )
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + labels.tobytes())
    return f"mnist:{folder}"


@pytest.mark.parametrize(("subset", "count", "first", "sixes"), [("", 10_000, 7, 958), ("#train", 60_000, 5, 5918)])
def test_the_shipped_mnist_is_whole(subset: str, count: int, first: int, sixes: int) -> None:
    samples = load_data(f"mnist:{MNIST}{subset}", (DIGIT,))
    assert samples.labels is not None
    assert len(samples) == len(samples.labels) == count
    assert samples.labels[0] == first
    assert (samples.labels == 6).sum() == sixes
    batch = next(samples.batches(3))
    assert batch.inputs["image"].shape == (3, 1, 28, 28)
    assert (batch.inputs["image"].min(), batch.inputs["image"].max()) == (0, 1)


def test_batches_cover_all_samples_in_order(tmp_path: Path) -> None:
    samples = load_data(write_mnist(tmp_path, IMAGES, np.arange(5, dtype=np.uint8)), (PIXELS,))
    batches = list(samples.batches(2))
    assert [(batch.first, len(batch)) for batch in batches] == [(0, 2), (2, 2), (4, 1)]
    whole = np.concatenate([batch.inputs["image"] for batch in batches])
    np.testing.assert_array_equal(whole, next(samples.batches(5)).inputs["image"])
    np.testing.assert_array_equal(np.concatenate([batch.labels for batch in batches]), np.arange(5))
    assert [len(batch) for batch in samples.limited(3).batches(2)] == [2, 1]


def test_samples_are_taken_in_any_order(tmp_path: Path) -> None:
    samples = load_data(write_mnist(tmp_path, IMAGES, np.arange(5, dtype=np.uint8)), (PIXELS,))
    whole = next(samples.batches(5))
    taken = samples.take(np.array([3, 0, 3]))
    assert (taken.first, len(taken)) == (3, 3)
    np.testing.assert_array_equal(taken.inputs["image"], whole.inputs["image"][[3, 0, 3]])
    np.testing.assert_array_equal(taken.labels, [3, 0, 3])


def test_says_what_is_wrong_with_mnist_files(tmp_path: Path) -> None:
    place = write_mnist(tmp_path, IMAGES, np.arange(4, dtype=np.uint8))
    assert fault(load_data, place, (PIXELS,)).startswith("count-mismatch")
    assert fault(load_data, place, (DIGIT,)).startswith("wrong-shape")
    assert "train-images-idx3-ubyte.gz" in fault(load_data, f"{place}#train", (PIXELS,))
    assert '"train"' in fault(load_data, f"{place}#tarin", (PIXELS,))
    assert "no such folder" in fault(load_data, "mnist:/no/such/folder", (PIXELS,))
    assert fault(load_data, place, (PIXELS,), resize=True).startswith("useless-option")
    assert fault(load_data, write_mnist(tmp_path, IMAGES[:0], np.zeros(0, np.uint8)), (PIXELS,)).startswith(
        "empty-data"
    )


@pytest.mark.parametrize(("image_name", "label_name"), [("x", "y"), ("images", "labels"), ("image", None)])
def test_npz_files_hold_images_and_labels(tmp_path: Path, image_name: str, label_name: str | None) -> None:
    path = tmp_path / "data.npz"
    labels = {} if label_name is None else {label_name: np.arange(5)}
    np.savez(path, **{image_name: IMAGES}, **labels)
    samples = load_data(str(path), (PIXELS,))
    assert len(samples) == 5
    assert (samples.labels is None) == (label_name is None)


def test_npz_files_name_the_inputs_of_a_network_with_several(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, left=np.zeros((3, 2)), right=np.ones((3, 2)))
    (batch,) = load_data(str(path), (LEFT, RIGHT)).batches(8)
    assert {name: values.mean() for name, values in batch.inputs.items()} == {"left": 0, "right": 1}
    np.savez(path, left=np.zeros((3, 2)), right=np.ones((4, 2)))
    assert fault(load_data, str(path), (LEFT, RIGHT)).startswith("count-mismatch")
    np.savez(path, x=np.zeros((3, 2)))
    assert fault(load_data, str(path), (LEFT, RIGHT)).startswith("missing-array")
    assert fault(load_data, "mnist:x", (LEFT, RIGHT)).startswith("several-inputs")


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (np.zeros((5, 1), int), "5 x 1 of int64"),
        (np.zeros(5), "5 of float64"),
        (np.int64(3), "one int64"),
        (np.full(5, -1), "label -1 to -1"),
        (np.full(5, (1 << 64) - 1, np.uint64), str((1 << 64) - 1)),
    ],
    ids=["2-D", "floats", "0-D", "negative", "past int64"],
)
def test_labels_must_be_whole_numbers(tmp_path: Path, labels: np.ndarray, found: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=IMAGES, y=labels)
    with pytest.raises(UserError, match="bad-labels") as caught:
        load_data(str(path), (PIXELS,))
    assert found in str(caught.value.diagnostics[0])


def test_a_folder_of_images_has_names_and_labels(tmp_path: Path) -> None:
    for label in ("0", "3"):
        (tmp_path / label).mkdir()
        Image.fromarray(IMAGES[int(label)]).save(tmp_path / label / "digit.png")
    samples = load_data(str(tmp_path), (PIXELS,))
    assert samples.names == ("0/digit.png", "3/digit.png")
    np.testing.assert_array_equal(samples.labels, [0, 3])


def test_other_places_are_no_data_sets(tmp_path: Path) -> None:
    array = tmp_path / "x.npy"
    np.save(array, IMAGES)
    assert "not found" in fault(load_data, "nowhere", (PIXELS,))
    assert "--input" in fault(load_data, str(array), (PIXELS,))
    for empty in ("", "mnist:", "mnist:#train"):
        assert "the place of the data is empty" in fault(load_data, empty, (PIXELS,))


def test_an_input_is_an_array_or_image_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", IMAGES)
    Image.fromarray(IMAGES[0]).save(tmp_path / "0.png")
    Image.fromarray(IMAGES[1]).save(tmp_path / "1.png")
    array, first, second = (str(tmp_path / name) for name in ("x.npy", "0.png", "1.png"))
    (whole,) = load_inputs([array], (PIXELS,)).batches(8)
    (images,) = load_inputs([first, f"image={second}"], (PIXELS,)).batches(8)
    np.testing.assert_array_equal(whole.inputs["image"][:2], images.inputs["image"])
    assert load_inputs([first, second], (PIXELS,)).names == (first, second)
    for items in ([array, array], [array, first], [str(tmp_path / "x.txt")]):
        assert fault(load_inputs, items, (PIXELS,)).startswith("unknown-data")
    wrong = fault(load_inputs, [f"imge={second}"], (PIXELS,))
    assert wrong.startswith("unknown-input")
    assert 'the network has no input "imge"' in wrong
    assert '"image"' in wrong
    assert 'did you mean "image"?' in wrong
    named = tmp_path / "foo=bar.png"
    Image.fromarray(IMAGES[2]).save(named)
    assert load_inputs([str(named)], (PIXELS,)).names == (str(named),)
    assert "unknown-input" in fault(load_inputs, [f"foo={second}", second], (LEFT, RIGHT))
    assert fault(load_inputs, [array], (PIXELS,), resize=True).startswith("useless-option")


def test_every_input_of_a_network_needs_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    a, b = str(tmp_path / "a.npy"), str(tmp_path / "b.npy")
    assert len(load_inputs([f"left={a}", f"right={a}"], (LEFT, RIGHT))) == 3
    assert fault(load_inputs, [f"left={a}"], (LEFT, RIGHT)).startswith("missing-input")
    assert fault(load_inputs, [a, b], (LEFT, RIGHT)).startswith("several-inputs")
    assert fault(load_inputs, [f"left={a}", f"right={b}"], (LEFT, RIGHT)).startswith("count-mismatch")


def test_a_float_array_skips_the_conversion_of_pixels(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 6, 6), 0.75, np.float32))
    (batch,) = load_inputs([str(tmp_path / "x.npy")], (replace(PIXELS, scale=Fraction(1, 3)),)).batches(1)
    assert (batch.inputs["image"] == 0.75).all()
