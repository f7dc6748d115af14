"""A session over blocks: runs an artifact whose feature maps have exponents of their own, block by block or map by map.

It is to kernels over blocks what `binpoint.runtime.session` is to plain ones; results are equal where every map has one
calibrated exponent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import BlockBackend, BlockExponents, BlockKernel, BlockMap, BlockResult, ExponentGrid
from binpoint.backends.float_reference import run_float
from binpoint.backends.kernel import Draw, Events, IntArray, StatisticsRecord, TensorSpec
from binpoint.backends.program import KernelCall
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.blocks.candidates import Candidates, calibrate, needs_trial
from binpoint.runtime.blocks.conversion import (
    FloatArray,
    choose_exponents,
    count_overflows,
    dequantize_blocks,
    quantize_blocks,
)
from binpoint.runtime.blocks.methods import Method, program_for
from binpoint.runtime.blocks.parameters import BoundCall, bind
from binpoint.runtime.blocks.report import MapReport, compare
from binpoint.runtime.calibration import trial_records
from binpoint.support.numeric import BlockPolicy, Rounding

Defaults = Mapping[str, int]
"""The exponent that each map takes where nothing else decides."""


@dataclass(frozen=True)
class BlockOutput:
    """A tensor that leaves the network: mantissas (N, C, H, W) and the exponents of its blocks."""

    mantissas: IntArray
    exponents: ExponentGrid
    tensor: TensorSpec

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers that the mantissas stand for."""
        return dequantize_blocks(self.mantissas, self.exponents, self.tensor)

    @property
    def scores(self) -> NDArray[np.float64]:
        """What orders the classes of a sample: mantissas of several exponents do not."""
        return self.values


@dataclass(frozen=True)
class BlockBatchResult:
    """What one batch gave: outputs by name, and the time of the fixed-point inference, without calibration."""

    outputs: Mapping[str, BlockOutput]
    seconds: float


@dataclass(frozen=True)
class _Pass:
    """What one pass of some images left: their outputs, and each map's overflows (N, candidates) where counted."""

    outputs: Mapping[str, BlockOutput]
    overflows: Mapping[str, IntArray]


class BlockSession:
    """Runs the network of an artifact with one of the methods.

    The first batch runs in floating point too, to find the candidates of maps that nobody gave any, unless `records`
    has the bit positions of their values already.

    Args:
        artifact: the network and its parameters. It knows blocks, or the method needs none.
        backend: compiles kernels over blocks.
        method: where positions come from.
        seed: keys stochastic rounding; every batch is one step.
        compare: whether the float network runs beside, for the signal-to-noise ratio of every layer.
        records: bit positions by map, from a trial of other pictures in floating point (`calibration.trial_records`).
    """

    def __init__(
        self,
        artifact: Artifact,
        backend: BlockBackend,
        method: Method,
        *,
        seed: int = 0,
        compare: bool = False,
        records: Mapping[str, StatisticsRecord] | None = None,
    ) -> None:
        self.method, self.program = method, program_for(artifact.program, method)
        self.clamps: Counter[str] = Counter()
        self._artifact, self._backend = artifact, backend
        self._seed, self._step, self._compares = seed, 0, compare
        self._records = records
        self._candidates: dict[str, Candidates] = {}
        self._bound: list[tuple[BoundCall, BlockKernel]] = []
        self._previous: Defaults | None = None
        self._reports: dict[str, MapReport] = {}
        self._last_use = {source: index for index, call in enumerate(self.program.calls) for source in call.inputs}
        self._last_use |= dict.fromkeys(self.program.outputs, len(self.program.calls))

    @property
    def inputs(self) -> tuple[MapReport, ...]:
        """A report for each network input, from the first batch on."""
        return tuple(self._reports[declared.name] for declared in self.program.inputs if self._reports)

    @property
    def layers(self) -> tuple[MapReport, ...]:
        """A report for each kernel in order, from the first batch on."""
        return tuple(self._reports[call.spec.name] for call in self.program.calls if self._reports)

    def run(self, inputs: Mapping[str, FloatArray]) -> BlockBatchResult:
        """Run one batch: finite numbers (N, C, H, W) by input name, N at least 1."""
        artifact, reference = self._artifact, None
        if self._compares:
            reference = run_float(artifact.program, artifact.floats, inputs)
        self._prepare(inputs)
        started = time.perf_counter()
        watch = _Accounts(self._reports, self._backend, reference)
        if self.method in (Method.BLOCKS, Method.FIXED):
            outputs = self._forward(inputs, self._defaults(), watch, 0).outputs
        else:
            images = len(next(iter(inputs.values())))
            frames = [self._frame(_image(inputs, index), watch, index) for index in range(images)]
            outputs = {name: _join([frame[name] for frame in frames]) for name in self.program.outputs}
        seconds = time.perf_counter() - started - watch.seconds
        self._step += 1
        return BlockBatchResult(outputs, seconds)

    def warm_up(self, inputs: Mapping[str, FloatArray]) -> None:
        """Run one batch and forget it: backends compile a kernel when they first meet it."""
        self._prepare(inputs)
        part = inputs if self.method in (Method.BLOCKS, Method.FIXED) else _image(inputs, 0)
        self._forward(part, self._defaults(), None, 0)

    def _prepare(self, inputs: Mapping[str, FloatArray]) -> None:
        """Calibrate and bind the kernels, once."""
        if self._bound:
            return
        artifact, program = self._artifact, self.program
        records = self._records or {}
        if self._records is None and needs_trial(program, artifact.exponents):
            records = trial_records(program, artifact.floats, inputs)
        found = calibrate(program, artifact.exponents, records, self.clamps)
        if self.method is Method.FIXED:
            found = {name: candidates.only_default() for name, candidates in found.items()}
        self._candidates = found
        tensors = {declared.name: declared.tensor for declared in program.inputs}
        tensors |= {call.spec.name: call.spec.output for call in program.calls}
        self._reports = {name: MapReport(name, tensor, found.get(name)) for name, tensor in tensors.items()}
        for call in bind(artifact, program, found):
            self._bound.append((call, self._backend.prepare_blocks(call.spec, call.parameters)))

    def _defaults(self) -> Defaults:
        """The calibrated exponents."""
        return {name: candidates.default for name, candidates in self._candidates.items()}

    def _frame(self, image: Mapping[str, FloatArray], watch: _Accounts, index: int) -> Mapping[str, BlockOutput]:
        """Run one frame with positions from the frame before, or from a first pass over itself."""
        if self.method is Method.CURRENT:
            defaults = self._chosen(self._forward(image, self._defaults(), None, index, overflows=True))
            return self._forward(image, defaults, watch, index).outputs
        done = self._forward(image, self._previous or self._defaults(), watch, index, overflows=True)
        self._previous = self._chosen(done)
        return done.outputs

    def _chosen(self, done: _Pass) -> Defaults:
        """For each map the candidate with the fewest overflows, the finest of equals."""
        chosen = {}
        for name, overflows in done.overflows.items():
            exponents = self._candidates[name].exponents
            losses = overflows.sum(axis=0)
            chosen[name] = exponents[len(exponents) - 1 - int(losses[::-1].argmin())]
        return chosen

    def _forward(
        self,
        inputs: Mapping[str, FloatArray],
        defaults: Defaults,
        watch: _Accounts | None,
        first_image: int,
        *,
        overflows: bool = False,
    ) -> _Pass:
        """Run some images of a batch, the first one of that number."""
        counted: dict[str, IntArray] = {}
        maps = self._store(inputs, defaults, watch, counted, overflows)
        for index, (call, kernel) in enumerate(self._bound):
            result = self._execute(index, call, kernel, maps, defaults, first_image, overflows)
            name = call.spec.name
            maps[name] = result.output
            if result.overflows is not None:
                counted[name] = result.overflows
            if watch is not None:
                watch.add(name, result.output, result.events)
            self._release(index, call.call, maps)
        return _Pass({name: self._output(name, maps[name]) for name in self.program.outputs}, counted)

    def _store(
        self,
        inputs: Mapping[str, FloatArray],
        defaults: Defaults,
        watch: _Accounts | None,
        counted: dict[str, IntArray],
        overflows: bool,
    ) -> dict[str, BlockMap]:
        """Quantise the inputs, block by block or at the exponent that is given."""
        maps = {}
        for declared in self.program.inputs:
            name, values, tensor = declared.name, inputs[declared.name], declared.tensor
            candidates = self._candidates[name].exponents
            if self.method is Method.BLOCKS:
                grid = choose_exponents(values, tensor, candidates, (declared.blocks or BlockPolicy()).measure)
            else:
                grid = np.full((len(values), 1, 1, 1), defaults[name], np.int32)
            if overflows:
                counted[name] = count_overflows(values, candidates, tensor.bits)
            mantissas, events = quantize_blocks(values, grid, tensor)
            maps[name] = BlockMap(self._backend.upload(mantissas, tensor), grid)
            if watch is not None:
                watch.add(name, maps[name], events)
        return maps

    def _execute(
        self,
        index: int,
        call: BoundCall,
        kernel: BlockKernel,
        maps: Mapping[str, BlockMap],
        defaults: Defaults,
        first_image: int,
        overflows: bool,
    ) -> BlockResult:
        spec, exponents = call.spec, BlockExponents(call.weight_exponents, call.bias_exponents)
        if not spec.exact:
            candidates = self._candidates[spec.name].exponents
            exponents = replace(exponents, candidates=candidates, default=defaults[spec.name])
        draw = Draw(self._seed, index, self._step) if spec.rounding is Rounding.STOCHASTIC else None
        sources = [maps[source] for source in call.call.inputs]
        return kernel(sources, exponents, overflows=overflows and not spec.exact, draw=draw, first_image=first_image)

    def _release(self, index: int, call: KernelCall, maps: dict[str, BlockMap]) -> None:
        """Let go of feature maps that no later call reads and that do not leave the network."""
        for name in {*call.inputs, call.spec.name}:
            if self._last_use.get(name, index) <= index:
                maps.pop(name, None)

    def _output(self, name: str, feature_map: BlockMap) -> BlockOutput:
        mantissas = self._backend.download(feature_map.buffer)
        return BlockOutput(mantissas, feature_map.exponents, self._reports[name].tensor)


class _Accounts:
    """Keeps the reports of a batch, whose images come one after the other; `seconds` is the time that it takes."""

    def __init__(
        self, reports: dict[str, MapReport], backend: BlockBackend, reference: Mapping[str, FloatArray] | None
    ) -> None:
        self.seconds = 0.0
        self._reports, self._backend, self._reference = reports, backend, reference
        self._seen: Counter[str] = Counter()

    def add(self, name: str, feature_map: BlockMap, events: Events) -> None:
        """Account for some images of one map."""
        started = time.perf_counter()
        comparison = None
        if self._reference is not None:
            first = self._seen[name]
            self._seen[name] += feature_map.batch
            mantissas, tensor = self._backend.download(feature_map.buffer), self._reports[name].tensor
            values = dequantize_blocks(mantissas, feature_map.exponents, tensor)
            comparison = compare(values, self._reference[name][first : first + feature_map.batch])
        self._reports[name] = self._reports[name].after(feature_map.exponents, events, comparison)
        self.seconds += time.perf_counter() - started


def _image(inputs: Mapping[str, FloatArray], index: int) -> dict[str, FloatArray]:
    return {name: values[index : index + 1] for name, values in inputs.items()}


def _join(parts: list[BlockOutput]) -> BlockOutput:
    """The images of a batch together."""
    mantissas = np.concatenate([part.mantissas for part in parts])
    return BlockOutput(mantissas, np.concatenate([part.exponents for part in parts]), parts[0].tensor)
