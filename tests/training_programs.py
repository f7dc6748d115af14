"""Small networks to train, made by the compiler, and data to train them on."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.training_program import TrainingProgram
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
from binpoint.runtime.data import ArraySource, Batch, Samples
from binpoint.runtime.pixels import PixelConverter
from binpoint.runtime.training.data_order import DataOrder
from binpoint.runtime.training.fixed_point import FixedPointEngine
from binpoint.runtime.training.machine import Machine
from binpoint.runtime.training.trial import first_exponents
from binpoint.support.numeric import fixed_constant
from binpoint.support.target import Allocation, RotationCount, Strategy, Target

BATCH = 8
RATE = fixed_constant(Fraction(1, 10), 16)

TARGET = Target("tests", 8, (2, 4), (0, 4), allocation=Allocation(Strategy.ROTATED, rotation=RotationCount.CONTINUOUS))
"""One PE in four has a statistics circuit."""

PLAIN = """
network plain {
  input image: 1x6x6 { scale = 1/128 }
  conv = conv2d(image, channels=4, kernel=3, padding=1)
  act = relu(conv)
  pool = max_pool(act, kernel=2)
  fc = linear(flatten(pool), features=3)
  output fc
}
numeric { update = msb-histogram(r_max = 2e-5, window = 4) }
"""

NORMALISED = """
network normalised {
  input image: 1x6x6 { scale = 1/128 }
  conv = conv2d(image, channels=4, kernel=3, padding=1, bias=false)
  bn = batch_norm(conv)
  act = relu(bn)
  pool = avg_pool(act, kernel=2)
  fc = linear(flatten(pool), features=3)
  output fc
}
numeric { gradients = 16 bits  update = msb-histogram(r_max = 2e-5) every 2 }
"""

STOCHASTIC = PLAIN.replace("numeric {", "numeric { rounding = stochastic ")


@lru_cache
def network(text: str = PLAIN) -> NetworkGraph:
    return parse_network_text(text, "small.bp", None)


@lru_cache
def trainable(text: str = PLAIN, momentum: Fraction = Fraction(9, 10), scale_exponent: int = 0) -> TrainingProgram:
    options = TrainingOptions(BATCH, momentum, scale_exponent=scale_exponent)
    return compile_training(network(text), TARGET, options).program


def first_parameters(text: str = PLAIN) -> dict[str, np.ndarray]:
    return dict(draw_parameters(network(text), 0))


def running(text: str = PLAIN) -> dict[str, np.ndarray]:
    """The first running statistics."""
    parameters = first_parameters(text).items()
    return {name: values.astype(np.float64) for name, values in parameters if name.endswith((".mean", ".variance"))}


def samples(count: int = 60, seed: int = 3) -> Samples:
    """Images with one bright third, from left to right: their label."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    pixels = random.integers(0, 60, (count, 1, 6, 6))
    for index, label in enumerate(labels):
        pixels[index, 0, :, 2 * label : 2 * label + 2] += random.integers(40, 60)
    return Samples({"image": ArraySource(pixels.astype(np.uint8), PixelConverter(trainable().inputs[0]))}, labels)


def mini_batch(number: int = 0) -> Batch:
    """The samples of one mini-batch of training."""
    return samples().take(DataOrder(60, BATCH, 0).step(number))


def exponents(text: str = PLAIN, **options: int) -> dict[str, int]:
    """First exponents, from a float trial."""
    batch, program = mini_batch(), trainable(text, **options)
    return first_exponents(program, first_parameters(text), running(text), batch.inputs, batch.labels, RATE)


def machine(target: Target = TARGET, **options: object) -> Machine:
    return Machine(OracleBackend(), target, BATCH, **options)


def engine(text: str = PLAIN, on: Machine | None = None, **options: int) -> FixedPointEngine:
    """An engine before its first mini-batch."""
    return FixedPointEngine.start(
        trainable(text, **options), on or machine(), first_parameters(text), running(text), exponents(text, **options)
    )


def train(trained: FixedPointEngine, steps: int) -> list:
    """Some mini-batches; gives what each left."""
    results = []
    for _ in range(steps):
        batch = mini_batch(trained.step)
        results.append(trained.train(batch.inputs, batch.labels, RATE))
    return results


def same_snapshots(left: FixedPointEngine, right: FixedPointEngine) -> bool:
    """Whether two engines would go on alike: every array and all else is the same."""
    one, other = left.snapshot(), right.snapshot()
    assert one.arrays.keys() == other.arrays.keys()
    equal = all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
    return equal and one.document == other.document
