"""Running passes: verified after each, timed, and shown to whoever wants to see the IR in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.text import make_context, print_module, verify_module
from binpoint.support.diagnostics import user_error

Watcher = Callable[[str, Callable[[], str]], None]
"""Called with a file name for what is there now, such as "strip-loss.mlir", and a function that writes it out."""


@dataclass(frozen=True)
class Timing:
    """How long one step took. `stage` is the stage that it belongs to."""

    stage: str
    step: str
    seconds: float


def run_passes(
    module: ModuleOp, passes: Sequence[ModulePass], stage: str = "opt", watch: Watcher | None = None
) -> list[Timing]:
    """Run passes over a verified module, in place.

    Args:
        module: the module.
        passes: what to run, in order.
        stage: the stage, for the timings.
        watch: called after each pass.

    Returns:
        The time of each pass, its verification included.

    Raises:
        UserError: a pass refuses the module, or leaves one that does not verify.
    """
    context = make_context()
    timings = []
    for each in passes:
        start = time.perf_counter()
        try:
            each.apply(context, module)
        except VerifyException as error:
            raise user_error("pass-failed", f"{each.name}: {error}") from None
        verify_module(module)
        timings.append(Timing(stage, each.name, time.perf_counter() - start))
        if watch is not None:
            watch(f"{each.name}.mlir", lambda: print_module(module))
    return timings
