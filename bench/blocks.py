"""Measure what block exponents cost: YOLOv3-tiny in blocks of 4x4 beside plain 8-bit fixed point, same weights.

For each layer, and for the whole network, the three forms (one exponent a map; 4x4 blocks shared by all channels; 4x4
blocks of one channel) run in turn. The table has medians over the rounds: of the plain form's time, and of what the
others take beside it in the same round; processor time on one thread, time on the wall on more. Blocks have 8
candidates, analysed.
`python bench/blocks.py [ROUNDS]`; it also goes to bench/results/blocks.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import numpy as np
from rounds import Call, measure, one_after_the_other, ratio
from yolov3_tiny import BITS, PICTURE, calibrate, layers, picture

from binpoint.backends.blocks import BlockExponents, BlockMap, grid_shape
from binpoint.backends.kernel import KernelExponents, TensorSpec
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.threads import use_threads
from binpoint.support.numeric import Granularity

RESULTS = Path(__file__).resolve().parent / "results"
CANDIDATES = 8
FORMS = {"plain": None, "shared": Granularity((4, 4)), "channel": Granularity((4, 4), per_channel=True)}
THREADS = (1, 2)
WARM_UP = 2
"""Rounds before those that count."""


def plain_calls(backend: TensorExpressionBackend, exponents: dict[str, int]) -> dict[str, Call]:
    """A call for each layer, on the maps that the layers before it have left."""
    maps = {"picture": backend.upload(picture(), TensorSpec(3, PICTURE, PICTURE, BITS))}
    calls: dict[str, Call] = {}
    for layer in layers():
        name = layer.spec.name
        kernel = backend.prepare(layer.spec, layer.parameters)
        inputs = tuple(exponents[each] for each in layer.inputs)
        settings = KernelExponents(inputs, exponents[name], 0, inputs[0])

        def call(kernel=kernel, sources=layer.inputs, settings=settings, name=name) -> None:
            maps[name] = kernel([maps[each] for each in sources], settings).output

        call()
        calls[name] = call
    return calls


def block_calls(
    backend: TensorExpressionBackend, exponents: dict[str, int], granularity: Granularity
) -> dict[str, Call]:
    """The same in blocks."""
    tensor = TensorSpec(3, PICTURE, PICTURE, BITS)
    grid = np.zeros((1, *grid_shape(tensor)), np.int32)
    maps = {"picture": BlockMap(backend.upload(picture(), tensor), grid)}
    calls: dict[str, Call] = {}
    for layer in layers(granularity):
        name = layer.spec.name
        kernel = backend.prepare_blocks(layer.spec, layer.parameters)
        top = exponents[name]
        candidates = tuple(range(top, top - CANDIDATES, -1))
        settings = BlockExponents((0,), (exponents[layer.inputs[0]],), candidates, top)

        def call(kernel=kernel, sources=layer.inputs, settings=settings, name=name) -> None:
            maps[name] = kernel([maps[each] for each in sources], settings).output

        call()
        if hasattr(kernel, "design") and kernel.design([maps[each] for each in layer.inputs], settings) is None:
            raise SystemExit(f"{name}: not computed by generated code")
        calls[name] = call
    return calls


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    backend = TensorExpressionBackend(max(THREADS))
    exponents = calibrate(backend)
    calls = {
        form: plain_calls(backend, exponents) if granularity is None else block_calls(backend, exponents, granularity)
        for form, granularity in FORMS.items()
    }
    rows = []
    layer_forms = {name: {form: each[name] for form, each in calls.items()} for name in calls["plain"]}
    cases = layer_forms | {"network": {form: one_after_the_other(each) for form, each in calls.items()}}
    for threads in THREADS:
        use_threads(threads)
        print(f"{threads} thread{'s' if threads > 1 else ' '}{'plain ms':>12} {'shared':>8} {'channel':>8}")
        for name, forms in cases.items():
            measure(forms, WARM_UP, threads)
            seconds = measure(forms, rounds, threads)
            plain = median(seconds["plain"]) * 1e3
            ratios = {form: ratio(seconds, form, "plain") for form in ("shared", "channel")}
            print(f"{name:<9} {plain:>11.3f} {ratios['shared']:>7.2f}x {ratios['channel']:>7.2f}x", flush=True)
            rows.append(
                {"threads": threads, "layer": name, "plain_ms": round(plain, 4)}
                | {form: round(each, 3) for form, each in ratios.items()}
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "blocks.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
