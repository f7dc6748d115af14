"""What can be wrong with a target: faults by field, which a description file's reader locates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a target: the fields involved (the one to change first) and what they should be.

    `code` is "out-of-range" for one value alone, "contradiction" for values that do not fit together.
    """

    code: str
    fields: tuple[str, ...]
    message: str
    found: str
    expected: str
    hint: str | None = None


class InvalidTargetError(ValueError):
    """Values that make no target. A description file's reader turns the faults into located diagnostics."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.message} (found {fault.found})" for fault in faults))


def out_of_range(field: str, value: int, least: int, most: int, name: str | None = None) -> list[Fault]:
    """The fault of a value outside of its limits, if it is; `name` is what messages call the field."""
    if least <= value <= most:
        return []
    return [Fault("out-of-range", (field,), f"{name or field} is out of range", str(value), f"{least} to {most}")]
