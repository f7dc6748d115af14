"""Statements -> layers: blocks are expanded, nested calls get names, parameters become values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.faults import prefixes, suggest
from binpoint.compiler.frontends.dsl.formatting import Value
from binpoint.compiler.frontends.dsl.scopes import BlockDefinition, ScopeChecker
from binpoint.compiler.frontends.dsl.source import Source
from binpoint.compiler.frontends.dsl.values import Evaluator
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.compiler.network import Layer, normalize_attributes
from binpoint.support.diagnostics import Collector, Diagnostic, Location, UserError

MAXIMUM_LAYERS = 20_000
"""Blocks that use blocks can grow without end: far more layers than any network has are an error."""

MAXIMUM_DEPTH = 64
"""How deep blocks and nested calls may lie inside each other."""


@dataclass(frozen=True)
class Scope:
    """Where names lead: in the network itself, or in one instance of a block.

    A name is a parameter bound to a feature map outside, or a layer of the scope, called `prefix` + name.
    """

    prefix: str = ""
    maps: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Value] = field(default_factory=dict)
    used_at: Location | None = None

    def full_name(self, name: str) -> str:
        """The name in the whole network."""
        return self.maps.get(name, self.prefix + name)


class Expansion:
    """The layers of a network, in the order of the file, with every block expanded.

    An instance `body = residual(...)` has layers `body.conv1`, ...; reading `body` reads what the block
    returns. A call inside a call is named after the statement: `y = relu(add(a, b))` makes `y.add` and `y`.
    Faults go to the collector; a layer that could not be made still counts as known.
    """

    def __init__(self, source: Source, checker: ScopeChecker, collector: Collector) -> None:
        self.source, self.checker, self.collector = source, checker, collector
        self.layers: list[Layer] = []
        self.aliases: dict[str, str] = {}
        """What the name of a block instance stands for."""
        self.taken: dict[str, Location] = {}
        """Every name of the network and where it was given."""
        self.unusable: set[str] = set()
        """Instances that could not be expanded: nothing is known about names inside them."""
        self._reads: list[tuple[syntax.Word, Scope]] = []
        self._depth = 0

    def declare(self, name: str, location: Location) -> None:
        """Take a name for an input, a layer or an instance; it must be new."""
        if name in self.taken:
            fault = Diagnostic(
                "duplicate-name",
                f'the name "{name}" is taken',
                location,
                name,
                f"a name other than that of {self.taken[name]}",
            )
            self.collector.add(fault)
            return
        if len(self.taken) >= MAXIMUM_LAYERS:
            message, expected = "the network is too large", f"at most {MAXIMUM_LAYERS} layers"
            raise UserError(Diagnostic("too-many-layers", message, location, expected=expected))
        self.taken[name] = location

    def add(self, assignments: Sequence[syntax.Assignment], scope: Scope = Scope()) -> None:
        """Add the layers of the statements of one scope."""
        for assignment in assignments:
            place = self.source.location(assignment.target.span, scope.used_at)
            self.declare(scope.prefix + assignment.target.text, place)
        for assignment in assignments:
            self._call(assignment.call, scope.prefix + assignment.target.text, scope)

    def resolve(self, name: str) -> str:
        """The layer or input that a name stands for."""
        seen = {name}
        while name in self.aliases:
            name = self.aliases[name]
            if name in seen:
                message, expected = "block instances only return each other", "a layer in between"
                raise UserError(Diagnostic("cycle", message, self.taken[name], name, expected))
            seen.add(name)
        return name

    def finish(self) -> list[Layer]:
        """The layers with every name resolved; names that are read and not known are reported."""
        for word, scope in self._reads:
            self.check_known(word, scope)
        layers = []
        for layer in self.layers:
            with self.collector.catch():
                layers.append(replace(layer, inputs=tuple(map(self.resolve, layer.inputs))))
        return layers

    def check_known(self, word: syntax.Word, scope: Scope = Scope()) -> None:
        """Report a name that is neither an input nor a layer of its scope."""
        full = scope.full_name(word.text)
        if full in self.taken or any(parent in self.unusable for parent in prefixes(full)):
            return
        local = (name.removeprefix(scope.prefix) for name in self.taken if name.startswith(scope.prefix))
        self.collector.add(
            self.source.fault(
                "unknown-name",
                f'"{word.text}" is neither an input nor a layer',
                word.span,
                found=word.text,
                expected="an input or a layer",
                hint=suggest(word.text, chain(scope.maps, local), self.collector),
                used_at=scope.used_at,
            )
        )

    def _call(self, call: syntax.Call, name: str, scope: Scope) -> None:
        """Add what one call makes under a name that is already taken."""
        self._depth += 1
        if self._depth > MAXIMUM_DEPTH:
            message, expected = "blocks and calls lie too deep inside each other", f"at most {MAXIMUM_DEPTH} levels"
            place = self.source.location(call.callee.span, scope.used_at)
            raise UserError(Diagnostic("nested-too-deep", message, place, expected=expected))
        operands = tuple([self._operand(operand, name, scope) for operand in call.operands])
        if call.span in self.checker.faulty_calls:
            self.unusable.add(name)
        elif call.callee.text in LAYER_KINDS:
            self._layer(call, name, operands, scope)
        else:
            self._instance(call, self.checker.blocks[call.callee.text], name, operands, scope)
        self._depth -= 1

    def _operand(self, operand: syntax.Word | syntax.Call, name: str, scope: Scope) -> str:
        """The full name of what a call or a return reads; a nested call makes a layer of its own first."""
        if isinstance(operand, syntax.Word):
            self._reads.append((operand, scope))
            return scope.full_name(operand.text)
        nested = self._free_name(f"{name}.{operand.callee.text}")
        self.declare(nested, self.source.location(operand.callee.span, scope.used_at))
        self._call(operand, nested, scope)
        return nested

    def _free_name(self, name: str) -> str:
        number, free = 1, name
        while free in self.taken:
            number += 1
            free = f"{name}{number}"
        return free

    def _layer(self, call: syntax.Call, name: str, operands: tuple[str, ...], scope: Scope) -> None:
        kind = LAYER_KINDS[call.callee.text]
        evaluator = Evaluator(self.source, scope.numbers, scope.used_at)
        written = {}
        for attribute in call.attributes:
            declared = kind.attribute(attribute.name.text)
            assert declared is not None  # the checker has seen the call
            with self.collector.catch():
                written[declared.name] = evaluator.attribute(declared, attribute.value)
        if len(written) == len(call.attributes):
            location = self.source.location(call.callee.span, scope.used_at)
            attributes = normalize_attributes(kind.name, written)
            self.layers.append(Layer(name, kind.name, operands, attributes, location))

    def _instance(
        self, call: syntax.Call, block: BlockDefinition, name: str, operands: tuple[str, ...], scope: Scope
    ) -> None:
        """Add the layers of one use of a block."""
        used_at = self.source.location(call.callee.span, scope.used_at)
        numbers = self._numbers(call, block, scope, used_at)
        if numbers is None:
            self.unusable.add(name)
            return
        inner = Scope(f"{name}.", dict(zip(block.maps, operands, strict=True)), numbers, used_at)
        self.add(block.assignments, inner)
        result = block.result
        if isinstance(result, syntax.Call) and result.callee.text in LAYER_KINDS:
            self._call(result, name, inner)
        else:
            self.aliases[name] = self._operand(result, name, inner)

    def _numbers(
        self, call: syntax.Call, block: BlockDefinition, scope: Scope, used_at: Location
    ) -> dict[str, Value] | None:
        """The values of a block's parameters; None where one is faulty. A default may use earlier parameters."""
        written = {attribute.name.text: attribute.value for attribute in call.attributes}
        numbers: dict[str, Value] = {}
        for name, default in block.numbers.items():
            outside = name in written
            known, place = (scope.numbers, scope.used_at) if outside else (numbers, used_at)
            expression = written[name] if outside else default
            assert expression is not None  # the checker has seen the call
            with self.collector.catch():
                numbers[name] = Evaluator(self.source, known, place).value(expression)
        return numbers if len(numbers) == len(block.numbers) else None
