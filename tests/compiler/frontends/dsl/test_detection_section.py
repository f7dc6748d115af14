"""The detection section: what it says, its faults, and printing it."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.support.detector import Detector
from binpoint.support.diagnostics import Diagnostic, UserError

NETWORK = """network n {
  input image: 3x8x8
  large = conv2d(image, channels=14, kernel=1)
  head = twice(image)
  other = conv2d(image, channels=21, kernel=1)
  output large, head, other
}
block twice(x) { return conv2d(x, channels=7, kernel=1) }
"""


def parse(section: str) -> Detector:
    detector = parse_network_text(NETWORK + section, "n.bp", None).detector
    assert detector is not None
    return detector


def faults(section: str, network: str = NETWORK) -> list[Diagnostic]:
    with pytest.raises(UserError) as caught:
        parse_network_text(network + section, "n.bp", None)
    return list(caught.value.diagnostics)


def test_a_network_without_one_detects_nothing() -> None:
    assert parse_network_text(NETWORK, "n.bp", None).detector is None


def test_what_it_says() -> None:
    detector = parse(
        """detection {
          iou = 0.6
          head large { anchors = [1, 2, 3.5, 4]  softmax = true }
          classes "dog", "traffic light"
          score = 1/4
          head head { anchors = [5, 6] }
        }"""
    )
    assert (detector.score, detector.iou) == (Fraction(1, 4), Fraction(3, 5))
    assert detector.classes == ("dog", "traffic light")
    large, small = detector.heads
    assert (large.output, large.anchors, large.softmax) == ("large", ((1, 2), (Fraction(7, 2), 4)), True)
    assert (small.output, small.anchors, small.softmax) == ("head", ((5, 6),), False)


def test_defaults() -> None:
    detector = parse("detection { head large { anchors = [1, 2, 3, 4] } }")
    assert (detector.score, detector.iou, detector.classes) == (Fraction(1, 2), Fraction(9, 20), ())
    assert [detector.class_name(index) for index in (0, 1)] == ["0", "1"]


def test_class_names_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "n.bp"
    file.write_text(NETWORK + 'detection { classes from "two.names" head large { anchors = [1, 2, 3, 4] } }')
    (tmp_path / "two.names").write_text("dog\r\ntraffic light\n\n")
    detector = parse_network(file).detector
    assert detector is not None
    assert detector.classes == ("dog", "traffic light")
    (tmp_path / "two.names").write_text("dog\n\ncat\n")
    with pytest.raises(UserError) as caught:
        parse_network(file)
    (fault,) = caught.value.diagnostics
    assert (fault.code, str(fault.location)) == ("wrong-value", f"{tmp_path / 'two.names'}:2")


NINE = ", ".join(f'"a long name {index}"' for index in range(9))


@pytest.mark.parametrize(
    "section",
    [
        "head large { anchors = [1, 2, 3, 4] }",
        'score = 1/3 iou = 0 classes "a \\"b\\"", " " head head { anchors = [1/3, 2] softmax = true }',
        f"classes {NINE} head large {{ anchors = [1, 2] }}",
    ],
)
def test_it_is_printed_and_reads_back(section: str) -> None:
    network = parse_network_text(f"{NETWORK} detection {{ {section} }}", "n.bp", None)
    text = print_network(network)
    assert parse_network_text(text, "n.bp", None).detector == network.detector
    assert max(map(len, text.splitlines())) <= 120


HEAD = "head large { anchors = [1, 2, 3, 4] }"


@pytest.mark.parametrize(
    ("section", "code", "found"),
    [
        ("", "no-head", None),
        ("head larg { anchors = [1, 2] }", "unknown-name", "larg"),
        ("head large { }", "missing-setting", None),
        ("head large { anchors = 3 }", "wrong-type", "3"),
        ("head large { anchors = [1, 2, 3] }", "wrong-type", "[1, 2, 3]"),
        ("head large { anchors = [1, 0] }", "wrong-type", "[1, 0]"),
        ("head large { anchors = [1, 2] softmax = 1 }", "wrong-type", "1"),
        ("head large { anchors = [1, 2] anchors = [1, 2] }", "duplicate-setting", "anchors"),
        ("head large { anchor = [1, 2] }", "unknown-setting", "anchor"),
        (f"{HEAD} {HEAD}", "duplicate-name", None),
        (f"{HEAD} score = 1", "out-of-range", "1"),
        (f"{HEAD} score = [1, 2]", "wrong-type", "[1, 2] = 1x2"),
        (f"{HEAD} iou = 0.5 iou = 0.5", "duplicate-setting", "iou"),
        (f"{HEAD} scores = 0.5", "unknown-setting", "scores"),
        (f"{HEAD} score = 0.5 bits", "wrong-type", "bits"),
        (f'{HEAD} classes "a", "b" classes "a", "b"', "duplicate-setting", None),
        (f'{HEAD} classes from ""', "wrong-value", None),
        (f'{HEAD} classes from "/no/such.names"', "unreadable-file", "No such file or directory"),
        (f'{HEAD} classes "a", "b", "c"', "wrong-detection", "14 channels"),
        ("head large { anchors = [1, 2, 3, 4, 5, 6] }", "wrong-detection", "14 channels"),
        ("head head { anchors = [1, 2, 3, 4] }", "wrong-detection", "7 channels"),
        (f"{HEAD} head other {{ anchors = [1, 2] }}", "wrong-detection", "2 in large, 16 in other"),
    ],
)
def test_faults(section: str, code: str, found: str | None) -> None:
    (fault,) = faults(f"detection {{ {section} }}")
    assert (fault.code, fault.found) == (code, found)


def test_a_head_must_leave_the_network() -> None:
    network = NETWORK.replace("output large, head, other", "output other")
    (fault,) = faults(f"detection {{ {HEAD} }}", network)
    assert (fault.code, fault.found, fault.location.line) == ("wrong-detection", "large", 9)


def test_the_input_must_be_a_picture() -> None:
    network = NETWORK.replace("3x8x8", "4x8x8")
    (fault,) = faults(f"detection {{ {HEAD} }}", network)
    assert (fault.code, fault.found) == ("wrong-detection", "4x8x8")


def test_one_section() -> None:
    assert [fault.code for fault in faults(f"detection {{ {HEAD} }} detection {{ {HEAD} }}")] == ["repeated-section"]


def test_the_manuals_example_reads() -> None:
    manual = (Path(__file__).parents[4] / "docs" / "detection.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```bp\n(.*?)```", manual, re.DOTALL)
    detector = parse_network_text(example, "manual", None).detector
    assert detector is not None
    assert detector.classes == ("dog", "traffic light")


@pytest.mark.parametrize("side", ["0", "-1", "16777217", "1e400"])
def test_anchors_have_the_size_of_a_picture(side: str) -> None:
    (fault,) = faults(f"detection {{ head head {{ anchors = [1, {side}] }} }}")
    assert (fault.code, fault.message) == ("wrong-type", 'wrong value of "anchors"')
