"""Measure training steps of examples/networks/vgg-small.bp: int8, int16, without statistics, and PyTorch in float32.

A step is all that `binpoint train` does with a mini-batch on dlu2048: forward, loss, backward, update, statistics,
decisions about exponents. PyTorch trains the same network with SGD in a process of its own (see `torch_peer`), in both
memory formats. All take turns, a few steps at a time, so that a slow moment of the machine hits every one. The table
has the median and the fastest of all steps: the latter is what remains where others use the machine as well.
`python bench/training.py [ROUNDS]`; the numbers also go to bench/results/training.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from torch_peer import FORMATS, PYTHON, TorchPeer

from binpoint.backends.tensor_expression.threads import available_cores
from binpoint.cli.train_options import add_train_arguments
from binpoint.cli.train_setup import make_engine, set_up
from binpoint.runtime.training.data_order import DataOrder
from binpoint.support.numeric import fixed_constant

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"

BATCH, IMAGES = 64, 1280
STEPS = 3
"""Steps of a turn."""

WARM_UP = 20
"""Steps before the first turn: code is generated, and allocations have gone through a cycle of 16 mini-batches."""

WIDTHS = ("activations", "weights", "gradients")
INT16, FIXED = dict.fromkeys(WIDTHS, "16"), {"update": "fixed"}
NO_STATISTICS = "no statistics"
ENGINES: dict[str, dict[str, str]] = {
    "int8": {},
    f"int8, {NO_STATISTICS}": FIXED,
    "int16": INT16,
    f"int16, {NO_STATISTICS}": INT16 | FIXED,
}
"""What is measured, and how its numeric policy differs from the network's. A fixed exponent needs no statistics."""

GOALS = {"int8": 1.0, "int16": 1.6}
"""The most that a step may take, in steps of PyTorch."""

STATISTICS_GOAL = 0.1
"""The share of a step that statistics may take."""


def binpoint_steps(numeric: dict[str, str], threads: int) -> Iterator[float]:
    """The seconds of one step after the other, on the first digits in turn."""
    network, data = ROOT / "examples" / "networks" / "vgg-small.bp", ROOT / "examples" / "data" / "mnist"
    words = [str(network), "-t", "dlu2048", "--data", f"mnist:{data}#train", "--limit", str(IMAGES)]
    words += ["--batch", str(BATCH), "--threads", str(threads)]
    for key, value in numeric.items():
        words += ["--set", f"numeric.{key}={value}"]
    parser = argparse.ArgumentParser()
    add_train_arguments(parser)
    arguments = parser.parse_args(words)
    setup = set_up(arguments)
    engine = make_engine(arguments, setup, None, None)
    order, rate = DataOrder(len(setup.training), BATCH, seed=0), fixed_constant(arguments.lr, 16)
    for step in count():
        samples = setup.training.take(order.step(step))
        start = time.perf_counter()
        engine.train(samples.inputs, samples.labels, rate)
        yield time.perf_counter() - start


def torch_steps(peer: TorchPeer, memory_format: str) -> Iterator[float]:
    """The seconds of one step after the other."""
    while True:
        yield peer.seconds(what="step", batch=BATCH, memory_format=memory_format)


def measure(threads: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of the steps of every engine, in turns."""
    engines = {name: binpoint_steps(numeric, threads) for name, numeric in ENGINES.items()}
    peer = TorchPeer(threads) if TorchPeer.available() else None
    if peer is not None:
        engines |= {f"PyTorch {peer.version} {each}": torch_steps(peer, each) for each in FORMATS}
    for steps in engines.values():
        list(islice(steps, WARM_UP))
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, steps in engines.items():
            seconds[name] += islice(steps, STEPS)
    if peer is not None:
        peer.close()
    return seconds


def report(threads: int, seconds: dict[str, list[float]]) -> dict[str, object]:
    """Print the results for a number of threads; gives them for the JSON file, by medians and by the fastest steps."""
    row: dict[str, object] = {"threads": threads}
    for word, choose in (("median", statistics.median), ("fastest", min)):
        milliseconds = {name: round(1000 * choose(times), 2) for name, times in seconds.items()}
        row[word] = {"milliseconds": milliseconds, **compare(milliseconds)}
        print(f"\n{threads} thread(s), {word} step")
        for name, value in milliseconds.items():
            print(f"  {name:<40} {value:>8.1f} ms")
        for name, value in compare(milliseconds).items():
            print(f"  {name:<40} {value:>8.3f}")
    return row


def compare(milliseconds: dict[str, float]) -> dict[str, float]:
    """What the goals are about: the share of statistics in a step, and a step in steps of the faster PyTorch."""
    found = {}
    torch = min((value for name, value in milliseconds.items() if name not in ENGINES), default=None)
    for name, goal in GOALS.items():
        with_statistics, without = milliseconds[name], milliseconds[f"{name}, {NO_STATISTICS}"]
        share = (with_statistics - without) / with_statistics
        found[f"{name}: statistics (goal {STATISTICS_GOAL})"] = round(share, 4)
        if torch is not None:
            found[f"{name}: steps of PyTorch (goal {goal})"] = round(with_statistics / torch, 3)
    return found


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    if not TorchPeer.available():
        print(f"no PyTorch here: install the extra `bench`, or name an interpreter that has it in {PYTHON}")
    rows = [report(threads, measure(threads, rounds)) for threads in sorted({1, available_cores()})]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "training.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
