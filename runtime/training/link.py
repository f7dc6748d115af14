"""The way between host and accelerator: every message passes here, and is recorded."""

from __future__ import annotations

from typing import TypeVar

from binpoint.runtime.training.accelerator import EXECUTED, Accelerator
from binpoint.runtime.training.messages import (
    CallKernel,
    CallStage,
    CallSums,
    CallUpdate,
    Data,
    Finished,
    Party,
    Read,
    ReadStatistics,
    Reply,
    Request,
    Stage,
    Statistics,
)
from binpoint.runtime.training.trace import Trace

Answer = TypeVar("Answer", Finished, Data, Statistics)


class Link:
    """Carries the host's messages to an accelerator and the answers back."""

    def __init__(self, accelerator: Accelerator, trace: Trace) -> None:
        self._accelerator, self.trace = accelerator, trace

    def tell(self, request: Request, stage: Stage, layer: str | None = None) -> None:
        """Send what the accelerator only has to keep."""
        self._exchange(request, stage, layer, None)

    def call(
        self,
        request: CallKernel | CallSums | CallUpdate,
        stage: Stage,
        layer: str,
        call: CallStage | None = None,
    ) -> Finished:
        """Have an operation executed; returns when it is."""
        return _expect(self._exchange(request, stage, layer, call), Finished)

    def read(self, address: int, stage: Stage, layer: str | None = None) -> Data:
        """Fetch a tensor."""
        return _expect(self._exchange(Read(address), stage, layer, None), Data)

    def read_statistics(self, addresses: tuple[int, ...], stage: Stage) -> Statistics:
        """Fetch and clear what was acquired."""
        return _expect(self._exchange(ReadStatistics(addresses), stage, None, None), Statistics)

    def _exchange(self, request: Request, stage: Stage, layer: str | None, call: CallStage | None) -> Reply:
        front = self._accelerator.front
        self.trace.record(stage, Party.HOST, front, request.kind, layer, request.payload_bytes, call)
        reply = self._accelerator.receive(request, stage, layer)
        if reply is not None:
            done = EXECUTED.get(stage, stage) if isinstance(reply, Finished) else stage
            self.trace.record(done, front, Party.HOST, reply.kind, layer, reply.payload_bytes)
        return reply


def _expect(reply: Reply, kind: type[Answer]) -> Answer:
    if not isinstance(reply, kind):
        raise TypeError(f"the accelerator answers with {type(reply).__name__}, not {kind.__name__}")
    return reply
