"""Emitted kernels: the files, and that C, which no run uses, computes the same."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

from binpoint.backends.kernel import Accumulator, Draw, Tile
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.program import KernelCall, Program
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.cache import KernelCache
from binpoint.backends.tensor_expression.capability import Capability
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.design import Design
from binpoint.backends.tensor_expression.emit import SUFFIXES, emit, kernel_text, nominal_plan
from binpoint.backends.tensor_expression.library import Function
from binpoint.backends.tensor_expression.pe_program import TileProgram
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.support.diagnostics import UserError
from tests.backends.layers import LAYERS, batches, random_exponents, random_parameters

CC = shutil.which("cc")


def program(**specs: str) -> Program:
    """Unconnected layers of the table by the names that they get."""
    calls = tuple(KernelCall(replace(LAYERS[layer], name=name), ()) for name, layer in specs.items())
    return Program("layers", (), calls, ())


@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_file_for_each_kernel_and_pe_program(kind: str, tmp_path: Path) -> None:
    layers = program(conv1="conv-no-bias", pool="max-pool", twin="conv-no-bias")
    files = emit(layers, kind, tmp_path / "new", Capability.GENERIC)
    stems = ["conv1", "conv1.pe", "pool", "pool.pe", "twin", "twin.pe", "statistics.int32", "statistics.int32.pe"]
    assert [file.name for file in files] == [f"{stem}{SUFFIXES[kind]}" for stem in stems]
    assert sorted(files) == sorted((tmp_path / "new").iterdir())
    texts = {file.name: file.read_text() for file in files}
    assert texts[f"conv1{SUFFIXES[kind]}"] == texts[f"twin{SUFFIXES[kind]}"]
    entry = {"tir": "def main(", "llvm": "define", "c": "__tvm_ffi_main"}[kind]
    assert all(entry in text for text in texts.values())
    assert all("first_channel" in text for name, text in texts.items() if name.startswith("conv1.pe"))


def test_the_level_decides_the_design(tmp_path: Path) -> None:
    layers = program(conv="conv-16-bit")
    texts = {level: emit(layers, "llvm", tmp_path / level, level)[0].read_text() for level in Capability}
    assert "pmadd.wd" in texts[Capability.AVX2]
    assert "avx2" not in texts[Capability.GENERIC]


def test_names_become_different_file_names(tmp_path: Path) -> None:
    files = emit(program(**{"a/b": "relu", "a?b": "relu"}), "tir", tmp_path)
    assert [file.name for file in files[:4:2]] == ["a_b.tir.py", "a_b-2.tir.py"]


def test_what_widths_prove() -> None:
    assert nominal_plan(LAYERS["conv"], Form.LAYER).container is Container.INT32
    assert nominal_plan(LAYERS["conv-16-bit"], Form.LAYER).container is Container.INT64
    assert nominal_plan(replace(LAYERS["conv"], accumulator=Accumulator(16)), Form.LAYER).container is Container.WIDE


def test_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown-form"):
        emit(program(relu="relu"), "ptx", tmp_path)
    assert not list(tmp_path.iterdir())


class CCompiler(Compiler):
    """Compiles the emitted C with the system's compiler."""

    def __init__(self, directory: Path) -> None:
        super().__init__(Capability.GENERIC, KernelCache(None))
        self._directory = directory
        self._modules: list[object] = []

    def kernel(self, plan: KernelPlan, design: Design) -> Function:
        source = self._directory / f"kernel{len(self._modules)}.c"
        source.write_text(kernel_text(plan, "c", self.capability))
        packages = [folder for name in ("tvm", "tvm_ffi") for folder in find_spec(name).submodule_search_locations]
        includes = [f"-I{folder}/include" for folder in packages]
        library = source.with_suffix(".so")
        subprocess.run([CC, "-O1", "-shared", "-fPIC", *includes, "-o", library, source], check=True)
        self._modules.append(tvm_ffi.load_module(str(library)))
        return self._modules[-1]["main"]


@pytest.mark.skipif(CC is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["conv", "conv-wraps", "add-narrow", "softmax"])
def test_c_computes_the_same(generic: TensorExpressionBackend, name: str, tmp_path: Path) -> None:
    spec = replace(LAYERS[name], statistics=False)
    generator = np.random.default_rng(0)
    parameters, exponents = random_parameters(spec, generator), random_exponents(spec, generator)
    c_program = TileProgram(spec, parameters, CCompiler(tmp_path))
    reference = OracleBackend().prepare_pe_program(spec, parameters, 2, 3)
    inputs = next(batches(spec, generator))
    result, expected = (
        each(inputs, Tile(1, 2, 3, 1), exponents, draw=Draw(1, 2, 3)) for each in (c_program, reference)
    )
    np.testing.assert_array_equal(result.output, expected.output)
    assert result.events == expected.events
