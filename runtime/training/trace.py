"""The recorded message log of a training run: one JSON object a line (`--trace FILE`)."""

from __future__ import annotations

import json
from typing import Protocol

from binpoint.runtime.training.messages import CallStage, Party, Stage


class Writable(Protocol):
    """Takes text."""

    def write(self, text: str, /) -> object:
        """Write it."""


class Trace:
    """Writes each message between host and accelerator, and each step that one of them does by itself.

    Args:
        stream: where lines go; None records nothing.
    """

    def __init__(self, stream: Writable | None = None) -> None:
        self._stream = stream
        self.step = 0
        """The mini-batch that the next messages belong to, from 1; 0 before the first."""

    def record(
        self,
        stage: Stage,
        sender: Party,
        receiver: Party,
        kind: str,
        layer: str | None = None,
        payload_bytes: int | None = 0,
        call: CallStage | None = None,
    ) -> None:
        """Write one message. Where sender and receiver are one, it is something that the party does."""
        if self._stream is None:
            return
        line = {
            "step": self.step,
            "stage": stage.value,
            "call": None if call is None else call.value,
            "from": sender.value,
            "to": receiver.value,
            "kind": kind,
            "layer": layer,
            "bytes": payload_bytes,
        }
        self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
