"""Measure convolution and linear kernels: the AVX2 design beside the portable one, on one thread.

A call is the whole kernel: packing with padding, sums, bias, ReLU, rounding shift, saturation, events. For each layer
both kernels run in turn, so that a slow moment of the machine hits both, and their outputs are compared; the table has
medians. `python bench/convolution.py [ROUNDS]`; it also goes to bench/results/convolution.json.
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

import numpy as np

from binpoint.backends.kernel import Convolution, KernelExponents, KernelParameters, KernelSpec, Relu, TensorSpec
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.capability import Capability, host_capability
from binpoint.compiler.layers import window_output

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


def kernel_call(backend: TensorExpressionBackend, layer: Layer, bits: int) -> Callable[[], np.ndarray]:
    """A call of a layer's kernel on random mantissas, the same for each backend; it returns the output in blocks."""
    generator = np.random.default_rng(0)
    spec, half = layer.spec(bits), 1 << (bits - 1)
    # No weight of -2^(b-1), as a compiler that rounds floats symmetrically leaves them.
    weight = generator.integers(1 - half, half, (layer.outputs, layer.channels, layer.kernel, layer.kernel))
    bias = generator.integers(-1000, 1000, layer.outputs)
    maps = generator.integers(-half, half, (layer.batch, *spec.inputs[0].shape))
    kernel = backend.prepare(spec, KernelParameters(weight, bias))
    buffer = backend.upload(maps, spec.inputs[0])
    exponents = KernelExponents(inputs=(0,), output=bits)
    return lambda: kernel([buffer], exponents).output.blocked


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
    """Medians of one layer, both designs in turn."""
    calls = {
        level.value: kernel_call(TensorExpressionBackend(1, level), layer, bits)
        for level in (Capability.AVX2, Capability.GENERIC)
    }
    outputs = [call() for call in calls.values()]
    if not np.array_equal(*outputs):
        raise SystemExit(f"{layer.name}: the designs differ")
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(seconds_a_call(call))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "layer": layer.name,
        "bits": bits,
        "mega_macs": round(layer.macs() / 1e6, 3),
        "avx2_giga_macs_per_second": round(layer.macs() / medians["avx2"] / 1e9, 2),
        "generic_giga_macs_per_second": round(layer.macs() / medians["generic"] / 1e9, 2),
        "ratio": round(medians["generic"] / medians["avx2"], 1),
    }


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    if host_capability() is not Capability.AVX2:
        raise SystemExit("this CPU has no AVX2: there is only one design to measure")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'layer':<28} {'bits':>4} {'work':>12} {'AVX2':>14} {'portable':>14} {'ratio':>7}")
    rows = []
    for bits in (8, 16):
        for layer in LAYERS:
            row = measure(layer, bits, rounds)
            rows.append(row)
            print(
                f"{row['layer']:<28} {bits:>4} {row['mega_macs']:>7} MMAC {row['avx2_giga_macs_per_second']:>7} GMAC/s"
                f" {row['generic_giga_macs_per_second']:>7} GMAC/s {row['ratio']:>6}x",
                flush=True,
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "convolution.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
