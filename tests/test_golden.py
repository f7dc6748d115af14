"""The golden vectors of the arithmetic, one test a file. (The allocation's are in tests/scheduling.)"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from binpoint.backends.kernel import Convolution, KernelExponents, KernelParameters, KernelSpec, TensorSpec
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.oracle.blocks import align_positions, analyze, choose, predict
from binpoint.backends.oracle.fixed_point import quantize
from binpoint.backends.oracle.statistics import NO_POSITION, lsb_positions, msb_positions, record
from binpoint.runtime.exponents import chosen_top, decide
from binpoint.support.numeric import ExponentRule, Rounding, Selection, UpdatePolicy

GOLDEN = Path(__file__).parent / "golden"


def vectors(name: str) -> list[dict[str, Any]]:
    cases = json.loads((GOLDEN / f"{name}.json").read_text())
    assert cases, f"{name}.json holds no vector"
    return cases


def test_quantize():
    for case in vectors("quantize"):
        acc = np.array([case["acc"]])
        mantissas, overflowed = quantize(acc, case["shift"], case["bits"], Rounding(case["rounding"]))
        assert (mantissas.tolist(), overflowed.tolist()) == ([case["out"]], [case["overflow"]]), case


def test_positions():
    cases = vectors("positions")
    values = np.array([case["value"] for case in cases])
    for positions, key in ((msb_positions(values), "msb"), (lsb_positions(values), "lsb")):
        assert positions.tolist() == [NO_POSITION if case[key] is None else case[key] for case in cases]


def test_statistics_and_exponents():
    for case in vectors("statistics"):
        seen = record(np.array(case["values"]), case["e_acc"])
        assert seen.msb == dict(case["msb_histogram"])
        assert (seen.none, seen.samples) == (case["none"], len(case["values"]))
        policy = UpdatePolicy(ExponentRule.MSB_HISTOGRAM, Fraction(case["r_max"]))
        if case["top"] is not None:
            assert chosen_top(policy, seen) == case["top"]
        current = 77
        expected = current if case["exponent"] is None else case["exponent"]
        assert decide(policy, seen, case["bits"], current) == expected


@pytest.mark.parametrize(
    "case", vectors("conv2d"), ids=lambda case: f"{case['bits']}b-s{case['stride']}-p{case['pad']}"
)
def test_conv2d(case):
    x, w, acc = (np.array(case[key]) for key in ("x", "w", "acc"))
    bits, stride, pad = case["bits"], case["stride"], case["pad"]
    operation = Convolution(w.shape[2:], (stride, stride), (pad, pad, pad, pad), weight_bits=bits, bias_bits=32)
    source, bias = TensorSpec(*x.shape[1:], bits), np.array(case["bias_at_acc"])
    sample = np.ones(acc.shape[:2], dtype=bool)
    backend = OracleBackend()

    def run(output_bits: int, shift: int, rounding: Rounding):
        spec = KernelSpec("conv", operation, (source,), TensorSpec(*acc.shape[1:], output_bits), rounding=rounding)
        kernel = backend.prepare(spec, KernelParameters(w, bias))
        result = kernel([backend.upload(x, source)], KernelExponents((0,), shift), sample=sample)
        return backend.download(result.output), result

    accumulated, _ = run(32, 0, Rounding.FLOOR)
    assert accumulated.astype(np.int64).tolist() == np.clip(acc, -(2**31), 2**31 - 1).tolist()
    output, result = run(bits, case["shift"], Rounding(case["rounding"]))
    assert output.ravel().tolist() == case["out"]
    assert result.events.saturated == case["overflows"]
    assert result.statistics.msb == dict(case["msb_histogram"])
    assert result.statistics.none == case["none"]


def test_block_choice():
    for case in vectors("block_choice"):
        acc, rounding = np.array(case["acc"]), Rounding(case["rounding"])
        overflows = analyze(acc, case["n_acc"], case["candidates"], case["bits"], rounding)
        assert overflows == case["overflows"]
        chosen = choose(overflows, case["candidates"])
        assert chosen == case["chosen"]
        assert quantize(acc, case["n_acc"] - chosen, case["bits"], rounding)[0].tolist() == case["out"]


def test_block_prediction():
    for case in vectors("block_prediction"):
        chosen = predict(case["neighbours"], case["candidates"], case["default"], case["threshold"])
        assert chosen == case["chosen"], case


def test_alignment():
    for case in vectors("alignment"):
        aligned, position = align_positions(case["values"], case["positions"], Selection(case["select"]))
        assert (aligned, position) == (case["out"], case["position"]), case
