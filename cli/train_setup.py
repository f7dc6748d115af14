"""What `train` reads, compiles and starts from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from binpoint.backends.training_program import TrainingProgram
    from binpoint.compiler.network import NetworkGraph
    from binpoint.compiler.parameters import Parameters
    from binpoint.runtime.data import Samples
    from binpoint.runtime.training.engine import Engine, Snapshot
    from binpoint.runtime.training.line_file import LineFile
    from binpoint.runtime.training.loop import TrainingOptions
    from binpoint.runtime.training.machine import Machine
    from binpoint.support.target import Target

RUNNING_STATISTICS = (".mean", ".variance")
"""The ends of the names of parameters that are not trained but follow the mini-batches."""


@dataclass(frozen=True, eq=False)
class Setup:
    """A training that is ready to start: the network compiled for a target, first parameters, data and options."""

    network: NetworkGraph
    target: Target
    program: TrainingProgram
    parameters: Parameters
    training: Samples
    testing: Samples | None
    options: TrainingOptions


def set_up(arguments: argparse.Namespace) -> Setup:
    """Read and compile everything.

    Raises:
        UserError: a file is at fault, or network, target and data do not fit each other.
    """
    from binpoint.compiler.frontends.dsl.parser import parse_network
    from binpoint.compiler.parameters import load_parameters
    from binpoint.compiler.settings import apply_settings, parse_settings
    from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
    from binpoint.runtime.training.learning_rate import parse_schedule
    from binpoint.support.diagnostics import UserError
    from binpoint.support.target_file import load_target

    settings, schedule = parse_settings(arguments.set), parse_schedule(arguments.lr_schedule)
    target = load_target(arguments.target)
    network, target = apply_settings(parse_network(arguments.network), target, settings)
    parameters = load_parameters(network, arguments.weights, arguments.seed)
    options = TrainingOptions(arguments.batch, arguments.momentum, arguments.weight_decay, arguments.loss_scale)
    compilation = compile_training(network, target, options)
    if compilation.missing and not arguments.float:
        raise UserError(*compilation.missing)
    training, testing = _load_data(arguments, compilation.program)
    loop_options = _loop_options(arguments, schedule, len(training))
    return Setup(network, target, compilation.program, parameters, training, testing, loop_options)


def identity(arguments: argparse.Namespace, setup: Setup) -> dict[str, str]:
    """What must be the same where a training goes on, by the names and in the words of a user."""
    from binpoint.compiler.frontends.dsl.printer import network_settings
    from binpoint.runtime.training.identity import data_fields, parameter_fields, program_fields, target_fields
    from binpoint.support.version import VERSION

    fields = {"binpoint": VERSION, **_options(arguments, setup.options)}
    fields |= data_fields(setup.training, "--data")
    fields |= {} if setup.testing is None else data_fields(setup.testing, "--test")
    fields |= parameter_fields(setup.parameters, arguments.weights or setup.network.weights)
    fields |= network_settings(setup.network)
    fields |= target_fields(setup.target)
    fields |= program_fields(setup.program)
    return fields


def _options(arguments: argparse.Namespace, options: TrainingOptions) -> dict[str, str]:
    """The options that decide what a training computes, as they are written."""
    from binpoint.support.number_text import format_number

    accuracy, ends = options.target_accuracy, options.schedule.needs_end
    values = {
        "--float": "given" if arguments.float else None,
        "--batch": options.batch,
        "--seed": options.seed,
        "--lr": format_number(options.rate),
        "--lr-schedule": options.schedule,
        "--momentum": format_number(arguments.momentum),
        "--weight-decay": format_number(arguments.weight_decay),
        "--loss-scale": arguments.loss_scale,
        "--target-accuracy": None if accuracy is None else format_number(accuracy),
        "--parameter-statistics": arguments.parameter_statistics,
        "--epochs": options.epochs if ends else None,
        "--steps": options.steps if ends else None,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def counted_tensors(arguments: argparse.Namespace, setup: Setup) -> frozenset[str]:
    """The tensors whose saturation counts: all that have an exponent, but the inputs, which are data."""
    inputs = {declared.name for declared in setup.program.inputs}
    return frozenset() if arguments.float else frozenset(setup.program.formats.keys() - inputs)


def make_engine(
    arguments: argparse.Namespace, setup: Setup, trace: LineFile | None, snapshot: Snapshot | None
) -> Engine:
    """What trains the network: at its start, or as a snapshot left it."""
    import numpy as np

    from binpoint.runtime.training.fixed_point import FixedPointEngine
    from binpoint.runtime.training.floating import FloatEngine

    statistics = (name for name in setup.parameters if name.endswith(RUNNING_STATISTICS))
    running = {name: setup.parameters[name].astype(np.float64) for name in statistics}
    if arguments.float:
        if snapshot is not None:
            return FloatEngine.restore(setup.program, snapshot)
        return FloatEngine(setup.program, setup.parameters, running)
    machine = _machine(arguments, setup.target, trace)
    if snapshot is not None:
        return FixedPointEngine.restore(setup.program, machine, snapshot)
    return FixedPointEngine.start(setup.program, machine, setup.parameters, running, _trial(setup, running))


def _load_data(arguments: argparse.Namespace, program: TrainingProgram) -> tuple[Samples, Samples | None]:
    """The training set and the test set, both with labels that are classes of the network."""
    from binpoint.runtime.data import load_data
    from binpoint.runtime.training.host import feature_maps
    from binpoint.runtime.training.loss import check_labels
    from binpoint.support.diagnostics import user_error

    place, test = arguments.data, arguments.test
    if place.startswith("mnist:") and "#" not in place:
        place, test = f"{place}#train", test or f"{place}#test"
    classes = feature_maps(program)[program.logits].channels
    training = load_data(place, program.inputs).limited(arguments.limit)
    check_labels(training.labels, classes, "training data")
    if test is None:
        if arguments.target_accuracy is not None or arguments.test_limit is not None:
            expected = "--test DATA beside --target-accuracy or --test-limit"
            raise user_error("no-test-data", "there is nothing to evaluate on", expected=expected)
        return training, None
    testing = load_data(test, program.inputs).limited(arguments.test_limit)
    check_labels(testing.labels, classes, "test data")
    return training, testing


def _loop_options(arguments: argparse.Namespace, schedule: Any, samples: int) -> TrainingOptions:
    from binpoint.runtime.training.loop import TrainingOptions

    steps_per_epoch = -(-samples // arguments.batch)
    epochs = arguments.epochs or (-(-arguments.steps // steps_per_epoch) if arguments.steps else 1)
    return TrainingOptions(
        batch=arguments.batch,
        rate=arguments.lr,
        schedule=schedule,
        seed=arguments.seed,
        epochs=epochs,
        steps=arguments.steps,
        target_accuracy=arguments.target_accuracy,
    )


def _machine(arguments: argparse.Namespace, target: Target, trace: LineFile | None) -> Machine:
    from binpoint.cli.backend_options import chosen_threads, make_backend
    from binpoint.runtime.training.accelerator import Acquisition
    from binpoint.runtime.training.machine import Machine
    from binpoint.runtime.training.trace import Trace

    return Machine(
        backend=make_backend(arguments.backend, chosen_threads(arguments.backend, arguments.threads)),
        target=target,
        batch=arguments.batch,
        seed=arguments.seed,
        acquisition=Acquisition(arguments.statistics),
        whole_updates=arguments.parameter_statistics == "all",
        trace=Trace(trace),
    )


def _trial(setup: Setup, running: Mapping[str, NDArray[np.float64]]) -> dict[str, int]:
    """The first exponents, from the first mini-batch."""
    from binpoint.runtime.training.data_order import DataOrder
    from binpoint.runtime.training.loop import last_step
    from binpoint.runtime.training.trial import first_exponents

    options = setup.options
    order = DataOrder(len(setup.training), options.batch, options.seed)
    samples = setup.training.take(order.step(0))
    rate = options.schedule.rate(options.rate, 0, order.steps_per_epoch, last_step(options, len(setup.training)))
    assert samples.labels is not None  # checked when the data was loaded
    return first_exponents(setup.program, setup.parameters, running, samples.inputs, samples.labels, rate)
