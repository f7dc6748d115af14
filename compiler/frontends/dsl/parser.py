"""Network files (.bp) -> NetworkGraph. docs/language.md is the manual, grammar.lark the grammar."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.detection_section import read_detection
from binpoint.compiler.frontends.dsl.expansion import Expansion
from binpoint.compiler.frontends.dsl.faults import in_order, suggest
from binpoint.compiler.frontends.dsl.numeric_section import read_numeric
from binpoint.compiler.frontends.dsl.reader import read
from binpoint.compiler.frontends.dsl.scopes import ScopeChecker
from binpoint.compiler.frontends.dsl.source import Source
from binpoint.compiler.frontends.dsl.values import EXPECTED, Evaluator, shape_of, text_value
from binpoint.compiler.layers import AttributeType
from binpoint.compiler.network import Input, Layer, NetworkGraph
from binpoint.support.diagnostics import Collector, Location, UserError, did_you_mean, user_error
from binpoint.support.files import read_text
from binpoint.support.numeric import NumericPolicy

LONGEST_FILE = 2**24
"""The most characters of a network file."""

_INPUT_SETTINGS = ("scale", "mean", "deviation")


def parse_network(path: Path) -> NetworkGraph:
    """The network of a .bp file; the weights file that it names lies relative to it.

    Raises:
        UserError: with every fault that could be found in one go.
    """
    models = {".onnx": "an ONNX model", ".cfg": "a Darknet network"}
    if path.suffix.lower() in models:
        hint = f"binpoint import {path} makes one from {models[path.suffix.lower()]}"
        raise user_error("wrong-file", "this is not a network file", location=Location(str(path)), hint=hint)
    return parse_network_text(read_text(path, "network file"), str(path), path.parent)


def parse_network_text(text: str, file: str, directory: Path | None) -> NetworkGraph:
    """The network of a text in the language of network files.

    Args:
        text: the text.
        file: its name as diagnostics print it.
        directory: what the weights file is relative to; None takes it as it is written.

    Raises:
        UserError: with every fault that could be found in one go.
    """
    if len(text) > LONGEST_FILE:
        found, expected = f"{len(text)} characters", f"at most {LONGEST_FILE} characters"
        place = Location(file)
        raise user_error("too-large", "the network file is too large", location=place, found=found, expected=expected)
    source = Source(file, text.removeprefix("\N{BYTE ORDER MARK}"))
    tree = read(source)
    try:
        return _build(tree, source, directory)
    except UserError as error:
        raise UserError(*in_order(error.diagnostics)) from None


def _build(file: syntax.File, source: Source, directory: Path | None) -> NetworkGraph:
    """The checked network of a syntax tree."""
    collector = Collector()
    network = _only_network(file, source, collector)
    checker = ScopeChecker(source, file.blocks, collector)
    checker.check_network(network)
    expansion = Expansion(source, checker, collector)
    inputs = _inputs(network, source, expansion, collector)
    layers: list[Layer] = []
    with collector.catch():
        expansion.add([item for item in network.statements if isinstance(item, syntax.Assignment)])
        layers = expansion.finish()
    outputs = _outputs(network, source, expansion, inputs, collector)
    weights = _weights(network, source, directory, collector)
    name = ""
    with collector.catch():
        name = network.name.text if isinstance(network.name, syntax.Word) else text_value(source, network.name)
    detector = None
    if file.detections:
        detector = read_detection(file.detections[0], source, expansion, directory, collector)
    layers_known = not collector.diagnostics
    numeric = NumericPolicy()
    if file.numerics:
        names = [layer.name for layer in layers] if layers_known else None
        numeric = read_numeric(file.numerics[0], source, names, expansion.aliases, collector)
        numeric = _resolve_exponents(numeric, expansion)
    if layers_known:
        with collector.catch():
            location = source.location(network.name.span)
            graph = NetworkGraph(name, inputs, layers, outputs, numeric, weights, location, detector)
            _check_exponents(file, source, expansion, graph, collector)
    collector.raise_any()
    return graph


def _only_network(file: syntax.File, source: Source, collector: Collector) -> syntax.Network:
    """The network of a file; there must be one, and at most one section of each kind."""
    if not file.networks:
        place = Location(source.file)
        expected = "network NAME { ... }"
        raise user_error("no-network", "the file describes no network", location=place, expected=expected)
    for what, sections in (
        ("network", file.networks),
        ("detection section", file.detections),
        ("numeric section", file.numerics),
    ):
        for section in sections[1:]:
            expected = f"one {what}"
            collector.add(source.fault("repeated-section", f"a second {what}", section.span, expected=expected))
    return file.networks[0]


def _inputs(network: syntax.Network, source: Source, expansion: Expansion, collector: Collector) -> list[Input]:
    inputs = []
    for statement in network.statements:
        if isinstance(statement, syntax.InputStatement):
            with collector.catch():
                expansion.declare(statement.name.text, source.location(statement.name.span))
                inputs.append(_input(statement, source))
    return inputs


def _input(statement: syntax.InputStatement, source: Source) -> Input:
    """A declared input: its shape, and how pixels become numbers."""
    evaluator = Evaluator(source, {})
    shape = shape_of(evaluator.value(statement.shape))
    if shape is None:
        expected = EXPECTED[AttributeType.SHAPE]
        raise evaluator.error("wrong-type", "wrong shape of an input", statement.shape, expected)
    settings: dict[str, tuple[Fraction, ...]] = {}
    for setting in statement.settings.items if statement.settings else ():
        name = setting.name.text
        if name not in _INPUT_SETTINGS:
            message, expected = f'an input has no setting "{name}"', f"one of {', '.join(_INPUT_SETTINGS)}"
            raise evaluator.error(
                "unknown-setting", message, setting.name, expected, hint=did_you_mean(name, _INPUT_SETTINGS)
            )
        if name in settings:
            raise evaluator.error("duplicate-setting", f'"{name}" is set twice', setting.name, "each name once")
        settings[name] = _pixel_numbers(setting, shape[0], evaluator)
    scale = settings.pop("scale", (Fraction(1),))[0]
    return Input(statement.name.text, shape, scale, **settings, location=source.location(statement.name.span))


def _pixel_numbers(setting: syntax.Setting, channels: int, evaluator: Evaluator) -> tuple[Fraction, ...]:
    """The scale, or the mean or deviation of each channel."""
    name = setting.name.text
    if setting.details:
        raise evaluator.error("wrong-type", f'this does not belong to "{name}"', setting.details[0], "the next setting")
    value = evaluator.value(setting.value)
    numbers = () if isinstance(value, bool) else value if isinstance(value, tuple) else (value,)
    counts = {1} if name == "scale" else {1, channels}
    if len(numbers) not in counts:
        expected = "a number" if counts == {1} else f"a number, or a list of {channels} numbers, one a channel"
        raise evaluator.error("wrong-type", f'wrong value of "{name}"', setting.value, expected, value)
    if name != "mean" and min(numbers) <= 0:
        raise evaluator.error("out-of-range", f'"{name}" is out of range', setting.value, "more than 0", value)
    return numbers


def _outputs(
    network: syntax.Network,
    source: Source,
    expansion: Expansion,
    inputs: Iterable[Input],
    collector: Collector,
) -> list[str]:
    """The layers that the output statements name."""
    outputs: list[str] = []
    declared = {item.name for item in inputs}
    for statement in network.statements:
        for word in statement.names if isinstance(statement, syntax.OutputStatement) else ():
            expansion.check_known(word)
            with collector.catch():
                name = expansion.resolve(word.text)
                if name in declared or name in outputs:
                    message = (
                        f'"{word.text}" is an input' if name in declared else f'"{word.text}" is an output already'
                    )
                    expected = "a layer, once"
                    raise UserError(
                        source.fault("wrong-output", message, word.span, found=word.text, expected=expected)
                    )
                outputs.append(name)
    return outputs


def _weights(network: syntax.Network, source: Source, directory: Path | None, collector: Collector) -> Path | None:
    statements = [item for item in network.statements if isinstance(item, syntax.WeightsStatement)]
    for statement in statements[1:]:
        message, expected = "the weights are named twice", "one weights statement"
        collector.add(source.fault("duplicate-setting", message, statement.span, expected=expected))
    for statement in statements[:1]:
        with collector.catch():
            file = text_value(source, statement.file)
            if not file or "\0" in file:
                message, expected = "this is no file name", "the path of a safetensors file"
                raise UserError(source.fault("wrong-value", message, statement.file.span, expected=expected))
            return Path(file) if directory is None else directory / file
    return None


def _resolve_exponents(numeric: NumericPolicy, expansion: Expansion) -> NumericPolicy:
    """Initial exponents under the names of layers: a block instance stands for what it returns."""
    exponents = {expansion.resolve(name): exponent for name, exponent in numeric.exponents.items()}
    overrides = {name: replace(policy, exponents=exponents) for name, policy in numeric.overrides.items()}
    return replace(numeric, exponents=exponents, overrides=overrides)


def _check_exponents(
    file: syntax.File, source: Source, expansion: Expansion, network: NetworkGraph, collector: Collector
) -> None:
    """Report initial exponents of tensors that the network does not have."""
    tensors = {*network.shapes, *network.parameter_shapes()}
    sections = (item for section in file.numerics for item in section.items)
    for section in sections:
        for setting in section.settings.items if isinstance(section, syntax.ExponentsSection) else ():
            name = setting.name.text
            if expansion.resolve(name) not in tensors:
                expected = "an input, a layer or a parameter such as conv1.weight"
                hint = suggest(name, tensors, collector)
                message = f'there is no tensor "{name}"'
                collector.add(
                    source.fault("unknown-tensor", message, setting.name.span, found=name, expected=expected, hint=hint)
                )
