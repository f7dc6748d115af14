"""Samples for a network: data sets with labels (`--data`) and single inputs (`--input`), read in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.program import ProgramInput
from binpoint.runtime import arrays
from binpoint.runtime.idx import read_idx
from binpoint.runtime.images import ImageFiles, is_image, list_folder
from binpoint.runtime.pixels import FloatArray, PixelConverter, to_feature_maps
from binpoint.support.diagnostics import Location, did_you_mean, user_error

Labels = NDArray[np.int64]

_MNIST = "mnist:"
_MNIST_FILES = {"test": "t10k", "train": "train"}
_PLACES = "mnist:DIR, mnist:DIR#train, FILE.npz or a folder of images"
_IMAGE_NAMES, _LABEL_NAMES = ("x", "images"), ("y", "labels")


class Source(Protocol):
    """The feature maps of one network input."""

    def __len__(self) -> int:
        """How many samples there are."""

    def read(self, start: int, stop: int) -> FloatArray:
        """Samples start .. stop as numbers of shape (n, C, H, W)."""

    def take(self, indices: NDArray[np.int64]) -> FloatArray:
        """The samples of these numbers, in their order, as (n, C, H, W)."""


@dataclass(frozen=True)
class ArraySource:
    """An array in memory: pixels are converted batch by batch, floating-point numbers enter as they are."""

    array: arrays.Array
    convert: PixelConverter

    def __len__(self) -> int:
        return len(self.array)

    def read(self, start: int, stop: int) -> FloatArray:
        """Samples start .. stop as (n, C, H, W)."""
        return self._numbers(self.array[start:stop])

    def take(self, indices: NDArray[np.int64]) -> FloatArray:
        """The samples of these numbers as (n, C, H, W)."""
        return self._numbers(self.array[indices])

    def _numbers(self, part: arrays.Array) -> FloatArray:
        return part if part.dtype.kind == "f" else self.convert(part)


@dataclass(frozen=True)
class Batch:
    """Some samples, from that number on: (n, C, H, W) by input name, and labels (n,) if there are any."""

    first: int
    inputs: Mapping[str, FloatArray]
    labels: Labels | None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


@dataclass(frozen=True)
class Samples:
    """Samples for a network: a source for each input, labels (N,) and names (N) where they are known."""

    sources: Mapping[str, Source]
    labels: Labels | None = None
    names: tuple[str, ...] | None = None
    limit: int | None = None
    """Only the first so many samples; None for all."""

    def __len__(self) -> int:
        count = len(next(iter(self.sources.values())))
        return count if self.limit is None else min(count, self.limit)

    def limited(self, limit: int | None) -> Samples:
        """The first `limit` samples; None for all."""
        return replace(self, limit=limit)

    def batches(self, size: int) -> Iterator[Batch]:
        """All samples in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            inputs = {name: source.read(start, stop) for name, source in self.sources.items()}
            yield Batch(start, inputs, None if self.labels is None else self.labels[start:stop])

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """The samples of these numbers, at least one, in their order."""
        inputs = {name: source.take(indices) for name, source in self.sources.items()}
        return Batch(int(indices[0]), inputs, None if self.labels is None else self.labels[indices])


def load_data(place: str, inputs: Sequence[ProgramInput], *, resize: bool = False) -> Samples:
    """A data set: `mnist:DIR` (`#train` or `#test`, the default, may follow), a .npz file or a folder of images.

    A .npz file holds images as `x` or `images` (or by the names of the network's inputs, the only way where there
    are several) and may hold labels as `y` or `labels`.

    Raises:
        UserError: where the data is missing, damaged, empty, or does not fit the network's inputs.
    """
    if not place.removeprefix(_MNIST).partition("#")[0]:
        raise user_error("unknown-data", "the place of the data is empty", found=f'"{place}"', expected=_PLACES)
    if place.startswith(_MNIST):
        _refuse_resize(resize, place)
        return _load_mnist(place.removeprefix(_MNIST), _only(inputs, place))
    path = Path(place)
    if path.is_dir():
        paths, labels = list_folder(path)
        names = tuple(str(image.relative_to(path)) for image in paths)
        declared = _only(inputs, place)
        return Samples({declared.name: ImageFiles(declared, paths, resize)}, labels, names)
    if path.suffix.lower() == ".npz":
        _refuse_resize(resize, place)
        return _load_npz(path, inputs)
    kind = "not found" if not path.exists() else f'a file ending in "{path.suffix}"'
    raise user_error(
        "unknown-data",
        "this is no data set",
        location=Location(place),
        found=kind,
        expected=_PLACES,
        hint="give single arrays and images with --input" if path.exists() else None,
    )


def load_inputs(items: Sequence[str], inputs: Sequence[ProgramInput], *, resize: bool = False) -> Samples:
    """Samples from one .npy file or from image files; `NAME=FILE` says which network input a file is for.

    Raises:
        UserError: where a file is missing, damaged, or does not fit, or an input has no file.
    """
    grouped = _group(items, inputs)
    sources: dict[str, Source] = {}
    for declared in inputs:
        paths = grouped[declared.name]
        if all(is_image(path) for path in paths):
            sources[declared.name] = ImageFiles(declared, tuple(paths), resize)
        elif len(paths) == 1 and paths[0].suffix.lower() == ".npy":
            _refuse_resize(resize, str(paths[0]))
            array = arrays.read_npy(paths[0], "input file")
            sources[declared.name] = _array_source(array, declared, str(paths[0]), "array")
        else:
            odd = next(path for path in paths if not is_image(path))
            raise user_error(
                "unknown-data",
                "an input is one .npy file or any number of image files",
                location=Location(str(odd)),
                found=", ".join(path.name for path in paths),
            )
    _check_equal_lengths(sources, ", ".join(items))
    first = grouped[inputs[0].name]
    names = tuple(str(path) for path in first) if is_image(first[0]) else None
    return Samples(sources, None, names)


def _load_mnist(place: str, declared: ProgramInput) -> Samples:
    folder, separator, subset = place.rpartition("#")
    if not separator:
        folder, subset = place, "test"
    if subset not in _MNIST_FILES:
        raise user_error(
            "unknown-subset",
            f'"{subset}" is not a part of MNIST',
            location=Location(_MNIST + place),
            expected=" or ".join(_MNIST_FILES),
            hint=did_you_mean(subset, _MNIST_FILES),
        )
    prefix = _MNIST_FILES[subset]
    image_path = _find_idx(Path(folder), f"{prefix}-images", 3)
    label_path = _find_idx(Path(folder), f"{prefix}-labels", 1)
    pixels = read_idx(image_path, 3, "image file")
    source = _array_source(pixels, declared, str(image_path), "image file")
    labels = read_idx(label_path, 1, "label file").astype(np.int64)
    _check_labels(labels, len(source), str(label_path))
    return Samples({declared.name: source}, labels)


def _find_idx(folder: Path, stem: str, dimensions: int) -> Path:
    """The file as the original names it, or with a dot, packed or not."""
    names = [f"{stem}{mark}idx{dimensions}-ubyte{packed}" for mark in "-." for packed in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise user_error(
        "missing-file",
        f"the MNIST folder holds no {stem}",
        location=Location(str(folder)),
        found="no such folder" if not folder.is_dir() else None,
        expected=", ".join(names),
    )


def _load_npz(path: Path, inputs: Sequence[ProgramInput]) -> Samples:
    found = arrays.read_npz(path, "data file")
    sources: dict[str, Source] = {}
    for declared in inputs:
        names = (declared.name, *_IMAGE_NAMES) if len(inputs) == 1 else (declared.name,)
        array = arrays.pick(found, names, path, f'images for the network input "{declared.name}"')
        sources[declared.name] = _array_source(array, declared, str(path), "image array")
    _check_equal_lengths(sources, str(path))
    labels = next((found[name] for name in _LABEL_NAMES if name in found), None)
    if labels is None:
        return Samples(sources)
    _check_labels(labels, len(sources[inputs[0].name]), str(path))
    return Samples(sources, labels.astype(np.int64))


def _check_labels(labels: arrays.Array, count: int, place: str) -> None:
    """Labels are one integer a sample, none negative and none past int64."""
    whole = labels.dtype.kind in "ui" and labels.ndim == 1
    if not whole or int(labels.min(initial=0)) < 0 or int(labels.max(initial=0)) > np.iinfo(np.int64).max:
        raise user_error(
            "bad-labels",
            "labels are one whole number a sample, from 0",
            location=Location(place),
            found=_odd_labels(labels) if not whole else f"label {int(labels.min())} to {int(labels.max())}",
        )
    if len(labels) != count:
        raise user_error(
            "count-mismatch",
            "there are not as many labels as images",
            location=Location(place),
            found=f"{len(labels)} labels",
            expected=f"{count} labels",
        )


def _odd_labels(labels: arrays.Array) -> str:
    shape = " x ".join(map(str, labels.shape))
    return f"{shape} of {labels.dtype}" if shape else f"one {labels.dtype}"


def _array_source(array: arrays.Array, declared: ProgramInput, place: str, what: str) -> ArraySource:
    return ArraySource(to_feature_maps(array, declared, place, what), PixelConverter(declared))


def _group(items: Sequence[str], inputs: Sequence[ProgramInput]) -> dict[str, list[Path]]:
    """The files of each network input, in the order given."""
    grouped: dict[str, list[Path]] = {declared.name: [] for declared in inputs}
    for item in items:
        name, separator, rest = item.partition("=")
        if separator and name in grouped:
            grouped[name].append(Path(rest))
        elif separator and not os.path.exists(item):
            raise user_error(
                "unknown-input",
                f'the network has no input "{name}", and there is no file of that whole name',
                location=Location(item),
                expected=", ".join(f'"{declared.name}"' for declared in inputs),
                hint=did_you_mean(name, grouped),
            )
        else:
            grouped[_only(inputs, item).name].append(Path(item))
    empty = [name for name, paths in grouped.items() if not paths]
    if empty:
        raise user_error("missing-input", f'there is no file for the network input "{empty[0]}"', hint=_usage(inputs))
    return grouped


def _only(inputs: Sequence[ProgramInput], place: str) -> ProgramInput:
    if len(inputs) == 1:
        return inputs[0]
    raise user_error(
        "several-inputs",
        f"the network has {len(inputs)} inputs, so each file needs the name of its input",
        location=Location(place),
        expected=", ".join(f'"{declared.name}"' for declared in inputs),
        hint=_usage(inputs),
    )


def _usage(inputs: Sequence[ProgramInput]) -> str:
    files = " ".join(f"{declared.name}=FILE.npy" for declared in inputs)
    return f"write --input {files}, or a .npz file with arrays of these names"


def _check_equal_lengths(sources: Mapping[str, Source], place: str) -> None:
    counts = {name: len(source) for name, source in sources.items()}
    if len(set(counts.values())) > 1:
        raise user_error(
            "count-mismatch",
            "the inputs of the network do not have the same number of samples",
            location=Location(place),
            found=", ".join(f"{name}: {count}" for name, count in counts.items()),
        )


def _refuse_resize(resize: bool, place: str) -> None:
    if resize:
        raise user_error(
            "useless-option",
            "--resize scales image files; arrays are taken as they are",
            location=Location(place),
            hint="leave --resize away",
        )
