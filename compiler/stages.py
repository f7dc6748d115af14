"""Running the stages of a compilation: timed, and shown to whoever wants to see what each leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from binpoint.compiler.build_nn import build_nn
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.pass_runner import Timing, Watcher, run_passes
from binpoint.dialect.text import print_module, verify_module


@dataclass
class Stages:
    """Keeps the times of stages and shows their results to `watch`."""

    watch: Watcher | None = None
    timings: list[Timing] = field(default_factory=list)

    @contextmanager
    def timed(self, stage: str, step: str) -> Iterator[None]:
        """Keep the time of the block."""
        start = time.perf_counter()
        yield
        self.timings.append(Timing(stage, step, time.perf_counter() - start))

    def show(self, name: str, text: Callable[[], str]) -> None:
        """Show a result to the watcher, if there is one."""
        if self.watch is not None:
            self.watch(name, text)

    def build(self, network: NetworkGraph, passes: Sequence[ModulePass]) -> ModuleOp:
        """The graph as layers over real numbers, after these passes."""
        with self.timed("nn", "build-nn"):
            module = build_nn(network)
            verify_module(module)
        self.show("nn.mlir", lambda: print_module(module))
        self.run(module, passes, "nn")
        return module

    def run(self, module: ModuleOp, passes: Sequence[ModulePass], stage: str) -> None:
        """Passes over a module, in place."""
        self.timings += run_passes(module, passes, stage, self.watch)
