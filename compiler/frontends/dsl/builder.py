"""lark's parse tree -> the syntax tree: one method a rule of the grammar."""

from __future__ import annotations

from typing import Any, TypeVar

from lark import Token, Transformer, Tree, v_args
from lark.tree import Meta

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.source import Span

T = TypeVar("T")


def build_tree(tree: Tree[Token]) -> syntax.File:
    """The syntax tree of a parsed file."""
    file: syntax.File = _Builder().transform(tree)
    return file


@v_args(meta=True)
class _Builder(Transformer[Token, Any]):
    """Builds the nodes of `syntax` from the bottom up."""

    def file(self, meta: Meta, children: list[Any]) -> syntax.File:
        return syntax.File(
            _all(children, syntax.Network),
            _all(children, syntax.Block),
            _all(children, syntax.NumericSection),
            _all(children, syntax.DetectionSection),
        )

    def network(self, meta: Meta, children: list[Any]) -> syntax.Network:
        return syntax.Network(children[0], tuple(children[1:]), _span(meta))

    def input(self, meta: Meta, children: list[Any]) -> syntax.InputStatement:
        name, shape, *settings = children
        return syntax.InputStatement(name, shape, settings[0] if settings else None, _span(meta))

    def weights(self, meta: Meta, children: list[Any]) -> syntax.WeightsStatement:
        return syntax.WeightsStatement(children[0], _span(meta))

    def output(self, meta: Meta, children: list[Any]) -> syntax.OutputStatement:
        return syntax.OutputStatement(tuple(children), _span(meta))

    def assignment(self, meta: Meta, children: list[Any]) -> syntax.Assignment:
        return syntax.Assignment(children[0], children[1], _span(meta))

    def call(self, meta: Meta, children: list[Any]) -> syntax.Call:
        callee, *arguments = children
        operands = tuple(argument for argument in arguments if not isinstance(argument, syntax.Attribute))
        return syntax.Call(callee, operands, _all(arguments, syntax.Attribute), _span(meta))

    def attribute(self, meta: Meta, children: list[Any]) -> syntax.Attribute:
        return syntax.Attribute(children[0], children[1], _span(meta))

    def block(self, meta: Meta, children: list[Any]) -> syntax.Block:
        return syntax.Block(
            children[0],
            _all(children, syntax.Parameter),
            _all(children, syntax.Assignment),
            _all(children, syntax.Return),
            _span(meta),
        )

    def parameter(self, meta: Meta, children: list[Any]) -> syntax.Parameter:
        name, *default = children
        return syntax.Parameter(name, default[0] if default else None, _span(meta))

    def result(self, meta: Meta, children: list[Any]) -> syntax.Return:
        return syntax.Return(children[0], _span(meta))

    def sum(self, meta: Meta, children: list[Any]) -> syntax.Sum:
        signed = children if isinstance(children[0], Token) else ["+", *children]
        return syntax.Sum(_pairs(signed), _span(meta))

    def product(self, meta: Meta, children: list[Any]) -> syntax.Product:
        return syntax.Product(children[0], _pairs(children[1:]), _span(meta))

    def listing(self, meta: Meta, children: list[Any]) -> syntax.List:
        return syntax.List(tuple(children), _span(meta))

    def detection(self, meta: Meta, children: list[Any]) -> syntax.DetectionSection:
        return syntax.DetectionSection(tuple(children), _span(meta))

    def class_names(self, meta: Meta, children: list[Any]) -> syntax.ClassNames:
        return syntax.ClassNames(tuple(children), _span(meta))

    def class_file(self, meta: Meta, children: list[Any]) -> syntax.ClassFile:
        return syntax.ClassFile(children[0], _span(meta))

    def head(self, meta: Meta, children: list[Any]) -> syntax.HeadSection:
        return syntax.HeadSection(children[0], children[1], _span(meta))

    def numeric(self, meta: Meta, children: list[Any]) -> syntax.NumericSection:
        return syntax.NumericSection(tuple(children), _span(meta))

    def layer(self, meta: Meta, children: list[Any]) -> syntax.LayerSection:
        return syntax.LayerSection(children[0], len(children) == 3, children[-1], _span(meta))

    def exponents(self, meta: Meta, children: list[Any]) -> syntax.ExponentsSection:
        return syntax.ExponentsSection(children[0], _span(meta))

    def settings(self, meta: Meta, children: list[Any]) -> syntax.Settings:
        return syntax.Settings(tuple(children), _span(meta))

    def setting(self, meta: Meta, children: list[Any]) -> syntax.Setting:
        name, value, *details = children
        return syntax.Setting(name, value, tuple(details), _span(meta))

    def bits(self, meta: Meta, children: list[Any]) -> syntax.Bits:
        return syntax.Bits(_span(meta))

    def per(self, meta: Meta, children: list[Any]) -> syntax.Per:
        return syntax.Per(children[0], _span(meta))

    def granule(self, meta: Meta, children: list[Any]) -> syntax.Granule:
        return syntax.Granule(children[0], _span(meta))

    def options(self, meta: Meta, children: list[Any]) -> syntax.Options:
        return syntax.Options(tuple(children), _span(meta))

    def period(self, meta: Meta, children: list[Any]) -> syntax.Period:
        return syntax.Period(children[0], _span(meta))

    def NAME(self, token: Token) -> syntax.Word:  # noqa: N802 (lark calls it by the terminal's name)
        return syntax.Word(str(token), _token_span(token))

    def STRING(self, token: Token) -> syntax.Text:  # noqa: N802
        return syntax.Text(str(token), _token_span(token))

    def NUMBER(self, token: Token) -> syntax.Number:  # noqa: N802
        return syntax.Number(str(token), _token_span(token))

    def SIZE(self, token: Token) -> syntax.Size:  # noqa: N802
        start, numbers = token.start_pos or 0, []
        for text in token.split("x"):
            numbers.append(syntax.Number(text, Span(start, start + len(text))))
            start += len(text) + 1
        return syntax.Size(tuple(numbers), _token_span(token))


def _all(children: list[Any], kind: type[T]) -> tuple[T, ...]:
    return tuple(child for child in children if isinstance(child, kind))


def _pairs(children: list[Any]) -> tuple[tuple[str, syntax.Expression], ...]:
    """[sign, term, sign, term] as pairs."""
    return tuple((str(sign), term) for sign, term in zip(children[::2], children[1::2], strict=True))


def _span(meta: Meta) -> Span:
    return Span(meta.start_pos, meta.end_pos)


def _token_span(token: Token) -> Span:
    return Span(token.start_pos or 0, token.end_pos or 0)
