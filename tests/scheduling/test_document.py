"""Schedules as JSON and CSV: what is written is read back, and each fault of an edited one is located."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.scheduling.allocation import schedule_network
from binpoint.scheduling.document import MAXIMUM_FAULTS, parse_schedule, print_csv, print_schedule
from binpoint.scheduling.schedule import Schedule
from binpoint.scheduling.workload import Workload
from binpoint.support.diagnostics import Diagnostic, UserError
from binpoint.support.target import Target

TARGET = Target("tiny", 8, (2, 4), (0, 4))
WORKLOADS = [Workload("conv1", 3, 4, 4, 9, 16, 27, 48), Workload("fc", 6, 1, 1, 48, 48, 288, 6)]


def make_schedule(images: int = 4, target: Target = TARGET) -> Schedule:
    return schedule_network("net", WORKLOADS, images, target)


def read(text: str, batch: int | None = None, target: Target = TARGET) -> Schedule:
    return parse_schedule(text, "edited.json", "net", WORKLOADS, target, batch)


def faults(text: str, batch: int | None = None) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as caught:
        read(text, batch)
    return caught.value.diagnostics


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    """The document of a good schedule after one change, laid out as it was written."""
    document = json.loads(print_schedule(make_schedule(), TARGET, {}))
    change(document)
    return json.dumps(document, indent=1)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3))
def test_what_is_written_is_read_back(images: int, ti: int, tc: int) -> None:
    target = Target("tiny", 8, (2, 4), (0, 4), tile=(ti, tc))
    schedule = make_schedule(images, target)
    text = print_schedule(schedule, target, {"conv1": {"rounds": 1}})
    assert read(text, images, target) == schedule
    assert read(text, None, target) == schedule


def test_the_text_is_laid_out_for_an_editor() -> None:
    text = print_schedule(make_schedule(2), TARGET, {"conv1": {"rounds": 1}})
    assert text.startswith('{\n  "format": "binpoint-schedule",\n  "version": 1,\n  "network": "net",\n')
    assert '  "batch": 2,\n  "layers": [\n    {\n      "layer": "conv1",\n      "channels": 3,\n' in text
    assert '      "pe": [\n        [0, 1, 2],\n        [5, 3, 4]\n      ],\n' in text
    assert text.endswith("  ]\n}\n")


def test_an_edit_is_obeyed() -> None:
    text = edited(lambda document: document["layers"][0]["pe"][0].__setitem__(slice(0, 2), [1, 0]))
    layer = read(text).layers[0]
    assert layer.pe[0].tolist() == [1, 0, 2]
    assert layer.sampled[0].tolist() == [False, True, False]


def test_a_document_may_leave_layers_out() -> None:
    text = edited(lambda document: document["layers"].pop(0))
    assert [layer.layer for layer in read(text).layers] == ["fc"]


LAYER = ("layers", 0)
CHANGES: list[tuple[str, Callable[[dict[str, Any]], object], str, str]] = [
    ("version", lambda d: d.update(version=2), "wrong-version", "another version"),
    ("format", lambda d: d.update(format="other"), "wrong-format", "another format"),
    ("network", lambda d: d.update(network="lenet"), "wrong-network", "another network"),
    ("target name", lambda d: d["target"].update(name="big"), "wrong-target", "another target"),
    ("target PEs", lambda d: d["target"].update(pes=9), "wrong-target", "another target"),
    ("target tile", lambda d: d["target"].update(tile=[2, 1]), "wrong-target", "another target"),
    ("target type", lambda d: d.update(target=3), "wrong-type", "no object"),
    ("batch", lambda d: d.update(batch="4"), "wrong-type", "batch"),
    ("no batch", lambda d: d.pop("batch"), "missing-key", '"batch" is missing'),
    ("layers type", lambda d: d.update(layers={}), "wrong-type", "layers is no list"),
    ("unknown key", lambda d: d.update(layer=[]), "unknown-key", 'no key "layer"'),
    ("entry type", lambda d: d["layers"].append(3), "wrong-type", "no object"),
    ("unknown layer", lambda d: d["layers"][0].update(layer="conv"), "unknown-layer", 'no layer "conv"'),
    ("layer type", lambda d: d["layers"][0].update(layer=["x"]), "unknown-layer", 'no layer ["x"]'),
    ("repeated layer", lambda d: d["layers"].append(d["layers"][0]), "repeated-layer", "scheduled twice"),
    ("channels", lambda d: d["layers"][0].update(channels=4), "wrong-channels", "conv1 has 3 output channels"),
    ("no round", lambda d: d["layers"][0].pop("round"), "missing-key", '"round" is missing'),
    ("pe type", lambda d: d["layers"][0].update(pe=7), "wrong-type", "conv1: pe is no list"),
    ("row type", lambda d: d["layers"][0]["pe"].__setitem__(1, 7), "wrong-type", "conv1: pe of image 1 is no list"),
    ("null", lambda d: d["layers"][0]["pe"][1].__setitem__(2, None), "missing-pair", "image 1, channel 2: no PE"),
    ("short row", lambda d: d["layers"][0]["pe"][1].pop(), "missing-pair", "conv1: image 1, channel 2: missing in pe"),
    ("short", lambda d: d["layers"][0]["pe"].pop(), "missing-pair", "conv1: image 3: missing in pe"),
    ("long row", lambda d: d["layers"][0]["pe"][1].append(0), "extra-pair", "conv1: image 1: more entries in pe"),
    ("long", lambda d: d["layers"][0]["pe"].append([0, 1, 2]), "extra-pair", "conv1: images: more entries in pe"),
    ("PE", lambda d: d["layers"][0]["pe"][1].__setitem__(2, 8), "schedule-conflict", "channel 2: there is no PE 8"),
    ("huge", lambda d: d["layers"][0]["pe"][1].__setitem__(2, 2**70), "schedule-conflict", f"no PE {2**70}"),
    ("text", lambda d: d["layers"][0]["pe"][1].__setitem__(2, "4"), "schedule-conflict", 'no PE "4"'),
    ("flag", lambda d: d["layers"][0]["pe"][1].__setitem__(2, True), "schedule-conflict", "no PE true"),
    ("real", lambda d: d["layers"][0]["pe"][1].__setitem__(2, 1.0), "schedule-conflict", "no PE 1.0"),
    ("round", lambda d: d["layers"][0]["round"][1].__setitem__(2, 12), "schedule-conflict", "no round 12"),
    ("gap", lambda d: d["layers"][0]["round"][3].__setitem__(2, 3), "schedule-conflict", "round 3, but no tile is in"),
    ("twice", lambda d: d["layers"][0]["pe"][1].__setitem__(0, 0), "schedule-conflict", "PE 0 twice in round 0"),
]


@pytest.mark.parametrize(("change", "code", "message"), [pytest.param(*case, id=name) for name, *case in CHANGES])
def test_each_fault_is_one_located_diagnostic(
    change: Callable[[dict[str, Any]], object], code: str, message: str
) -> None:
    (diagnostic,) = faults(edited(change))
    assert diagnostic.code == code
    assert message in diagnostic.message
    assert diagnostic.location is not None
    assert diagnostic.location.file == "edited.json"
    assert diagnostic.location.line is not None


def test_a_fault_points_at_its_number() -> None:
    text = print_schedule(make_schedule(), TARGET, {}).replace("[0, 1, 2]", "[0, 2100, 2]", 1)
    (diagnostic,) = faults(text)
    assert str(diagnostic).splitlines() == [
        "error[schedule-conflict]: conv1: image 0, channel 1: there is no PE 2100",
        "  --> edited.json:16:13",
        "    |",
        " 16 |         [0, 2100, 2],",
        "    |             ^^^^",
        "  found:    2100",
        "  expected: PE 0 to 7",
    ]


def test_a_pe_taken_twice_names_both_pairs() -> None:
    (diagnostic,) = faults(edited(lambda d: d["layers"][0]["pe"][1].__setitem__(0, 0)))
    assert diagnostic.message == ("conv1: image 1, channel 0: PE 0 twice in round 0, also for image 0, channel 0")


def test_an_unknown_layer_gets_a_hint() -> None:
    (diagnostic,) = faults(edited(lambda d: d["layers"][0].update(layer="conv2")))
    assert diagnostic.hint == 'did you mean "conv1"?'


def test_the_wrong_batch_is_a_fault() -> None:
    (diagnostic,) = faults(edited(lambda d: None), batch=8)
    assert (diagnostic.code, diagnostic.found, diagnostic.expected) == ("wrong-batch", "4", "8")


def test_several_faults_come_at_once() -> None:
    def change(document: dict[str, Any]) -> None:
        document["layers"][0]["pe"][0][0] = 99
        document["layers"][1]["round"][2].pop()

    assert [diagnostic.code for diagnostic in faults(edited(change))] == ["schedule-conflict", "missing-pair"]


def test_faults_of_one_layer_come_at_once() -> None:
    def change(document: dict[str, Any]) -> None:
        document["layers"][0]["pe"][0][2] = 200
        document["layers"][0]["pe"][1][0] = 0
        document["layers"][0]["round"][3][2] = None

    assert [diagnostic.message for diagnostic in faults(edited(change))] == [
        "conv1: image 0, channel 2: there is no PE 200",
        "conv1: image 3, channel 2: no round",
        "conv1: image 1, channel 0: PE 0 twice in round 0, also for image 0, channel 0",
    ]


def test_many_faults_are_counted() -> None:
    def change(document: dict[str, Any]) -> None:
        document["layers"][1]["pe"] = [[-1] * 6] * 4

    *shown, last = faults(edited(change))
    assert len(shown) == MAXIMUM_FAULTS
    assert last.message == f"the schedule has {24 - MAXIMUM_FAULTS} more faults"


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [('{"format": \n "x",, }', 2, 6), ("", 1, 1), ("[1, 2", 1, 6), ("{'a': 1}", 1, 2), ("\ufeff{}", 1, 1)],
)
def test_text_that_is_no_json_is_located(text: str, line: int, column: int) -> None:
    (diagnostic,) = faults(text)
    assert diagnostic.code == "bad-json"
    assert diagnostic.location is not None
    assert (diagnostic.location.line, diagnostic.location.column) == (line, column)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"batch": NaN}', '{"batch": ' + "9" * 5000 + "}", "null", "3", "[]"])
def test_strange_json_is_a_diagnostic(text: str) -> None:
    assert faults(text)


def test_a_repeated_key_is_a_fault() -> None:
    (diagnostic,) = faults('{"format": 1, "format": 2}')
    assert diagnostic.code == "repeated-key"


def test_csv_has_a_line_a_pair() -> None:
    target = Target("tiny", 8, (2, 4), (0, 4), tile=(2, 2))
    schedule = make_schedule(3, target)
    rows = list(csv.DictReader(io.StringIO(print_csv(schedule))))
    assert len(rows) == 3 * 3 + 3 * 6
    for row in rows:
        layer = next(layer for layer in schedule.layers if layer.layer == row["layer"])
        tile = layer.tiling.tile_of(int(row["image"]), int(row["channel"]))
        assert (int(row["pe"]), int(row["round"])) == (layer.pe[tile], layer.round[tile])
        assert row["sampled"] == str(int(layer.sampled[tile]))


def test_csv_samples_nothing_where_there_are_no_statistics() -> None:
    rows = list(csv.DictReader(io.StringIO(print_csv(make_schedule(), without_statistics=["fc"]))))
    assert {row["sampled"] for row in rows if row["layer"] == "fc"} == {"0"}
    assert {row["sampled"] for row in rows if row["layer"] == "conv1"} == {"0", "1"}


def test_layers_with_rows_of_their_own() -> None:
    workloads = [*WORKLOADS, Workload("fc.weight.grad", 2, 1, 1, 1, 1, 1, 1, rows=5)]
    target = Target("small", 4, (2, 2), (0,))
    made = schedule_network("net", workloads, 3, target)
    assert [layer.images for layer in made.layers] == [3, 3, 5]
    text = print_schedule(made, target, {})
    assert parse_schedule(text, "s.json", "net", workloads, target) == made
