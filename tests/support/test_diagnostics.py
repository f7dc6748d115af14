"""Diagnostics: what the user sees."""

import pytest

from binpoint.support.diagnostics import (
    EXCERPT_WIDTH,
    Collector,
    Diagnostic,
    Location,
    UserError,
    did_you_mean,
    user_error,
)


def test_excerpt_points_at_the_columns() -> None:
    place = Location("net.bp", 12, 9, 7, "  conv1 = convv2d(x)")
    text = str(
        Diagnostic("unknown-layer", "no such layer kind", place, "convv2d", "a layer kind", "did you mean conv2d?")
    )
    assert text.splitlines() == [
        "error[unknown-layer]: no such layer kind",
        "  --> net.bp:12:9",
        "    |",
        " 12 |   conv1 = convv2d(x)",
        "    |         ^^^^^^^",
        "  found:    convv2d",
        "  expected: a layer kind",
        "  hint:     did you mean conv2d?",
    ]


def test_a_location_shows_what_it_knows() -> None:
    assert str(Location("a.npy")) == "a.npy"
    assert str(Location("a.toml", 3)) == "a.toml:3"


def test_a_caret_stays_inside_the_line() -> None:
    text = str(Diagnostic("code", "message", Location("f", 1, 2, 99, "abc")))
    assert text.splitlines()[-1] == "   |  ^^"


def test_a_place_in_a_block_says_where_the_block_is_used() -> None:
    outer = Location("net.bp", 3, 1)
    place = Location("net.bp", 9, 1, 1, "a", Location("net.bp", 6, 1, used_at=outer))
    assert str(Diagnostic("code", "message", place)).splitlines()[-2:] == [
        "  used at:  net.bp:6:1",
        "  used at:  net.bp:3:1",
    ]


def test_a_long_line_is_cut_around_the_column() -> None:
    place = Location("f", 1, 5000, 4, "a" * 4999 + "here" + "b" * 5000)
    _, _, _, text, carets = str(Diagnostic("code", "message", place)).splitlines()
    assert len(text) == len(" 1 | ") + EXCERPT_WIDTH
    start = carets.index("^")
    assert (text[start : start + 4], carets[start:]) == ("here", "^^^^")


def test_nothing_steers_the_terminal() -> None:
    text = str(Diagnostic("code", "message", Location("f", 1, 3, 1, "\ta\x1b[31m"), found="\x1b[31m"))
    assert text.splitlines()[2:] == ["   |", " 1 |  a\ufffd[31m", "   |   ^", "  found:    \ufffd[31m"]


def test_a_collector_raises_everything_at_once() -> None:
    collector = Collector()
    collector.raise_any()
    with collector.catch():
        raise user_error("first", "one")
    collector.add(Diagnostic("second", "two"))
    with pytest.raises(UserError) as caught:
        collector.raise_any()
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["first", "second"]


def test_a_user_error_needs_a_diagnostic() -> None:
    with pytest.raises(ValueError, match="at least one"):
        UserError()


def test_did_you_mean_names_the_closest() -> None:
    assert did_you_mean("conv2", ["conv2d", "relu"]) == 'did you mean "conv2d"?'
    assert did_you_mean("zzz", ["conv2d", "relu"]) is None


def test_rows_are_printed_as_a_table() -> None:
    rows = (("node", "operator"), ("a", "LRN"), ("longer", "x"), ("", "no name"))
    text = str(Diagnostic("code", "message", Location("f.onnx"), hint="do this", rows=rows))
    assert text.splitlines()[2:] == [
        "  node    operator",
        "  a       LRN",
        "  longer  x",
        "          no name",
        "  hint:     do this",
    ]
