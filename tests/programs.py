"""Small programs and artifacts, built by hand, for tests of the runtime and its verbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Reshape,
    Softmax,
    TensorSpec,
)
from binpoint.backends.program import KernelCall, Program, ProgramInput, TensorPolicy
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.pipeline import CompileOptions, compile_network
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.calibration import movable_tensors
from binpoint.runtime.conversion import quantize
from binpoint.runtime.parameters import parameter_specs
from binpoint.support.numeric import FixedConstant, Rounding
from binpoint.support.target import Allocation, Strategy, Target

TARGET = Target("tests", 8, (2, 4), (0, 4), allocation=Allocation(Strategy.ROTATED))

PIXELS = ProgramInput("image", TensorSpec(1, 6, 6, 8), Fraction(1, 255), (Fraction(1, 2),), (Fraction(1, 2),))


def classifier(rounding: Rounding = Rounding.HALF_EVEN, bits: int = 8) -> Program:
    """conv 1 -> 5 with ReLU, 2x2 max pool, flatten, linear 45 -> 3."""
    convolution = Convolution((3, 3), padding=(1, 1, 1, 1), weight_bits=bits, bias_bits=16)
    linear = Convolution((1, 1), weight_bits=bits, bias_bits=16)
    image, maps = replace(PIXELS.tensor, bits=bits), TensorSpec(5, 6, 6, bits)
    pooled, vector, scores = TensorSpec(5, 3, 3, bits), TensorSpec(45, 1, 1, bits), TensorSpec(3, 1, 1, bits)
    return with_policies(
        Program(
            "classifier",
            (replace(PIXELS, tensor=image),),
            (
                KernelCall(
                    KernelSpec("conv", convolution, (image,), maps, Relu(), rounding=rounding),
                    ("image",),
                    "conv.weight",
                    "conv.bias",
                    ("conv", "relu"),
                ),
                KernelCall(KernelSpec("pool", MaxPool((2, 2), (2, 2)), (maps,), pooled, statistics=False), ("conv",)),
                KernelCall(KernelSpec("flat", Reshape(), (pooled,), vector, statistics=False), ("pool",)),
                KernelCall(
                    KernelSpec("fc", linear, (vector,), scores, rounding=rounding), ("flat",), "fc.weight", "fc.bias"
                ),
            ),
            ("fc",),
        )
    )


def branches(rounding: Rounding = Rounding.HALF_EVEN) -> Program:
    """Two convolutions of one input, one of them grouped, joined by add and by concat; two outputs."""
    image, maps, both = TensorSpec(2, 5, 5, 8), TensorSpec(4, 5, 5, 8), TensorSpec(8, 5, 5, 8)
    pooled = TensorSpec(8, 1, 1, 8)
    leaky = LeakyRelu(FixedConstant(205, 11))
    padding = (1, 1, 1, 1)
    return with_policies(
        Program(
            "branches",
            (ProgramInput("image", image),),
            (
                KernelCall(
                    KernelSpec("left", Convolution((3, 3), padding=padding), (image,), maps, leaky, rounding=rounding),
                    ("image",),
                    "left.weight",
                ),
                KernelCall(
                    KernelSpec(
                        "right", Convolution((3, 3), padding=padding, groups=2), (image,), maps, rounding=rounding
                    ),
                    ("image",),
                    "right.weight",
                ),
                KernelCall(KernelSpec("sum", Add(), (maps, maps), maps, Relu(), rounding=rounding), ("left", "right")),
                KernelCall(KernelSpec("join", Concat(), (maps, maps), both, rounding=rounding), ("sum", "left")),
                KernelCall(
                    KernelSpec("mean", AveragePool((5, 5), (5, 5)), (both,), pooled, rounding=rounding), ("join",)
                ),
                KernelCall(KernelSpec("share", Softmax(), (pooled,), pooled, rounding=rounding), ("mean",)),
            ),
            ("share", "sum"),
        )
    )


def with_policies(program: Program, policies: Mapping[str, TensorPolicy] | None = None) -> Program:
    """The program with a policy for each tensor that has an exponent: the given ones, else the default."""
    movable = [tensor.name for tensor in movable_tensors(program)]
    default = dict.fromkeys([*movable, *parameter_specs(program)], TensorPolicy())
    return replace(program, policies={**default, **(policies or {})})


def artifact_of(
    program: Program,
    target: Target = TARGET,
    exponents: Mapping[str, int] | None = None,
    ir: str = "",
    batch: int = 4,
) -> Artifact:
    """The program with random parameters, always the same ones; `exponents` are those of inputs and results."""
    random = np.random.default_rng(7)
    floats = {}
    mantissas = {}
    found = dict(exponents or {})
    for name, spec in parameter_specs(program).items():
        floats[name] = random.normal(size=spec.shape).astype(np.float32) / 2
        found[name] = 3 - spec.bits
        mantissas[name], events = quantize(floats[name], found[name], spec.bits)
        assert events.saturated == 0
    return Artifact(program, ir, target, batch, mantissas, found, floats)


def images_for(program: Program, count: int) -> dict[str, np.ndarray]:
    """Random numbers for every input of a program, always the same ones."""
    random = np.random.default_rng(11)
    return {
        declared.name: random.normal(size=(count, *declared.tensor.shape)).astype(np.float32)
        for declared in program.inputs
    }


SMALL_NETWORK = """
network small {
  input image: 1x6x6 { scale = 1/255 }
  conv = conv2d(image, channels=5, kernel=3, padding=1)
  act = relu(conv)
  pool = max_pool(act, kernel=2)
  fc = linear(flatten(pool), features=3)
  output fc
}
numeric { weights = 6 bits }
"""


@lru_cache
def compiled(network: str = SMALL_NETWORK, batch: int = 4) -> Artifact:
    """An artifact made by the compiler, with the IR of a network text and drawn parameters."""
    graph = parse_network_text(network, "small.bp", None)
    compilation = compile_network(graph, draw_parameters(graph, 0), TARGET, CompileOptions(batch))
    return compilation.artifact()
