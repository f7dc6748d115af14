"""Generates machine code: a scheduled TVM module -> object code for a CPU level."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tvm import compile as compile_module
from tvm.target import Target

from binpoint.backends.tensor_expression.capability import Capability


def target(capability: Capability) -> Target:
    """TVM's target for a CPU level of the host's architecture."""
    return Target({"kind": "llvm"} if capability.cpu is None else {"kind": "llvm", "mcpu": capability.cpu})


def object_code(module: Any, capability: Capability) -> bytes:
    """The object file of a scheduled module."""
    executable = compile_module(module, target=target(capability))
    with tempfile.TemporaryDirectory(prefix="binpoint-") as folder:
        path = Path(folder) / "kernel.o"
        executable.mod.write_to_file(str(path), "o")
        return path.read_bytes()
