"""docs/policies.md says what the code does."""

import re
from fractions import Fraction
from pathlib import Path

from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.runtime.confidence import most_overflows
from binpoint.runtime.policies import Verdict
from binpoint.support.numeric import TensorClass, UpdatePolicy

MANUAL = (Path(__file__).parent.parent / "docs" / "policies.md").read_text(encoding="utf-8")
R_MAX = UpdatePolicy().r_max


def test_its_network_has_the_policies_that_it_speaks_of() -> None:
    (text,) = re.findall(r"```bp\n(.*?)```", MANUAL, re.DOTALL)
    policy = parse_network_text(text, "policies.bp", None).numeric
    assert policy.update == UpdatePolicy(window=16)
    assert set(policy.updates) == {TensorClass.GRADIENTS, TensorClass.WEIGHTS}


def test_its_bounds() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (.*) \| (.*) \| (.*) \|$", MANUAL, re.MULTILINE)
    assert len(rows) == 4
    for mean, observed, *bounds in rows:
        samples = int(int(mean) / R_MAX)
        assert int(observed) == int(R_MAX * samples)
        for bound, confidence in zip(bounds, ("0.9", "0.95", "0.99"), strict=True):
            proven = most_overflows(samples, R_MAX, Fraction(confidence))
            assert bound == (str(proven) if proven >= 0 else "none proven")


def test_its_smallest_samples() -> None:
    numbers = re.findall(r"([\d,]+)(?: samples)? at (\d\d) %", MANUAL)
    assert len(numbers) == 3
    for number, percent in numbers:
        samples, confidence = int(number.replace(",", "")), Fraction(int(percent), 100)
        assert most_overflows(samples, R_MAX, confidence) == 0
        assert most_overflows(samples - 1, R_MAX, confidence) == -1


def test_it_names_every_verdict() -> None:
    assert f"({', '.join(f'`{verdict}`' for verdict in Verdict)})" in MANUAL
