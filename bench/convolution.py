"""Measure convolution and linear kernels: the design that is chosen beside the direct and the portable one, one thread.

A call is the whole kernel: packing with padding, sums, bias, ReLU, rounding shift, saturation, events. For each layer
all kernels run in turn, so that a slow moment of the machine hits all, and their outputs are compared; the table has
medians. Multiply-accumulates are those of the mathematics, of which Winograd's convolution does fewer.
`python bench/convolution.py [ROUNDS]`; it also goes to bench/results/convolution.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from unittest import mock

import numpy as np

from binpoint.backends.kernel import Convolution, KernelExponents, KernelParameters, KernelSpec, Relu, TensorSpec
from binpoint.backends.tensor_expression import compiler
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.capability import Capability, host_capability
from binpoint.compiler.layers import window_output

EXPONENTS = {bits: KernelExponents(inputs=(0,), output=bits) for bits in (8, 16)}
"""Of a layer with so many bits."""

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Layer:
    """A square convolution, or a linear layer (`size` 1): channels in and out, input size, kernel, batch."""

    name: str
    channels: int
    outputs: int
    size: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    batch: int = 1

    def spec(self, bits: int) -> KernelSpec:
        """The kernel with ReLU; one width for input, weights and output."""
        size = window_output(self.size, self.kernel, self.stride, self.padding, self.padding)
        convolution = Convolution(
            (self.kernel, self.kernel),
            (self.stride, self.stride),
            (self.padding,) * 4,
            weight_bits=bits,
            bias_bits=16,
        )
        maps = TensorSpec(self.channels, self.size, self.size, bits)
        return KernelSpec(self.name, convolution, (maps,), TensorSpec(self.outputs, size, size, bits), Relu())

    def macs(self) -> int:
        """Multiply-accumulates of one call, as the mathematics counts them."""
        spec = self.spec(8)
        return self.batch * prod(spec.output.shape) * self.channels * self.kernel**2


LAYERS = (
    Layer("resnet18 conv1 7x7/2", 3, 64, 224, 7, 2, 3),
    Layer("resnet18 64 3x3", 64, 64, 56, 3, 1, 1),
    Layer("resnet18 128 3x3", 128, 128, 28, 3, 1, 1),
    Layer("resnet18 256 3x3", 256, 256, 14, 3, 1, 1),
    Layer("resnet18 512 3x3", 512, 512, 7, 3, 1, 1),
    Layer("resnet18 64-128 3x3/2", 64, 128, 56, 3, 2, 1),
    Layer("resnet18 64-128 1x1/2", 64, 128, 56, 1, 2),
    Layer("64-256 1x1", 64, 256, 56),
    Layer("256-512 1x1", 256, 512, 14),
    Layer("yolov3-tiny 3-16 3x3", 3, 16, 416, 3, 1, 1),
    Layer("yolov3-tiny 512 3x3", 512, 512, 13, 3, 1, 1),
    Layer("lenet conv1 5x5, N=100", 1, 6, 28, 5, 1, 2, batch=100),
    Layer("lenet conv2 5x5, N=100", 6, 16, 14, 5, batch=100),
    Layer("mnist-conv 8-16 5x5, N=100", 8, 16, 14, 5, 1, 2, batch=100),
    Layer("lenet fc 400-120, N=100", 400, 120, 1, batch=100),
    Layer("linear 512-1000, N=1", 512, 1000, 1),
    Layer("linear 512-1000, N=32", 512, 1000, 1, batch=32),
)


@dataclass(frozen=True)
class Measured:
    """A call that gives its output in blocks, and the design of its kernel."""

    design: str
    call: Callable[[], np.ndarray]


def kernel_call(backend: TensorExpressionBackend, layer: Layer, bits: int) -> Measured:
    """A call of a layer's kernel on random mantissas, the same for each backend."""
    generator = np.random.default_rng(0)
    spec, half = layer.spec(bits), 1 << (bits - 1)
    # No weight of -2^(b-1), as a compiler that rounds floats symmetrically leaves them.
    weight = generator.integers(1 - half, half, (layer.outputs, layer.channels, layer.kernel, layer.kernel))
    bias = generator.integers(-1000, 1000, layer.outputs)
    maps = generator.integers(-half, half, (layer.batch, *spec.inputs[0].shape))
    kernel = backend.prepare(spec, KernelParameters(weight, bias))
    buffer = backend.upload(maps, spec.inputs[0])
    return Measured(kernel.design(EXPONENTS[bits]), lambda: kernel([buffer], EXPONENTS[bits]).output.blocked)


def seconds_a_call(call: Callable[[], np.ndarray]) -> float:
    """The mean over as many calls as fill about 20 ms."""
    start = time.perf_counter()
    call()
    repeats = max(1, int(0.02 / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def measure(layer: Layer, bits: int, rounds: int) -> dict[str, object]:
    """Medians of one layer, all designs in turn."""
    kernels = {"chosen": kernel_call(TensorExpressionBackend(1), layer, bits)}
    with mock.patch.object(compiler, "winograd_designs", return_value=[]):
        kernels["direct"] = kernel_call(TensorExpressionBackend(1), layer, bits)
    kernels["portable"] = kernel_call(TensorExpressionBackend(1, Capability.GENERIC), layer, bits)
    first, *others = (kernel.call() for kernel in kernels.values())
    if not all(np.array_equal(first, other) for other in others):
        raise SystemExit(f"{layer.name}: the designs differ")
    seconds: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(rounds):
        for name, kernel in kernels.items():
            seconds[name].append(seconds_a_call(kernel.call))
    speeds = {name: layer.macs() / statistics.median(times) / 1e9 for name, times in seconds.items()}
    row: dict[str, object] = {"layer": layer.name, "bits": bits, "mega_macs": round(layer.macs() / 1e6, 3)}
    row["design"] = kernels["chosen"].design
    return row | {f"{name}_giga_macs_per_second": round(speed, 2) for name, speed in speeds.items()}


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    if host_capability() is not Capability.AVX2:
        raise SystemExit("this CPU has no AVX2: there is only one design to measure")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'layer':<28} {'bits':>4} {'work':>12} {'chosen':>14} {'direct':>14} {'portable':>14}  design")
    rows = []
    for bits in EXPONENTS:
        for layer in LAYERS:
            row = measure(layer, bits, rounds)
            rows.append(row)
            speeds = (row[f"{name}_giga_macs_per_second"] for name in ("chosen", "direct", "portable"))
            columns = " ".join(f"{speed:>7} GMAC/s" for speed in speeds)
            print(f"{row['layer']:<28} {bits:>4} {row['mega_macs']:>7} MMAC {columns}  {row['design']}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "convolution.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
