"""NumPy files as samples: .npy and .npz, checked before anything is allocated, never pickled objects."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.files import read_bytes

Array = NDArray[Any]


def read_npy(path: Path, what: str) -> Array:
    """The array of a .npy file; `what` names it in errors.

    Raises:
        UserError: where the file is unreadable, no .npy file, holds Python objects, or is shorter or longer
            than its header says.
    """
    data = read_bytes(path, what)
    return _read_array(io.BytesIO(data), len(data), path, what)


def read_npz(path: Path, what: str) -> dict[str, Array]:
    """The arrays of a .npz file by name.

    Raises:
        UserError: where the file is unreadable, no .npz file, damaged, or an array in it is at fault.
    """
    data = read_bytes(path, what)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            arrays = {}
            for info in archive.infolist():
                with archive.open(info) as stream:
                    name = info.filename.removesuffix(".npy")
                    arrays[name] = _read_array(stream, info.file_size, path, f'array "{name}" of the {what}')
            return arrays
    except (UserError, MemoryError):
        raise
    # The zip reader raises many kinds of errors on damaged headers (ValueError, NotImplementedError, ...).
    except Exception as error:
        raise user_error(
            "corrupt-data",
            f"the {what} is not a .npz file, or is damaged",
            location=Location(str(path)),
            found=str(error) or type(error).__name__,
            expected="arrays written by numpy.savez",
        ) from None


def npy_bytes(array: Array) -> bytes:
    """The array as a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def pick(arrays: dict[str, Array], names: Sequence[str], path: Path, what: str) -> Array:
    """The first array that has one of the names. Raises UserError where there is none."""
    for name in names:
        if name in arrays:
            return arrays[name]
    raise user_error(
        "missing-array",
        f"the data file holds no {what}",
        location=Location(str(path)),
        found=", ".join(f'"{name}"' for name in arrays) or "no array",
        expected=" or ".join(f'"{name}"' for name in names),
    )


def _read_array(stream: IO[bytes], size: int, path: Path, what: str) -> Array:
    """One array from a stream of `size` bytes."""
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} of the .npy format")
    # NumPy parses the header as Python, with as many kinds of errors.
    except (ValueError, SyntaxError, TypeError, RecursionError, tokenize.TokenError) as error:
        raise _not_npy(error, path, what) from None
    _check_dtype(dtype, path, what)
    wanted = math.prod(shape) * dtype.itemsize
    left = size - stream.tell()
    body = stream.read(wanted) if wanted <= left else b""
    if wanted != left or len(body) != wanted:
        raise user_error(
            "truncated-data",
            f"the {what} is not as long as its header says",
            location=Location(str(path)),
            found=f"{left} bytes of data",
            expected=f"{_format(shape)} of {dtype} = {wanted} bytes",
        )
    array = np.frombuffer(body, dtype)
    try:
        return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    except ValueError as error:  # negative sizes, more axes than NumPy has
        raise _not_npy(error, path, what) from None


def _not_npy(error: Exception, path: Path, what: str) -> UserError:
    return user_error(
        "not-npy",
        f"the {what} is not a .npy array",
        location=Location(str(path)),
        found=str(error).splitlines()[0] if str(error) else type(error).__name__,
        expected="an array written by numpy.save",
    )


def _check_dtype(dtype: np.dtype[Any], path: Path, what: str) -> None:
    if dtype.kind in "buif":
        return
    kind = "Python objects" if dtype.hasobject else str(dtype)
    raise user_error(
        "wrong-dtype",
        f"the {what} does not hold numbers",
        location=Location(str(path)),
        found=kind,
        expected="integers or floating-point numbers",
        hint="objects are never unpickled; save a plain array" if dtype.hasobject else None,
    )


def check_finite(array: Array, place: str, what: str) -> None:
    """Raise UserError where a floating-point array holds NaN or infinity; `place` is the file."""
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
    if not finite.all():
        index = np.unravel_index(int(np.argmin(finite)), array.shape)
        raise not_finite(place, what, f"{array[index]} at index {tuple(int(i) for i in index)}")


def not_finite(place: str, what: str, found: str) -> UserError:
    """The error for values that have no fixed-point form."""
    return user_error(
        "not-finite", f"the {what} holds NaN or infinity", location=Location(place), found=found, expected="numbers"
    )


def _format(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "1"
