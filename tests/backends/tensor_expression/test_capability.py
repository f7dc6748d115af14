"""What the CPU can do, and the override."""

from __future__ import annotations

from pathlib import Path

import pytest

from binpoint.backends.tensor_expression import capability
from binpoint.backends.tensor_expression.capability import (
    OVERRIDE,
    X86_64_V3,
    Capability,
    cpu_flags,
    host_capability,
)
from binpoint.support.diagnostics import UserError


def test_flags_of_the_first_cpu(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_flags(cpuinfo) == {"fpu", "avx2"}


@pytest.mark.parametrize("text", [None, "", "processor : 0\n"])
def test_no_flags(tmp_path: Path, text: str | None) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if text is not None:
        cpuinfo.write_text(text)
    assert cpu_flags(cpuinfo) == frozenset()


def test_levels_are_not_cpu_models() -> None:
    assert Capability.GENERIC.cpu is None
    assert Capability.AVX2.cpu == "x86-64-v3"


def test_detection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)
    expected = Capability.AVX2 if cpu_flags() >= X86_64_V3 else Capability.GENERIC
    assert host_capability() is expected


def test_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, "generic")
    assert host_capability() is Capability.GENERIC


def test_override_that_the_cpu_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, "avx2")
    monkeypatch.setattr(capability, "_detected", lambda: Capability.GENERIC)
    with pytest.raises(UserError, match="missing-capability"):
        host_capability()


def test_unknown_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OVERRIDE, "avx3")
    with pytest.raises(UserError, match="did you mean") as error:
        host_capability()
    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.code, diagnostic.found) == ("unknown-capability", "avx3")
