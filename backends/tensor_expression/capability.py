"""What the host's CPU can do, as far as kernels care."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from binpoint.support.diagnostics import did_you_mean, user_error

OVERRIDE = "BINPOINT_CPU"
"""The environment variable that overrides the detection: `generic` or `avx2`."""

X86_64_V3 = frozenset({"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"})
"""What the x86-64 ABI's level v3 asks for, as Linux names it."""


class Capability(StrEnum):
    """The level that kernels are generated for.

    Levels, not CPU models: what is emitted does not depend on the machine that emits it.
    """

    GENERIC = "generic"
    """Any CPU that LLVM knows, without intrinsics: on x86-64 its first level, with SSE2."""
    AVX2 = "avx2"
    """x86-64-v3: AVX2 and what comes with it."""

    @property
    def cpu(self) -> str | None:
        """LLVM's name for the level, None for the architecture's baseline."""
        return "x86-64-v3" if self is Capability.AVX2 else None


def host_capability() -> Capability:
    """The level of this machine, or the one that BINPOINT_CPU names.

    Raises UserError where BINPOINT_CPU names an unknown level or one that the CPU lacks.
    """
    name = os.environ.get(OVERRIDE, "")
    if not name:
        return _detected()
    if name not in {level.value for level in Capability}:
        raise user_error(
            "unknown-capability",
            f"{OVERRIDE} names a CPU level that does not exist",
            found=name,
            expected=" or ".join(Capability),
            hint=did_you_mean(name, Capability),
        )
    level = Capability(name)
    if level is not Capability.GENERIC and level is not _detected():
        raise user_error("missing-capability", f"this CPU lacks what {OVERRIDE} asks for", found=name)
    return level


@lru_cache(maxsize=1)
def _detected() -> Capability:
    return Capability.AVX2 if cpu_flags() >= X86_64_V3 else Capability.GENERIC


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The features of the first CPU as Linux lists them; none where there is no such list."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))
