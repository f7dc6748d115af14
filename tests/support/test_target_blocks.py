"""The [blocks] section of a target file."""

from fractions import Fraction

import pytest

from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import BlockMethod, BlockWords, Granularity, Neighbour
from binpoint.support.target_blocks import TargetBlocks
from binpoint.support.target_file import load_target, parse_target, print_target

TARGET = """\
name = "mine"
[array]
pes = 4
[statistics]
pes = []
[blocks]
{blocks}
[allocation]
strategy = "rotated"
"""


def read(blocks):
    return parse_target(TARGET.format(blocks=blocks), "mine.toml")


def test_a_section_reads_back():
    hardware = 'size = [2, 8]\nsharing = "channel"\nfilter = [5, 5]'
    target = read(f'{hardware}\nmethod = "predict"\nthreshold = 2.5\nneighbours = ["left"]')
    words = BlockWords(BlockMethod.PREDICT, neighbours=(Neighbour.LEFT,), threshold=Fraction(5, 2))
    assert target.blocks == TargetBlocks((2, 8), True, (5, 5), words)
    assert target.blocks.granularity == Granularity((2, 8), True)
    assert parse_target(print_target(target), "again.toml") == target
    assert read("size = [4, 4]\npositions = [6, 4]").blocks.policy.positions == (6, 4)
    assert load_target("dlu2048").blocks is None


@pytest.mark.parametrize(
    ("blocks", "code", "line"),
    [
        ("size = [0, 4]", "out-of-range", 7),
        ("candidates = 4", "missing-key", None),
        ('size = [4, 4]\nmethod = "analyze"', "unknown-choice", 8),
        ("size = [4, 4]\ncandidates = 99", "out-of-range", 8),
        ("size = [4, 4]\nthreshold = 3", "contradiction", 8),
        ("size = [4, 4]\ncandidates = 3\npositions = [1]", "contradiction", 9),
        ("size = [4, 4]\npositions = [1, 1]", "out-of-range", 8),
        ('size = [4, 4]\nmethod = "predict"\nthreshold = -1', "out-of-range", 9),
        ('size = [4, 4]\nmethod = "predict"\nneighbours = ["below"]', "unknown-choice", 9),
        ('size = [4, 4]\nmethod = "predict"\nneighbours = "left"', "wrong-type", 9),
        ('size = [4, 4]\nmethod = "predict"\nneighbours = ["left", 1]', "wrong-type", 9),
        ("size = [4, 4]\nfilter = [17, 3]", "out-of-range", 8),
        ("size = [4, 4]\nshare = 1", "unknown-key", 8),
    ],
)
def test_faults(blocks, code, line):
    with pytest.raises(UserError) as caught:
        read(blocks)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert line is None or diagnostic.location.line == line


@pytest.mark.parametrize(
    ("blocks", "message", "expected"),
    [
        ("size = [4, 4]\ncandidates = 65", "blocks.candidates is out of range", "1 to 64"),
        ("size = [0, 4]", "blocks.size is out of range", "1 to 4096"),
        ("size = [4, 4]\npositions = [9999]", "blocks.positions is out of range", "-1023 to 1024"),
        ("size = [4, 4]\npositions = []", "this is no list of positions", "1 to 64 whole numbers, each once"),
    ],
)
def test_messages_name_keys_as_the_file_does(blocks, message, expected):
    with pytest.raises(UserError) as caught:
        read(blocks)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.expected) == (message, expected)


def test_the_hint_is_about_the_item_of_a_list():
    with pytest.raises(UserError) as caught:
        read('size = [4, 4]\nmethod = "predict"\nneighbours = ["left", "uper"]')
    assert caught.value.diagnostics[0].hint == 'did you mean "upper"?'
