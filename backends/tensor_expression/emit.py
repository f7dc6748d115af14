"""Writes the generated kernels to files: one for each kernel of a program and one for each PE program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from binpoint.backends.kernel import KernelExponents, KernelSpec
from binpoint.backends.program import Program
from binpoint.backends.tensor_expression.bounds import (
    choose_container,
    choose_reduction,
    nominal_magnitudes,
    total_bound,
)
from binpoint.backends.tensor_expression.capability import Capability, host_capability
from binpoint.backends.tensor_expression.checks import check_spec
from binpoint.backends.tensor_expression.compiler import designs
from binpoint.backends.tensor_expression.generic import GenericDesign
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan, nameless
from binpoint.support.diagnostics import did_you_mean, user_error
from binpoint.support.files import make_directory, write_atomically

SUFFIXES = {"tir": ".tir.py", "llvm": ".ll", "c": ".c"}
"""What can be emitted, and the end of the files' names."""


def emit(program: Program, kind: str, directory: Path, capability: Capability | None = None) -> list[Path]:
    """Write the kernels of a program as scheduled TIR, LLVM IR or C; gives the files in the program's order.

    `conv1.ll` is the kernel of layer conv1, `conv1.pe.ll` its PE program; `statistics.int32.ll` and
    `statistics.int32.pe.ll` acquire statistics from the values that they leave. TIR and LLVM IR are the code for a CPU
    level, this machine's by default; C is the portable design.

    Code depends on a bound on the values. Here it is the one that widths alone prove; a run knows the weights, and its
    kernels may hold values in fewer bits.

    Raises:
        UserError: a kind that does not exist, a width that kernels cannot hold, a directory that cannot be written.
    """
    if kind not in SUFFIXES:
        expected, hint = f"one of {', '.join(SUFFIXES)}", did_you_mean(kind, SUFFIXES)
        raise user_error(
            "unknown-form", "kernels cannot be written in this form", found=kind, expected=expected, hint=hint
        )
    for call in program.calls:
        check_spec(call.spec)
    make_directory(directory)
    files = []
    for name, text in _texts(program, kind, capability or host_capability()):
        files.append(directory / f"{name}{SUFFIXES[kind]}")
        write_atomically(files[-1], text)
    return files


def nominal_plan(spec: KernelSpec, form: Form) -> KernelPlan:
    """The plan that widths alone justify: all weights as large as they can be, inputs of one exponent, no bias."""
    total = total_bound(spec, nominal_magnitudes(spec), KernelExponents((0,) * len(spec.inputs), 0))
    container = choose_container(spec, total, 0)
    return KernelPlan(nameless(spec), container, choose_reduction(spec, container, total), not spec.exact, form)


def kernel_text(plan: KernelPlan, kind: str, capability: Capability) -> str:
    """The generated code of one plan, in one of the kinds of `SUFFIXES`."""
    return _text(_module(plan, kind, capability), kind, capability)


def _texts(program: Program, kind: str, capability: Capability) -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""

    # Identical layers are generated once.
    kernel = cache(lambda plan: kernel_text(plan, kind, capability))
    containers = set()
    names: set[str] = set()
    for call in program.calls:
        stem = _file_stem(call.spec.name, names)
        for form, ending in ((Form.LAYER, ""), (Form.TILE, ".pe")):
            plan = nominal_plan(call.spec, form)
            yield f"{stem}{ending}", kernel(plan)
            if plan.value_tensors:
                containers.add((plan.container, form, ending))
    for container, form, ending in sorted(containers):
        yield f"statistics.{container}{ending}", _text(_statistics_module(container, form, kind), kind, capability)


def _module(plan: KernelPlan, kind: str, capability: Capability) -> Any:
    if kind == "c":
        return GenericDesign(vectors=False).build(plan)
    return designs(plan, capability)[0].build(plan)


def _statistics_module(container: Container, form: Form, kind: str) -> Any:
    from tvm import tirx

    from binpoint.backends.tensor_expression import statistics_kernel

    if kind != "c":
        return statistics_kernel.build(container, form)

    def leading_zeros(value: Any) -> Any:
        """TVM's C generator has none of its own."""
        builtin, unsigned = ("clz", "uint32") if container is Container.INT32 else ("clzll", "uint64")
        return tirx.call_extern("int32", f"__builtin_{builtin}", value.astype(unsigned))

    return statistics_kernel.build(container, form, leading_zeros)


def _text(module: Any, kind: str, capability: Capability) -> str:
    from tvm import compile as compile_module
    from tvm.target import Target

    from binpoint.backends.tensor_expression.codegen import target

    if kind == "tir":
        return str(module.script())
    if kind == "c":
        return str(compile_module(module, target=Target({"kind": "c"})).mod.inspect_source())
    return str(compile_module(module, target=target(capability)).mod.inspect_source("ll"))


def _file_stem(name: str, taken: set[str]) -> str:
    """A kernel's name as a file name, different from the ones taken."""
    stem = plain = re.sub(r"[^\w.-]", "_", name)
    count = 1
    while stem in taken:
        count += 1
        stem = f"{plain}-{count}"
    taken.add(stem)
    return stem
