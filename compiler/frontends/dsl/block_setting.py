"""`blocks = METHOD(option = value, ...)`: how blocks of feature maps get their exponents -> BlockWords."""

from __future__ import annotations

from dataclasses import replace

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.setting_reader import SettingReader
from binpoint.compiler.frontends.dsl.values import Evaluator
from binpoint.support.numeric import (
    BLOCK_OPTIONS,
    EXPONENT_LIMITS,
    MOST_CANDIDATES,
    BlockMethod,
    BlockWords,
    Measure,
    Neighbour,
    Selection,
)

OPTIONS_OF_METHOD = {
    method: tuple(
        name
        for name in BLOCK_OPTIONS.values()
        if method is BlockMethod.PREDICT or name not in ("neighbours", "threshold")
    )
    for method in BlockMethod
}
"""The options that mean something to each method."""


def read_blocks(setting: syntax.Setting, reader: SettingReader) -> BlockWords:
    """The words of `predict(neighbours = [left, upper], candidates = 4)`. Raises UserError with one fault."""
    method = reader.word(setting, BlockMethod, syntax.Options)
    words, seen = BlockWords(method), set[str]()
    for detail in setting.details:
        for option in detail.attributes if isinstance(detail, syntax.Options) else ():
            reader.once(option.name, seen)
            if {"candidates", "positions"} <= seen:
                message = "candidates are counted or listed, not both"
                raise reader.error("contradiction", message, option.name, "candidates or positions")
            words = _option(option, method, words, reader)
    return words


def _option(option: syntax.Attribute, method: BlockMethod, words: BlockWords, reader: SettingReader) -> BlockWords:
    name, known = option.name.text, OPTIONS_OF_METHOD[method]
    if name not in known:
        message = f'{method} has no option "{name}"'
        raise reader.error("unknown-attribute", message, option.name, f"one of {', '.join(known)}", known)
    match name:
        case "measure":
            return replace(words, measure=reader.choice(option.name, option.value, Measure))
        case "alignment":
            return replace(words, selection=reader.choice(option.name, option.value, Selection))
        case "candidates":
            return replace(words, candidates=reader.whole(option.value, 1, MOST_CANDIDATES, "the number of candidates"))
        case "positions":
            return replace(words, positions=_positions(option, reader))
        case "neighbours":
            return replace(words, neighbours=_neighbours(option, reader))
        case _:
            threshold = Evaluator(reader.source, {}).number(option.value)
            if threshold < 0:
                raise reader.error("out-of-range", "the threshold is out of range", option.value, "at least 0")
            return replace(words, threshold=threshold)


def _positions(option: syntax.Attribute, reader: SettingReader) -> tuple[int, ...]:
    """[6, 5, 4, 3]: numbers of fraction bits, the finest first."""
    expected = f"1 to {MOST_CANDIDATES} whole numbers such as [6, 5, 4, 3], each once"
    match option.value:
        case syntax.List(items=items) if len(items) <= MOST_CANDIDATES:
            # A position is a negated exponent.
            limits = -EXPONENT_LIMITS[1], -EXPONENT_LIMITS[0]
            positions = [reader.whole(item, *limits, "a position") for item in items]
            if len(set(positions)) == len(positions):
                return tuple(sorted(positions, reverse=True))
    raise reader.error("wrong-value", "this is no list of positions", option.value, expected)


def _neighbours(option: syntax.Attribute, reader: SettingReader) -> tuple[Neighbour, ...]:
    """[left, upper], in the order of `Neighbour`."""
    if not isinstance(option.value, syntax.List):
        expected = f"a list of {', '.join(Neighbour)}"
        raise reader.error("wrong-type", "this is no list of neighbours", option.value, expected)
    found = [reader.choice(option.name, item, Neighbour) for item in option.value.items]
    if len(set(found)) < len(found):
        raise reader.error("wrong-value", "a neighbour is named twice", option.value, "each once")
    return tuple(neighbour for neighbour in Neighbour if neighbour in found)
