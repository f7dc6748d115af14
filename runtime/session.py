"""A session runs an artifact batch by batch with moving exponents, and accounts for every tensor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Draw, Events, IntArray, KernelExponents, KernelResult, Reshape, StatisticsRecord
from binpoint.backends.program import KernelCall
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.controllers import Controller, Observation
from binpoint.runtime.conversion import FloatArray, dequantize, quantize
from binpoint.runtime.execution import Executor
from binpoint.runtime.exponents import record_of_floats
from binpoint.scheduling.allocation import in_mini_batch, schedule_layer
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import Rounding


@dataclass(frozen=True)
class Output:
    """A tensor that leaves the network: mantissas (N, C, H, W) and their exponent."""

    mantissas: IntArray
    exponent: int

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers that the mantissas stand for."""
        return dequantize(self.mantissas, self.exponent)

    @property
    def scores(self) -> IntArray:
        """What orders the classes of a sample: numbers of one exponent are ordered as their mantissas."""
        return self.mantissas


@dataclass(frozen=True)
class BatchResult:
    """What one batch gave: outputs by name, the exponent of every tensor, and the time of the fixed-point inference.

    `seconds` runs from numbers to output mantissas; calibration and decisions about exponents are outside.
    """

    outputs: Mapping[str, Output]
    exponents: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class TensorReport:
    """What happened to one tensor since the session began.

    `exponent` is that of the last batch and `exponent_changes` counts how often it differed from the batch before.
    `record` holds the samples of the statistics PEs, None where nothing was sampled.
    """

    name: str
    exponent: int
    exponent_changes: int = 0
    events: Events = Events(0)
    record: StatisticsRecord | None = None

    def after(self, exponent: int, observation: Observation) -> TensorReport:
        """The report with one more batch in it."""
        record = observation.record
        if self.record is not None:
            record = self.record if record is None else self.record.merge(record)
        return TensorReport(
            self.name,
            exponent,
            self.exponent_changes + (exponent != self.exponent),
            self.events.merge(observation.events),
            record,
        )


class Session:
    """Runs the network of an artifact.

    Every batch is one step: it starts a new draw of stochastic rounding, and its images are allocated to the PEs
    as `binpoint schedule --mini-batch` shows for the step's number.

    Args:
        artifact: the network, its target and its parameters.
        executor: executes the network's kernels.
        controller: decides the exponents of inputs and results.
        seed: keys stochastic rounding.
        statistics: whether statistics PEs acquire. A controller that observes needs it.
    """

    def __init__(
        self,
        artifact: Artifact,
        executor: Executor,
        controller: Controller,
        *,
        seed: int = 0,
        statistics: bool = True,
    ) -> None:
        if controller.observes and not statistics:
            raise ValueError(f"the controller {controller.name} needs statistics")
        self.controller = controller
        self._artifact, self._program = artifact, artifact.program
        self._executor = executor
        self._seed, self._step = seed, 0
        self._statistics = statistics and bool(artifact.target.statistics_pes)
        self._edited = {} if artifact.schedule is None else {layer.layer: layer for layer in artifact.schedule.layers}
        self._schedules: dict[tuple[str, int], LayerSchedule] = {}
        """Of the first mini-batch, by call and number of images."""
        self._reports: dict[str, TensorReport] = {}
        self._last_use = {source: index for index, call in enumerate(self._program.calls) for source in call.inputs}
        self._last_use |= dict.fromkeys(self._program.outputs, len(self._program.calls))

    @property
    def inputs(self) -> tuple[TensorReport, ...]:
        """A report for each network input, from the first batch on."""
        return tuple(self._reports[declared.name] for declared in self._program.inputs if self._reports)

    @property
    def layers(self) -> tuple[TensorReport, ...]:
        """A report for each kernel in order, from the first batch on."""
        return tuple(self._reports[call.spec.name] for call in self._program.calls if self._reports)

    def run(self, inputs: Mapping[str, FloatArray], *, observe: bool = True) -> BatchResult:
        """Run one batch.

        Args:
            inputs: finite numbers (N, C, H, W) by input name, N at least 1.
            observe: whether the controller learns from the batch; False in evaluation.

        Raises:
            UserError: the batch is larger than the edited schedule.
        """
        exponents = dict(self.controller.exponents(inputs))
        started = time.perf_counter()
        outputs, observations = self._forward(inputs, exponents)
        seconds = time.perf_counter() - started
        self._step += 1
        if self.controller.observes:
            for name, values in inputs.items():
                observations[name] = replace(observations[name], record=record_of_floats(values, f'"{name}"'))
        self._account(exponents, observations)
        if observe:
            self.controller.observe(observations)
        return BatchResult(outputs, exponents, seconds)

    def warm_up(self, inputs: Mapping[str, FloatArray]) -> None:
        """Run one batch and forget it: backends compile a kernel when they meet its first exponents."""
        self._forward(inputs, dict(self.controller.exponents(inputs)))

    def schedule(self, call: KernelCall, images: int) -> LayerSchedule | None:
        """Which PE computes what of a call now: the edited schedule's first images, or the target's allocation.

        None for a reshape, which no PE computes.
        """
        if isinstance(call.spec.operation, Reshape):
            return None
        name, target = call.spec.name, self._artifact.target
        if name in self._edited:
            return first_images(self._edited[name], images)
        key = (name, images)
        if key not in self._schedules:
            self._schedules[key] = schedule_layer(name, images, call.spec.output.channels, target)
        return in_mini_batch(self._schedules[key], target, self._step)

    def _forward(
        self, inputs: Mapping[str, FloatArray], exponents: dict[str, int]
    ) -> tuple[dict[str, Output], dict[str, Observation]]:
        """Run one batch: what leaves the network, and what the batch left of every tensor. Completes `exponents`."""
        tensors, observations = self._store(inputs, exponents)
        images = len(next(iter(inputs.values())))
        for index, call in enumerate(self._program.calls):
            result = self._execute(index, call, images, tensors, exponents)
            tensors[call.spec.name] = result.output
            observations[call.spec.name] = Observation(result.events, result.statistics)
            self._release(index, call, tensors)
        outputs = {name: Output(self._executor.fetch(tensors[name]), exponents[name]) for name in self._program.outputs}
        return outputs, observations

    def _store(
        self, inputs: Mapping[str, FloatArray], exponents: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, Observation]]:
        """Quantise the inputs: feature maps of the executor and what they lost."""
        tensors: dict[str, Any] = {}
        observations: dict[str, Observation] = {}
        for declared in self._program.inputs:
            name = declared.name
            mantissas, events = quantize(inputs[name], exponents[name], declared.tensor.bits)
            tensors[name] = self._executor.store(mantissas, declared.tensor)
            observations[name] = Observation(events)
        return tensors, observations

    def _execute(
        self, index: int, call: KernelCall, images: int, tensors: Mapping[str, Any], exponents: dict[str, int]
    ) -> KernelResult:
        """Execute one call; an exact one passes its input's exponent on."""
        spec, parameters = call.spec, self._artifact.exponents
        if spec.exact:
            exponents[spec.name] = exponents[call.inputs[0]]
        return self._executor.execute(
            call,
            [tensors[source] for source in call.inputs],
            KernelExponents(
                inputs=tuple(exponents[source] for source in call.inputs),
                output=exponents[spec.name],
                weight=0 if call.weight is None else parameters[call.weight],
                bias=0 if call.bias is None else parameters[call.bias],
            ),
            self.schedule(call, images),
            Draw(self._seed, index, self._step) if spec.rounding is Rounding.STOCHASTIC else None,
            statistics=self._statistics and spec.statistics,
        )

    def _release(self, index: int, call: KernelCall, tensors: dict[str, Any]) -> None:
        """Let go of feature maps that no later call reads and that do not leave the network."""
        for name in {*call.inputs, call.spec.name}:
            if self._last_use.get(name, index) <= index:
                tensors.pop(name, None)

    def _account(self, exponents: Mapping[str, int], observations: Mapping[str, Observation]) -> None:
        for name, observation in observations.items():
            before = self._reports.get(name, TensorReport(name, exponents[name]))
            self._reports[name] = before.after(exponents[name], observation)


def first_images(schedule: LayerSchedule, images: int) -> LayerSchedule:
    """An edited schedule for a smaller batch: the tiles of its first images, where they are.

    Raises:
        UserError: the batch is larger than the schedule.
    """
    if images > schedule.images:
        raise user_error(
            "batch-too-large",
            f'the edited schedule of layer "{schedule.layer}" is for {schedule.images} images',
            found=f"a batch of {images}",
            expected=f"at most {schedule.images}",
            hint=f"run with --batch {schedule.images}",
        )
    rows = replace(schedule.tiling, images=images).counts[0]
    return replace(
        schedule,
        images=images,
        pe=schedule.pe[:rows],
        round=schedule.round[:rows],
        sampled=schedule.sampled[:rows],
    )
