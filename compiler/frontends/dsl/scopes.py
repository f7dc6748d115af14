"""Checks before blocks are expanded: definitions of blocks, and calls against what they call.

Whatever does not depend on the values of a block's parameters is checked once, where it is written, also in
blocks that nobody uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.faults import prefixes, suggest
from binpoint.compiler.frontends.dsl.formatting import signature
from binpoint.compiler.frontends.dsl.source import Source, Span
from binpoint.compiler.frontends.dsl.values import FLAGS
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.support.diagnostics import Collector


@dataclass(frozen=True)
class BlockDefinition:
    """A block: its feature maps in order, its numbers with their defaults (None: to be given), its layers."""

    name: str
    maps: tuple[str, ...]
    numbers: Mapping[str, syntax.Expression | None]
    assignments: tuple[syntax.Assignment, ...]
    result: syntax.Word | syntax.Call
    signature: str
    """How the block is called: residual(x, channels, stride=1)."""

    def calls(self) -> Iterator[syntax.Call]:
        """All calls of the block, also those inside others."""
        return _calls([*(assignment.call for assignment in self.assignments), self.result])


class ScopeChecker:
    """Checks the blocks of a file and the calls inside them and the network; faults go to the collector."""

    def __init__(self, source: Source, blocks: Sequence[syntax.Block], collector: Collector) -> None:
        self.source, self.collector = source, collector
        self.faulty_calls: set[Span] = set()
        """The calls that cannot be expanded."""
        self.blocks: dict[str, BlockDefinition] = {}
        self.broken_blocks: set[str] = set()
        """Blocks whose definition is faulty: their calls are not checked further."""
        for block in blocks:
            self._define(block)
        self._reject_recursion({block.name.text: block.name for block in blocks})
        for definition in self.blocks.values():
            for call in definition.calls():
                self._check_call(call)

    def check_network(self, network: syntax.Network) -> None:
        """Check the calls of the network itself."""
        for call in _calls(item.call for item in network.statements if isinstance(item, syntax.Assignment)):
            self._check_call(call)

    def _fault(self, code: str, message: str, word: syntax.Word, expected: str, hint: str | None = None) -> None:
        self.collector.add(self.source.fault(code, message, word.span, found=word.text, expected=expected, hint=hint))

    def _suggest(self, word: syntax.Word, candidates: Iterable[str]) -> str | None:
        return suggest(word.text, candidates, self.collector)

    def _define(self, block: syntax.Block) -> None:
        """Add a block to the known ones, or to the broken ones."""
        before = len(self.collector.diagnostics)
        name = block.name.text
        if name in LAYER_KINDS:
            self._fault("duplicate-name", f'"{name}" is a layer kind', block.name, "another name for the block")
        if name in self.blocks or name in self.broken_blocks:
            self._fault("duplicate-name", f'the block "{name}" is defined twice', block.name, "one definition")
        self._check_local_names(block)
        words_known = self._check_words(block)
        maps, numbers = self._sort_parameters(block)
        for parameter in block.parameters if words_known else ():
            if parameter.name.text not in {*maps, *numbers}:
                message = f'the parameter "{parameter.name.text}" is never used'
                self._fault("unused-parameter", message, parameter.name, "a parameter that a layer reads or uses")
        if len(block.returns) != 1:
            message = f'the block "{name}" has {len(block.returns)} return statements'
            word = block.name if not block.returns else syntax.Word("return", block.returns[1].span)
            self._fault("wrong-return", message, word, "one return, such as return relu(x)")
        if len(self.collector.diagnostics) > before:
            self.broken_blocks.add(name)
        else:
            defaults = [
                number if default is None else f"{number}={self.source.excerpt(default.span)}"
                for number, default in numbers.items()
            ]
            usage = f"{name}({', '.join([*maps, *defaults])})"
            result = block.returns[0].operand
            self.blocks[name] = BlockDefinition(name, maps, numbers, block.assignments, result, usage)

    def _reject_recursion(self, names: Mapping[str, syntax.Word]) -> None:
        """A block must not use itself, directly or through others."""
        uses: nx.DiGraph[str] = nx.DiGraph()
        for block in self.blocks.values():
            uses.add_edges_from((block.name, call.callee.text) for call in block.calls())
        for component in list(nx.strongly_connected_components(uses)):
            first = min(component, key=lambda name: names[name].span if name in names else Span(0, 0))
            if len(component) == 1 and not uses.has_edge(first, first):
                continue
            cycle = [edge[0] for edge in nx.find_cycle(uses.subgraph(component), first)]
            found = " -> ".join([*cycle, cycle[0]])
            self.collector.add(
                self.source.fault(
                    "recursive-block",
                    f'the block "{first}" uses itself',
                    names[first].span,
                    found=found,
                    expected="blocks that end",
                )
            )
            for name in component:
                self.broken_blocks.add(name)
                del self.blocks[name]

    def _check_local_names(self, block: syntax.Block) -> None:
        """No parameter or layer twice, no parameter called true or false."""
        words = [parameter.name for parameter in block.parameters] + [item.target for item in block.assignments]
        taken: set[str] = set()
        for word in words:
            if word.text in taken:
                self._fault("duplicate-name", f'the name "{word.text}" is taken', word, "a name of its own")
            taken.add(word.text)
        for parameter in block.parameters:
            if parameter.name.text in FLAGS:
                self._fault("wrong-name", f'"{parameter.name.text}" is a value', parameter.name, "another name")

    def _check_words(self, block: syntax.Block) -> bool:
        """A block knows its parameters and its own layers, nothing else."""
        before = len(self.collector.diagnostics)
        parameters = {parameter.name.text for parameter in block.parameters}
        layers = {assignment.target.text for assignment in block.assignments}
        for word in _operands(block):
            if word.text not in parameters and layers.isdisjoint(prefixes(word.text)):
                message = f'the block "{block.name.text}" does not know "{word.text}"'
                hint = self._suggest(word, parameters | layers)
                self._fault("unknown-name", message, word, "a parameter or a layer of the block", hint)
        for word in _expression_words(block):
            if word.text not in parameters and word.text not in FLAGS:
                message = f'"{word.text}" is no parameter of the block "{block.name.text}"'
                hint = self._suggest(word, [*parameters, *FLAGS])
                self._fault("unknown-parameter", message, word, "a value or a parameter of the block", hint)
        return len(self.collector.diagnostics) == before

    def _sort_parameters(self, block: syntax.Block) -> tuple[tuple[str, ...], dict[str, syntax.Expression | None]]:
        """Feature maps are the parameters that layers read, numbers those in attributes or with a default."""
        read = {word.text for word in _operands(block)}
        used = {word.text for word in _expression_words(block)}
        maps, numbers = [], {}
        for parameter in block.parameters:
            name = parameter.name.text
            if name in read and (name in used or parameter.default is not None):
                message = f'"{name}" is read as a feature map and used as a number'
                self._fault("wrong-parameter", message, parameter.name, "one of the two")
            if name in read:
                maps.append(name)
            elif name in used:
                numbers[name] = parameter.default
        return tuple(maps), numbers

    def _check_call(self, call: syntax.Call) -> None:
        name = call.callee.text
        before = len(self.collector.diagnostics)
        if name in LAYER_KINDS:
            kind = LAYER_KINDS[name]
            required = {attribute.name: attribute.required for attribute in kind.attributes}
            self._check_arguments(call, required, kind.arity, signature(kind))
        elif name in self.blocks:
            block = self.blocks[name]
            required = {number: default is None for number, default in block.numbers.items()}
            self._check_arguments(call, required, (len(block.maps), len(block.maps)), block.signature)
        elif name in self.broken_blocks:
            self.faulty_calls.add(call.span)
        else:
            self._fault(
                "unknown-layer-kind",
                f'"{name}" is neither a layer kind nor a block',
                call.callee,
                "a layer kind such as conv2d, or a block of this file",
                self._suggest(call.callee, [*LAYER_KINDS, *self.blocks]),
            )
        if len(self.collector.diagnostics) > before:
            self.faulty_calls.add(call.span)

    def _check_arguments(
        self, call: syntax.Call, required: Mapping[str, bool], arity: tuple[int, int | None], usage: str
    ) -> None:
        """Report attributes that are unknown, doubled or missing, and the wrong number of feature maps."""
        callee = call.callee
        written: set[str] = set()
        for attribute in call.attributes:
            name = attribute.name
            if name.text not in required:
                expected = f"one of {', '.join(required)}" if required else "no attribute"
                message = f'{callee.text} has no attribute "{name.text}"'
                self._fault("unknown-attribute", message, name, expected, self._suggest(name, required))
            elif name.text in written:
                self._fault("duplicate-attribute", f'"{name.text}" is given twice', name, "each attribute once")
            written.add(name.text)
        missing = [name for name, needed in required.items() if needed and name not in written]
        if missing and written <= required.keys():  # else it is likely the one that is misspelt
            self._fault("missing-attribute", f"{callee.text} needs {', '.join(missing)}", callee, usage)
        least, most = arity
        if len(call.operands) < least or (most is not None and len(call.operands) > most):
            wanted = f"{least}" if most == least else f"{least} or more"
            message = f"{callee.text} reads {wanted} feature map{'' if wanted == '1' else 's'}"
            found = f"{len(call.operands)} feature maps" if len(call.operands) != 1 else "1 feature map"
            self.collector.add(
                self.source.fault(
                    "wrong-arity", message, callee.span, found=found, expected=wanted, hint=f"use {usage}"
                )
            )


def _calls(roots: Iterable[syntax.Word | syntax.Call]) -> Iterator[syntax.Call]:
    """All calls, also those inside others."""
    for root in roots:
        if isinstance(root, syntax.Call):
            yield root
            yield from _calls(root.operands)


def _block_calls(block: syntax.Block) -> Iterator[syntax.Call]:
    return _calls([*(item.call for item in block.assignments), *(item.operand for item in block.returns)])


def _operands(block: syntax.Block) -> Iterator[syntax.Word]:
    """The names that the layers of a block read or that it returns."""
    for call in _block_calls(block):
        yield from (operand for operand in call.operands if isinstance(operand, syntax.Word))
    yield from (item.operand for item in block.returns if isinstance(item.operand, syntax.Word))


def _expression_words(block: syntax.Block) -> Iterator[syntax.Word]:
    """The names in attributes and defaults of a block."""
    for call in _block_calls(block):
        for attribute in call.attributes:
            yield from _words(attribute.value)
    for parameter in block.parameters:
        if parameter.default is not None:
            yield from _words(parameter.default)


def _words(expression: syntax.Expression) -> Iterator[syntax.Word]:
    match expression:
        case syntax.Word():
            yield expression
        case syntax.List(items=items):
            for item in items:
                yield from _words(item)
        case syntax.Sum(terms=terms):
            for _, term in terms:
                yield from _words(term)
        case syntax.Product(first=first, rest=rest):
            yield from _words(first)
            for _, factor in rest:
                yield from _words(factor)
