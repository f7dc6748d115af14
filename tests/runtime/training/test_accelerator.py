from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binpoint.backends.kernel import Convolution, KernelSpec, Reshape, TensorSpec
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.runtime.training.accelerator import Accelerator
from binpoint.runtime.training.allocation import PeAllocator
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.messages import (
    CallKernel,
    Finished,
    LoadProgram,
    ReserveArea,
    SetExponents,
    Stage,
    Write,
)
from binpoint.runtime.training.trace import Trace
from binpoint.support.target import Allocator
from tests.training_programs import TARGET

VECTOR = TensorSpec(2, 1, 1, 8)
LINEAR = KernelSpec("fc", Convolution((1, 1)), (VECTOR,), VECTOR)
X, W, Y, Z = (
    Area(name, 64 * place, 64, tensor)
    for place, (name, tensor) in enumerate([("x", VECTOR), ("w", None), ("y", VECTOR), ("z", VECTOR)])
)
WEIGHT = np.array([[1, 2], [3, 4]], np.int8).reshape(2, 2, 1, 1)
INPUT = np.array([[5, 6], [-7, 8]], np.int8).reshape(2, 2, 1, 1)
CALL = CallKernel("fc", (X.address,), Y.address, W.address, None, None, 0, True)


def board(allocator: Allocator = Allocator.CONTROLLER) -> Link:
    """An accelerator that holds one linear layer, its weights and a mini-batch of two."""
    trace = Trace()
    link = Link(Accelerator(OracleBackend(), replace(TARGET, allocator=allocator), trace=trace), trace)
    for area in (X, W, Y, Z):
        link.tell(ReserveArea(area), Stage.BUILD)
    link.tell(LoadProgram("fc", LINEAR), Stage.BUILD)
    link.tell(LoadProgram("copy", KernelSpec("copy", Reshape(), (VECTOR,), VECTOR)), Stage.BUILD)
    link.tell(Write(W.address, WEIGHT, -2), Stage.INITIALISE)
    link.tell(Write(X.address, INPUT, -3), Stage.LOAD)
    link.tell(SetExponents({Y.address: -4}), Stage.INITIALISE)
    return link


def call(link: Link, request: CallKernel = CALL) -> Finished:
    return link.call(request, Stage.CALL_FORWARD, "fc")


def result(link: Link, area: Area = Y) -> tuple[list[list[int]], int]:
    data = link.read(area.address, Stage.CALL_FORWARD)
    return data.mantissas.reshape(2, 2).tolist(), data.exponent


def test_what_is_written_is_read() -> None:
    link = board()
    for area, mantissas, exponent in ((X, INPUT, -3), (W, WEIGHT, -2)):
        data = link.read(area.address, Stage.LOAD)
        assert np.array_equal(data.mantissas, mantissas)
        assert data.exponent == exponent


def test_a_kernel_reads_and_writes_addresses() -> None:
    link = board()
    finished = call(link)
    # x W^T at 2^-5, stored at 2^-4: half of it, ties to even.
    assert result(link) == ([[8, 20], [4, 6]], -4)
    assert finished.events[Y.address].results == 4


def test_new_exponents_hold_for_the_next_results_and_leave_the_old_ones() -> None:
    link = board()
    call(link)
    link.tell(SetExponents({Y.address: -5}), Stage.DECIDE)
    assert result(link) == ([[8, 20], [4, 6]], -4)
    call(link)
    assert result(link) == ([[17, 39], [9, 11]], -5)


def test_new_weights_are_used_at_once() -> None:
    link = board()
    call(link)
    link.tell(Write(W.address, (2 * WEIGHT).astype(np.int8), -2), Stage.UPDATE)
    call(link)
    assert result(link) == ([[17, 39], [9, 11]], -4)


def test_shifts_raise_the_exponents_of_inputs() -> None:
    link = board()
    call(link, replace(CALL, shifts=(1,)))
    assert result(link) == ([[17, 39], [9, 11]], -4)


def test_an_exact_kernel_keeps_the_exponent_of_its_input() -> None:
    link = board()
    call(link, CallKernel("copy", (X.address,), Z.address, None, None, None, 0, False))
    assert result(link, Z) == ([[5, 6], [-7, 8]], -3)


def test_statistics_wait_until_they_are_read_and_are_cleared() -> None:
    link = board()
    call(link)
    call(link)
    record = link.read_statistics((X.address, Y.address), Stage.DECIDE).records
    assert list(record) == [Y.address]
    sampled = PeAllocator(TARGET).allocate("fc", 2, 2, 0).sample
    assert record[Y.address].samples == 2 * np.count_nonzero(sampled)
    assert link.read_statistics((Y.address,), Stage.DECIDE).records == {}


def test_without_statistics_nothing_is_acquired() -> None:
    link = board()
    call(link, replace(CALL, statistics=False))
    assert link.read_statistics((Y.address,), Stage.DECIDE).records == {}


def test_the_hosts_allocation_is_obeyed() -> None:
    link = board(Allocator.HOST)
    for mini_batch in (0, 1):
        allocation = PeAllocator(TARGET).allocate("fc", 2, 2, mini_batch)
        call(link, replace(CALL, allocation=allocation))
        found = link.read_statistics((Y.address,), Stage.DECIDE).records
        assert found[Y.address].samples == np.count_nonzero(allocation.sample)


def test_in_the_basic_form_a_call_needs_an_allocation() -> None:
    with pytest.raises(ValueError, match="without an allocation"):
        call(board(Allocator.HOST))


def test_an_answer_of_another_kind_is_a_fault_of_the_program() -> None:
    with pytest.raises(TypeError, match="answers with NoneType"):
        board().call(SetExponents({}), Stage.LOAD, "x")
