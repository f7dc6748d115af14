"""Measure the gradients of convolutions, int8 and int16, with PyTorch's `convolution_backward` in float32 beside them.

A call is the whole kernel: packing with padding, sums, rounding shift, saturation, events. PyTorch runs in a process of
its own (see `torch_peer`), in the faster of its memory formats; all take turns, and the table has medians.
`python bench/gradients.py [ROUNDS]`; it also goes to bench/results/gradients.json.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from convolution import seconds_a_call
from torch_peer import FORMATS, PYTHON, TorchPeer

from binpoint.backends.gradients import ConvolutionDataGradient, ConvolutionWeightGradient
from binpoint.backends.kernel import Convolution, KernelExponents, KernelParameters, KernelSpec, TensorSpec
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend

RESULTS = Path(__file__).resolve().parent / "results"

DURATION = 0.02
"""Seconds of a measurement of PyTorch."""


@dataclass(frozen=True)
class Layer:
    """A square convolution of stride 1 whose result is as large as its input."""

    name: str
    batch: int
    channels: int
    outputs: int
    size: int
    kernel: int = 3

    @property
    def padding(self) -> int:
        """On each side."""
        return self.kernel // 2

    def macs(self) -> int:
        """Multiply-accumulates of either gradient."""
        return self.batch * self.outputs * self.channels * (self.size * self.kernel) ** 2

    def maps(self, bits: int) -> tuple[TensorSpec, TensorSpec]:
        """Input and output of the layer."""
        return TensorSpec(self.channels, *[self.size] * 2, bits), TensorSpec(self.outputs, *[self.size] * 2, bits)


LAYERS = (
    Layer("resnet18 64 3x3, N=4", 4, 64, 64, 56),
    Layer("resnet18 128 3x3, N=8", 8, 128, 128, 28),
    Layer("resnet18 256 3x3, N=8", 8, 256, 256, 14),
    Layer("16-32 5x5, N=32", 32, 16, 32, 28, 5),
    Layer("vgg-small 32 3x3, N=64", 64, 32, 32, 28),
    Layer("vgg-small 64 3x3, N=64", 64, 64, 64, 14),
    Layer("vgg-small 128 3x3, N=64", 64, 128, 128, 7),
)


def kernel_call(backend: TensorExpressionBackend, layer: Layer, bits: int, *, of_weights: bool) -> Callable[[], object]:
    """A call of a gradient's kernel on random mantissas."""
    generator, half = np.random.default_rng(0), 1 << (bits - 1)
    convolution = Convolution((layer.kernel,) * 2, (1, 1), (layer.padding,) * 4, weight_bits=bits)
    images, gradient = layer.maps(bits)
    shape = layer.outputs, layer.channels, layer.kernel, layer.kernel

    def draw(*shape: int) -> np.ndarray:
        return generator.integers(1 - half, half, shape)

    uploaded = [backend.upload(draw(layer.batch, *each.shape), each) for each in (images, gradient)]
    if of_weights:
        output = TensorSpec(*shape[1:], 16)
        spec = KernelSpec("dw", ConvolutionWeightGradient(convolution), (images, gradient), output)
        parameters, inputs = KernelParameters(), uploaded
    else:
        spec = KernelSpec("dx", ConvolutionDataGradient(convolution), (gradient,), images)
        parameters, inputs = KernelParameters(draw(*shape)), uploaded[1:]
    kernel = backend.prepare(spec, parameters)
    exponents = KernelExponents(inputs=(0,) * len(inputs), output=2 * bits)
    return lambda: kernel(inputs, exponents)


def torch_call(peer: TorchPeer, layer: Layer, memory_format: str, *, of_weights: bool) -> Callable[[], float]:
    """The seconds of a call of PyTorch's gradient."""
    sizes = ("batch", "channels", "outputs", "size", "kernel", "padding")
    job = {name: getattr(layer, name) for name in sizes}
    return lambda: peer.seconds(
        what="gradient", duration=DURATION, of_weights=of_weights, memory_format=memory_format, **job
    )


def measure(
    backend: TensorExpressionBackend, peer: TorchPeer | None, layer: Layer, rounds: int, *, of_weights: bool
) -> dict[str, object]:
    """Giga-MAC/s of one gradient by who computes it, medians."""
    calls: dict[str, Callable[[], float]] = {}
    for bits in (8, 16):
        call = kernel_call(backend, layer, bits, of_weights=of_weights)
        calls[f"int{bits}"] = lambda call=call: seconds_a_call(call)
    if peer is not None:
        calls |= {each: torch_call(peer, layer, each, of_weights=of_weights) for each in FORMATS}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(call())
    rates = {name: layer.macs() / statistics.median(times) / 1e9 for name, times in seconds.items()}
    float32 = max((rates.pop(name) for name in FORMATS if name in rates), default=None)
    return {
        "layer": layer.name,
        "gradient": "weights" if of_weights else "data",
        **{f"{name}_giga_macs_per_second": round(rate, 2) for name, rate in rates.items()},
        "float32_giga_macs_per_second": None if float32 is None else round(float32, 2),
    }


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    backend = TensorExpressionBackend(threads=1)
    if not TorchPeer.available():
        print(f"no PyTorch here: install the extra `bench`, or name an interpreter that has it in {PYTHON}")
    peer = TorchPeer(1) if TorchPeer.available() else None
    print(f"{'layer':<24} {'gradient':>8} {'int8':>8} {'int16':>8} {'float32':>8}  GMAC/s, one thread")
    rows = []
    for of_weights in (False, True):
        for layer in LAYERS:
            row = measure(backend, peer, layer, rounds, of_weights=of_weights)
            rows.append(row)
            rates = [row[f"{name}_giga_macs_per_second"] for name in ("int8", "int16", "float32")]
            words = " ".join(f"{'-' if rate is None else rate:>8}" for rate in rates)
            print(f"{layer.name:<24} {row['gradient']:>8} {words}", flush=True)
    if peer is not None:
        peer.close()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gradients.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
