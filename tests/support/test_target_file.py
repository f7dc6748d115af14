"""Target files: the shipped ones, the round trip, and each fault located in the text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.support.diagnostics import Diagnostic, UserError
from binpoint.support.target import Allocation, Allocator, RotationCount, Strategy, Target
from binpoint.support.target_file import (
    load_target,
    parse_target,
    print_target,
    shipped_targets,
    square_grid,
    target_settings,
)

GOOD = """\
name = "tiny"

[array]
pes = 16
grid = [4, 4]

[statistics]
every = 4

[allocation]
strategy = "rotated"
"""


def faults(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as caught:
        parse_target(text, "t.toml")
    return caught.value.diagnostics


def only_fault(text: str) -> Diagnostic:
    (diagnostic,) = faults(text)
    return diagnostic


def place(diagnostic: Diagnostic) -> tuple[int | None, int | None, int]:
    assert diagnostic.location is not None
    return diagnostic.location.line, diagnostic.location.column, diagnostic.location.length


def test_defaults_fill_a_short_file() -> None:
    assert parse_target(GOOD, "t.toml") == Target("tiny", 16, (4, 4), (0, 4, 8, 12))


def test_the_shipped_targets() -> None:
    targets = {name: load_target(name) for name in shipped_targets()}
    assert set(targets) == {"block16", "block16-neighbour", "dlu2048", "full2048", "mechanical2048", "tiny16"}
    assert all(target.name == name and target.description and not target.notes() for name, target in targets.items())
    dlu = targets["dlu2048"]
    assert (dlu.pes, len(dlu.statistics_pes), dlu.register_bits, dlu.accumulator_bits) == (2048, 128, 16, 40)
    assert dlu.allocation == Allocation(rotation=RotationCount.CONTINUOUS)
    assert targets["full2048"].statistics_pes == tuple(range(2048))
    assert targets["mechanical2048"].allocation == Allocation(Strategy.MECHANICAL, 4, 4)


def test_the_shipped_files_mark_their_assumptions() -> None:
    folder = Path(__file__).parents[2] / "examples" / "targets"
    files = list(folder.glob("*.toml"))
    assert {file.stem for file in files} == set(shipped_targets())
    assert all("# Assumptions" in file.read_text() for file in files)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    pes = rows * columns
    strategy = draw(st.sampled_from(Strategy))
    thinning = (1, 1) if strategy is Strategy.ROTATED else (draw(st.integers(1, pes)), 1)
    turning = () if strategy is Strategy.MECHANICAL else (draw(st.integers(1, 9)), draw(st.sampled_from(RotationCount)))
    every = draw(st.integers(1, pes))
    numbers = draw(st.just(range(0, pes, every)) | st.sets(st.integers(0, pes - 1)))
    rate = st.floats(1, 1e15)
    return Target(
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)),
        pes=pes,
        grid=(rows, columns),
        statistics_pes=tuple(sorted(numbers)),
        acquires=draw(st.sampled_from([("msb",), ("lsb",), ("msb", "lsb")])),
        register_bits=draw(st.integers(2, 32)),
        accumulator_bits=draw(st.integers(32, 64)),
        accumulator_wraps=draw(st.booleans()),
        allocation=Allocation(strategy, *thinning, *turning),
        allocator=draw(st.sampled_from(Allocator)),
        tile=(draw(st.integers(1, 9)), draw(st.integers(1, 9))),
        clock_hz=draw(rate),
        dram_bytes_per_second=draw(rate),
        host_link_bytes_per_second=draw(rate),
        local_memory_bytes=draw(st.integers(1, 2**40)),
        description=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    )


@given(targets())
def test_what_is_printed_is_read_back(target: Target) -> None:
    assert parse_target(print_target(target), "t.toml") == target


@given(targets())
def test_settings_are_what_is_printed_key_by_key(target: Target) -> None:
    text = "".join(f"{key} = {value}\n" for key, value in target_settings(target).items())
    assert parse_target(text, "t.toml") == target


def test_settings_have_dotted_keys_and_one_line_each() -> None:
    said = target_settings(Target("many", 400, (20, 20), tuple(range(1, 400, 2))))
    assert (said["name"], said["array.grid"], said["allocation.strategy"]) == ('"many"', "[20, 20]", '"rotated"')
    assert said["statistics.pes"].startswith("[1, 3, 5, ")
    assert not any("\n" in value for value in said.values())


def test_a_long_list_of_statistics_pes_is_wrapped() -> None:
    target = Target("many", 400, (20, 20), tuple(range(1, 400, 2)))
    text = print_target(target)
    assert max(map(len, text.splitlines())) <= 120
    assert parse_target(text, "t.toml") == target


def test_the_grid_is_nearly_square_where_none_is_given() -> None:
    assert [square_grid(pes) for pes in (1, 7, 12, 16, 2048)] == [(1, 1), (1, 7), (3, 4), (4, 4), (32, 64)]
    assert parse_target(GOOD.replace("grid = [4, 4]\n", ""), "t.toml").grid == (4, 4)


def test_a_list_of_statistics_pes_may_be_in_any_order() -> None:
    assert parse_target(GOOD.replace("every = 4", "pes = [9, 1, 5]"), "t.toml").statistics_pes == (1, 5, 9)


@pytest.mark.parametrize(
    ("old", "new", "code", "where", "message"),
    [
        ('"tiny"', '"a b"', "out-of-range", (1, 8, 5), "plain name"),
        ('"tiny"', "3", "wrong-type", (1, 8, 1), "name cannot be 3"),
        ("[array]", "[aray]", "unknown-key", (3, 2, 4), 'no key "aray"'),
        ("pes = 16", "pes = true", "wrong-type", (4, 7, 4), "array.pes cannot be true"),
        ("pes = 16", "pes = 16.0", "wrong-type", (4, 7, 4), "array.pes cannot be 16.0"),
        ("pes = 16", "pes = -1", "out-of-range", (4, 7, 2), "pes is out of range"),
        ("pes = 16", "pes = 99999999999999999999", "out-of-range", (4, 7, 20), "pes is out of range"),
        ("pes = 16", "pess = 16", "unknown-key", (4, 1, 4), 'no key "pess"'),
        ("[4, 4]", "[4, 5] # rows, columns", "contradiction", (5, 8, 6), "20 places for 16 PEs"),
        ("[4, 4]", "[4]", "wrong-type", (5, 8, 3), "array.grid cannot be [4]"),
        ("[4, 4]", "[4, 4]\ntile = [1, 0]", "out-of-range", (6, 8, 6), "tile is out of range"),
        ("every = 4", "every = 0", "out-of-range", (8, 9, 1), "every is out of range"),
        ("every = 4", "every = 17", "out-of-range", (8, 9, 2), "every is out of range"),
        ("every = 4", "every = 4\npes = [1]", "contradiction", (9, 1, 3), "both every and pes"),
        ("every = 4", "pes = [1, 16]", "contradiction", (8, 7, 7), "the array does not have"),
        ("every = 4", "pes = [1, 1]", "contradiction", (8, 7, 6), "repeated"),
        ("every = 4", 'pes = [1, "2"]', "wrong-type", (8, 7, 8), "statistics.pes cannot be"),
        ("every = 4", 'every = 4\nacquires = ["msb", "mid"]', "out-of-range", (9, 12, 14), "unknown or repeated"),
        ("every = 4", "every = 4\nacquires = []", "contradiction", (9, 12, 2), "acquire nothing"),
        ('"rotated"', '"rotate"', "unknown-choice", (11, 12, 8), 'strategy cannot be "rotate"'),
        ('"rotated"', "7", "wrong-type", (11, 12, 1), "strategy cannot be 7"),
        ('"rotated"', '"rotated"\nx = 4', "contradiction", (12, 5, 1), "rotated has no x"),
        ('"rotated"', '"mechanical"\nx = 2\ny = 2\nshift = 1', "contradiction", (14, 9, 1), "mechanical has no shift"),
        ('"rotated"', '"mechanical"\nx = 4\ny = 5', "contradiction", (12, 5, 1), "20 PEs share one"),
        ('"rotated"', '"thinned-rotated"\nx = 4', "missing-key", (10, 2, 10), "no allocation.y"),
        ('"rotated"', '"rotated"\n[arithmetic]\nregister_bits = 64', "out-of-range", (13, 17, 2), "register_bits"),
        ('"rotated"', '"rotated"\n[arithmetic]\naccumulator_bits = 8', "out-of-range", (13, 20, 1), "accumulator_bits"),
        ('"rotated"', '"rotated"\n[physical]\nclock_hz = inf', "out-of-range", (13, 12, 3), "clock_hz"),
        ('"rotated"', '"rotated"\n[physical]\nclock_hz = "1 GHz"', "wrong-type", (13, 12, 7), "physical.clock_hz"),
        ('"rotated"', '"rotated"\n[physical]\nlocal_memory_bytes = 0', "out-of-range", (13, 22, 1), "local_memory"),
    ],
)
def test_each_fault_is_located(old: str, new: str, code: str, where: tuple[int, int, int], message: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    diagnostic = next(diagnostic for diagnostic in faults(text) if message in diagnostic.message)
    assert (diagnostic.code, place(diagnostic)) == (code, where)


def test_consequences_are_not_reported() -> None:
    """A wrong number of PEs makes no further fault of the grid and the statistics that depend on it."""
    assert only_fault(GOOD.replace("pes = 16", 'pes = "16"')).code == "wrong-type"
    assert only_fault(GOOD.replace("pes = 16", "pes = 0")).code == "out-of-range"


@pytest.mark.parametrize(
    ("right", "wrong"), [("pes", "pess"), ("every", "evry"), ("[array]", "[aray]"), ("name", "nam")]
)
def test_a_misspelt_key_is_not_also_missing(right: str, wrong: str) -> None:
    assert only_fault(GOOD.replace(right, wrong, 1)).code == "unknown-key"


def test_several_faults_come_at_once() -> None:
    text = GOOD.replace("[4, 4]", "[3, 4]").replace("every = 4", "evry = 4").replace('"rotated"', '"rotten"')
    assert [diagnostic.code for diagnostic in faults(text)] == ["contradiction", "unknown-key", "unknown-choice"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (GOOD.replace("pes = 16", "pess = 16"), 'did you mean "pes"?'),
        (GOOD.replace("every = 4", "every = 4\nclock_hz = 1e9"), "clock_hz belongs to [physical]"),
        (GOOD.replace('"rotated"', '"rotate"'), 'did you mean "rotated"?'),
        (GOOD.replace("[array]", "[aray]"), 'did you mean "array"?'),
    ],
)
def test_hints(text: str, hint: str) -> None:
    assert hint in [diagnostic.hint for diagnostic in faults(text)]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("name = = 3", 1, 8), ('name = "a"\n[array\n', 2, 7), ('name = "a', 1, None), ("a = 1\na = 2\nb = 3", 2, 6)],
)
def test_text_that_is_no_toml_is_located(text: str, line: int, column: int | None) -> None:
    diagnostic = only_fault(text)
    assert diagnostic.code == "bad-toml"
    assert place(diagnostic)[:2] == (line, column)


@pytest.mark.parametrize(
    ("value", "message", "line"),
    [
        ("0x" + "f" * 5000, "holds a number that is too large", 4),
        ("[1, [-0x" + "f" * 5000 + "]]", "is not TOML", 4),
        ("[1, [0x" + "f" * 5000 + "]]", "holds a number that is too large", 4),
        ("9" * 5000, "holds a number that is too large", None),
        ("[" * 5000 + "]" * 5000, "nests too deep", None),
    ],
)
def test_values_that_python_cannot_take_are_faults(value: str, message: str, line: int | None) -> None:
    diagnostic = only_fault(GOOD.replace("pes = 16", f"pes = {value}"))
    assert diagnostic.code == "bad-toml"
    assert message in diagnostic.message
    assert place(diagnostic)[0] == line


def test_lines_end_where_toml_ends_them() -> None:
    text = GOOD.replace("pes = 16", "# a \u2028 b \x85 c\r\npes = 0", 1)
    assert [place(diagnostic)[0] for diagnostic in faults(text)] == [5]


def test_an_empty_file_names_what_is_missing() -> None:
    assert {diagnostic.code for diagnostic in faults("")} == {"missing-key"}
    messages = " ".join(diagnostic.message for diagnostic in faults(""))
    assert all(key in messages for key in ("name", "array.pes", "allocation.strategy", "statistics.every"))


def test_keys_are_found_however_they_are_written() -> None:
    text = 'name = """\npes = 3\n"""\narray = { pes = 16, grid = [4, 5] }\nstatistics."every" = 4\n'
    text += 'allocation.strategy = "rotated"\nphysical.clock_hz = -1\n'
    by_code = {diagnostic.message: place(diagnostic) for diagnostic in faults(text)}
    assert by_code["the grid has 20 places for 16 PEs"][:2] == (4, 9)
    assert by_code["clock_hz is out of range"] == (7, 21, 2)


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert load_target(str(path)).name == "tiny"
    path.write_text(GOOD.replace("[4, 4]", "[4, 5]"))
    with pytest.raises(UserError) as caught:
        load_target(str(path))
    assert f"{path}:5:8" in str(caught.value)


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(UserError) as caught:
        load_target("dlu2084")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.hint) == ("unknown-target", 'did you mean "dlu2048"?')


def test_a_missing_file_is_a_diagnostic() -> None:
    with pytest.raises(UserError, match="cannot read the target file"):
        load_target("none.toml")
