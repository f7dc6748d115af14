"""Loads object code into this process, without TVM's compiler: its runtime library and LLVM's ORC linker are enough."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ENTRY = "main"
"""The name of the function in every kernel's module."""

Function = Callable[..., None]


@dataclass(frozen=True)
class Library:
    """The function of a kernel, and the module that keeps its code loaded."""

    function: Function
    module: Any


def load(code: bytes) -> Library:
    """Link object code into this process."""
    module = _session().load_module(code)
    return Library(module[ENTRY], module)


@lru_cache(maxsize=1)
def load_runtime() -> None:
    """Load TVM's runtime: the thread pool and the workspace that kernels call."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    specification = importlib.util.find_spec("tvm")
    folders = [] if specification is None else list(specification.submodule_search_locations or [])
    for folder in folders:
        for library in Path(folder).rglob(f"libtvm_runtime.{suffix}"):
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
            return
    raise RuntimeError("the package apache-tvm holds no runtime library")


@lru_cache(maxsize=1)
def _session() -> Any:
    load_runtime()
    from tvm_ffi_orcjit import ExecutionSession

    return ExecutionSession()
