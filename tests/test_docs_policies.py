"""docs/policies.md says what the code does."""

import re
from fractions import Fraction
from pathlib import Path

from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.runtime.confidence import most_overflows
from binpoint.runtime.policies import Verdict
from binpoint.scheduling.allocation import mini_batches_per_cycle
from binpoint.support.numeric import DEFAULT_UPDATE, TensorClass, UpdatePolicy
from binpoint.support.target import RotationCount
from binpoint.support.target_file import load_target

ROOT = Path(__file__).parent.parent
MANUAL = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
R_MAX = UpdatePolicy().r_max


def test_its_network_has_the_policies_that_it_speaks_of() -> None:
    (text,) = re.findall(r"```bp\n(.*?)```", MANUAL, re.DOTALL)
    policy = parse_network_text(text, "policies.bp", None).numeric
    assert policy.update == UpdatePolicy(window=16)
    assert set(policy.updates) == {TensorClass.GRADIENTS, TensorClass.WEIGHTS}


def test_what_is_shipped_sees_every_pair_in_a_window() -> None:
    array = load_target("dlu2048")
    assert array.allocation.rotation is RotationCount.CONTINUOUS
    assert mini_batches_per_cycle(array) == DEFAULT_UPDATE.merged_records
    for path in (ROOT / "examples" / "networks").glob("*.bp"):
        assert parse_network(path).numeric.update == DEFAULT_UPDATE, path


def test_a_written_rule_decides_from_one_record() -> None:
    (word,) = re.findall(r"`(update = msb-histogram)` decides from one record", MANUAL)
    text = f"network n {{ input x: 1 y = relu(x) }} numeric {{ {word} }}"
    numeric = parse_network_text(text, "n.bp", None).numeric
    assert numeric.update.merged_records == 1


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
