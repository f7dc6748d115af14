"""PyTorch in float32 as a process of its own, which waits for a token before each measurement.

Two thread pools in one process spin against each other, and with torch installed `import tvm` takes seconds. So the
benchmarks start this file with an interpreter that has torch (`TorchPeer`); each line on its standard input is a job
as JSON, each line on its standard output the seconds that it took.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PYTHON = "BINPOINT_BENCH_TORCH"
"""The environment variable that names an interpreter with torch; without it, the one that runs the benchmark."""

FORMATS = ("contiguous_format", "channels_last")


class TorchPeer:
    """Runs jobs in the other process, a job at a time."""

    def __init__(self, threads: int) -> None:
        command = [os.environ.get(PYTHON, sys.executable), str(Path(__file__).resolve()), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self._receive()

    @staticmethod
    def available() -> bool:
        """Whether there is an interpreter with torch."""
        return PYTHON in os.environ or importlib.util.find_spec("torch") is not None

    def seconds(self, **job: Any) -> float:
        """What one call takes, in seconds; see `Jobs`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return float(self._receive())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _receive(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("PyTorch has ended: see above")
        return line.strip()


class Jobs:
    """What the other process does, prepared once for each job."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._calls: dict[str, Callable[[], object]] = {}

    def seconds(self, job: dict[str, Any]) -> float:
        """The time of a job: `what` is `step` or `gradient`, the rest are the arguments of the method.

        Where the job has a `duration`, the mean over as many calls as fill it.
        """
        duration = job.pop("duration", 0)
        key = json.dumps(job)
        if key not in self._calls:
            what = {"step": self._step, "gradient": self._gradient}[job.pop("what")]
            self._calls[key] = what(**job)
        call = self._calls[key]
        repeats, start = 0, time.perf_counter()
        while not repeats or time.perf_counter() - start < duration:
            call()
            repeats += 1
        return (time.perf_counter() - start) / repeats

    def _step(self, batch: int, memory_format: str) -> Callable[[], object]:
        """A training step of examples/networks/vgg-small.bp: forward, loss, backward, SGD."""
        torch = self._torch
        torch.manual_seed(0)
        layers, channels = [], 1
        for width in (32, 64, 128):
            for _ in range(2):
                convolution = torch.nn.Conv2d(channels, width, 3, padding=1, bias=False)
                layers += [convolution, torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
                channels = width
            layers.append(torch.nn.MaxPool2d(2))
        layers += [torch.nn.Flatten(), torch.nn.Linear(9 * channels, 10)]
        network = torch.nn.Sequential(*layers).to(memory_format=getattr(torch, memory_format))
        images = torch.rand(batch, 1, 28, 28).to(memory_format=getattr(torch, memory_format))
        labels = torch.randint(10, (batch,))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05)

        def step() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()

        return step

    def _gradient(
        self,
        batch: int,
        channels: int,
        outputs: int,
        size: int,
        kernel: int,
        padding: int,
        of_weights: bool,
        memory_format: str,
    ) -> Callable[[], object]:
        """`convolution_backward` for the gradient of the data or of the weights alone."""
        torch = self._torch

        def draw(*shape: int) -> Any:
            return torch.randn(shape).to(memory_format=getattr(torch, memory_format))

        after = size + 2 * padding - kernel + 1
        gradient, images = draw(batch, outputs, after, after), draw(batch, channels, size, size)
        weight = draw(outputs, channels, kernel, kernel)
        mask = [not of_weights, of_weights, False]
        one, pads = [1, 1], [padding, padding]
        return lambda: torch.ops.aten.convolution_backward(
            gradient, images, weight, None, one, pads, one, False, [0, 0], 1, mask
        )


def main() -> None:
    """Serve jobs until standard input ends."""
    import torch

    torch.set_num_threads(int(sys.argv[1]))
    print(torch.__version__, flush=True)
    jobs = Jobs()
    for line in sys.stdin:
        print(jobs.seconds(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
