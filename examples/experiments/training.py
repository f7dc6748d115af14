"""One training of LeNet on MNIST under an allocation and a policy, with other statistics of the same results beside."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from binpoint.backends.training_backend import TrainingBackend
from binpoint.backends.training_program import TrainingProgram
from binpoint.cli.backend_options import add_backend_arguments, chosen_threads, make_backend
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.parameters import Parameters, draw_parameters
from binpoint.compiler.training_pipeline import compile_training
from binpoint.runtime.data import Samples, load_data
from binpoint.runtime.training.data_order import DataOrder
from binpoint.runtime.training.engine import Engine, MiniBatch
from binpoint.runtime.training.fixed_point import FixedPointEngine
from binpoint.runtime.training.floating import FloatEngine
from binpoint.runtime.training.journal import Journal
from binpoint.runtime.training.loop import Hooks, StepReport, TrainingLoop, TrainingOptions
from binpoint.runtime.training.machine import Machine
from binpoint.runtime.training.progress import Progress
from binpoint.runtime.training.trial import first_exponents
from binpoint.support.numeric import UpdatePolicy
from binpoint.support.target import Target
from examples.experiments.report import MNIST, NETWORKS, options
from examples.experiments.shadow import Records, ShadowBackend

NETWORK = NETWORKS / "lenet.bp"


@dataclass(frozen=True)
class Plan:
    """How to train: a target with its allocation, the policy of all tensors, and what every training has."""

    target: Target
    update: UpdatePolicy
    seed: int = 0
    steps: int = 300
    batch: int = 64
    rate: Fraction = Fraction(1, 20)


def training_options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every experiment that trains has."""
    parser = options(description)
    add_backend_arguments(parser)
    return parser


def chosen_backend(arguments: argparse.Namespace) -> TrainingBackend:
    """What computes."""
    return make_backend(arguments.backend, chosen_threads(arguments.backend, arguments.threads))


class Training:
    """LeNet in fixed point, ready to train.

    Args:
        plan: how.
        backend: what computes.
        shadows: targets whose statistics are taken beside those of the plan's.
    """

    def __init__(self, plan: Plan, backend: TrainingBackend, shadows: Mapping[str, Target]) -> None:
        self._plan = plan
        self.program, self._samples = _prepare(plan)
        parameters = draw_parameters(parse_network(NETWORK), plan.seed)
        self.exponents = self._trial(parameters)
        self._shadow = ShadowBackend(backend, shadows)
        machine = Machine(self._shadow, plan.target, plan.batch, plan.seed)
        self._engine = FixedPointEngine.start(self.program, machine, parameters, {}, self.exponents)

    def run(self, observe: Callable[[MiniBatch, Records], None], test_images: int | None = None) -> float:
        """Train to the end. `observe` gets each mini-batch and, of each shadow, the records of its results.

        Returns:
            The test accuracy.
        """

        def on_step(report: StepReport) -> None:
            observe(report.batch, self._shadow.records)
            self._shadow.masks.mini_batch += 1

        return _run(self._engine, self.program, self._samples, self._plan, Hooks(on_step=on_step), test_images)

    def _trial(self, parameters: Parameters) -> dict[str, int]:
        """The first exponents, from the first mini-batch."""
        how = _options(self._plan, self._samples)
        order = DataOrder(len(self._samples), how.batch, how.seed)
        first = self._samples.take(order.step(0))
        assert first.labels is not None  # MNIST has them
        rate = how.schedule.rate(how.rate, 0, order.steps_per_epoch, self._plan.steps)
        return first_exponents(self.program, parameters, {}, first.inputs, first.labels, rate)


def train_float(plan: Plan, test_images: int | None = None) -> float:
    """Train LeNet from the same start in float32; gives the test accuracy."""
    program, samples = _prepare(plan)
    engine = FloatEngine(program, draw_parameters(parse_network(NETWORK), plan.seed), {})
    return _run(engine, program, samples, plan, Hooks(), test_images)


def _prepare(plan: Plan) -> tuple[TrainingProgram, Samples]:
    """The compiled network and the training set."""
    network = parse_network(NETWORK)
    network = network.with_numeric(replace(network.numeric, update=plan.update, updates={}))
    program = compile_training(network, plan.target).program
    return program, load_data(f"{MNIST}#train", program.inputs)


def _options(plan: Plan, samples: Samples) -> TrainingOptions:
    epochs = -(-plan.steps * plan.batch // len(samples))
    return TrainingOptions(batch=plan.batch, rate=plan.rate, seed=plan.seed, epochs=epochs, steps=plan.steps)


def _run(
    engine: Engine, program: TrainingProgram, samples: Samples, plan: Plan, hooks: Hooks, test_images: int | None
) -> float:
    """Train to the end; gives the test accuracy."""
    testing = load_data(MNIST, program.inputs).limited(test_images)
    journal = Journal(None, program.formats, ())
    loop = TrainingLoop(engine, samples, testing, _options(plan, samples), journal, (), hooks)
    accuracy = loop.run(Progress()).epochs[-1].test_accuracy
    assert accuracy is not None  # there is a test set
    return accuracy
