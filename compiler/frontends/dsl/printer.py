"""NetworkGraph -> the text of a network file, one layer a line. Reading it back gives an equal network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from binpoint.compiler.frontends.dsl.detection_section import THRESHOLDS
from binpoint.compiler.frontends.dsl.formatting import format_attribute
from binpoint.compiler.layers import LAYER_KINDS, AttributeType, format_shape
from binpoint.compiler.network import Input, Layer, NetworkGraph
from binpoint.support.detector import Detector
from binpoint.support.number_text import format_number
from binpoint.support.numeric import NumericPolicy, TensorClass

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
"""What a name of an input or a layer looks like."""


CLASS_COLUMNS = 100
"""Class names go on in the next line after so many columns."""


def print_network(network: NetworkGraph) -> str:
    """The text of a network file for a network, blocks expanded.

    Locations are not printed, and a policy of one layer is printed by what differs from that of the network.

    Raises:
        ValueError: a name that the language cannot write (see `NAME`).
    """
    lines = [f"network {_network_name(network.name)} {{"]
    lines += [f"  {_input(declared)}" for declared in network.inputs.values()]
    if network.weights is not None:
        lines.append(f"  weights {json.dumps(str(network.weights))}")
    lines.append("")
    lines += [f"  {_layer(layer)}" for layer in network.layers.values()]
    lines += ["", f"  output {', '.join(map(_name, network.outputs))}", "}"]
    if network.detector is not None:
        lines += ["", "detection {", *(f"  {line}" for line in _detection(network.detector)), "}"]
    numeric = list(_numeric(network.numeric))
    if numeric:
        lines += ["", "numeric {", *(f"  {line}" for line in numeric), "}"]
    return "\n".join(lines) + "\n"


def network_settings(network: NetworkGraph) -> dict[str, str]:
    """What the text of a network says about its arithmetic, by name; numeric settings by those that `--set` takes.

    {"network": "net", "input image": "1x28x28", "layer conv1": "conv2d(image, channels=6, kernel=5)", "output":
    "conv1", "numeric.rounding": "floor", "numeric.exponents.conv1": "-4", "layer.conv1.weights": "4 bits"}
    """
    policy = network.numeric
    said = {"network": network.name}
    said |= dict(_input(declared).split(": ", 1) for declared in network.inputs.values())
    said |= {f"layer {name}": call for name, call in (_layer(each).split(" = ", 1) for each in network.layers.values())}
    said["output"] = ", ".join(network.outputs)
    said |= _named("numeric", _settings(policy, NumericPolicy()))
    said |= {f"numeric.exponents.{tensor}": str(exponent) for tensor, exponent in policy.exponents.items()}
    for layer, override in policy.overrides.items():
        said |= _named(f"layer.{layer}", _settings(override, policy))
    return said


def _named(scope: str, settings: Iterator[str]) -> dict[str, str]:
    return {f"{scope}.{key}": value for key, value in (setting.split(" = ", 1) for setting in settings)}


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of the language")
    return name


def _network_name(name: str) -> str:
    return name if NAME.fullmatch(name) else json.dumps(name)


def _input(declared: Input) -> str:
    default = Input(declared.name, declared.shape)
    settings = []
    if declared.scale != default.scale:
        settings.append(f"scale = {format_number(declared.scale)}")
    for name in ("mean", "deviation"):
        numbers = getattr(declared, name)
        if numbers != getattr(default, name):
            texts = [format_number(number) for number in numbers]
            settings.append(f"{name} = {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")
    section = f" {{ {'  '.join(settings)} }}" if settings else ""
    return f"input {_name(declared.name)}: {format_shape(declared.shape)}{section}"


def _layer(layer: Layer) -> str:
    arguments = [*map(_name, layer.inputs), *_attributes(layer.kind, layer.attributes)]
    return f"{_name(layer.name)} = {layer.kind}({', '.join(arguments)})"


def _attributes(kind: str, attributes: Mapping[str, Any]) -> Iterator[str]:
    """The attributes that differ from their defaults. A pool's stride is its kernel by default."""
    for attribute in LAYER_KINDS[kind].attributes:
        value = attributes[attribute.name]
        from_kernel = attribute.type is AttributeType.PAIR and attribute.default is None and not attribute.required
        default = attributes["kernel"] if from_kernel else attribute.default
        if attribute.required or value != default:
            yield f"{attribute.name}={format_attribute(attribute, value)}"


def _detection(detector: Detector) -> Iterator[str]:
    """The lines of the detection section."""
    default = Detector(detector.heads)
    for name in THRESHOLDS:
        if getattr(detector, name) != getattr(default, name):
            yield f"{name} = {format_number(getattr(detector, name))}"
    if detector.classes:
        yield from _classes(detector.classes)
    for head in detector.heads:
        numbers = ",  ".join(f"{format_number(width)}, {format_number(height)}" for width, height in head.anchors)
        softmax = "  softmax = true" if head.softmax else ""
        yield f"head {_name(head.output)} {{ anchors = [{numbers}]{softmax} }}"


def _classes(names: tuple[str, ...]) -> Iterator[str]:
    """The classes statement, on as many lines as it needs."""
    line = "classes"
    for index, name in enumerate(names):
        word = json.dumps(name, ensure_ascii=False) + ("," if index < len(names) - 1 else "")
        if len(line) + len(word) >= CLASS_COLUMNS:
            yield line
            line = " "
        line += f" {word}"
    yield line


def _numeric(policy: NumericPolicy) -> Iterator[str]:
    """The lines of the numeric section; none where everything is as by default."""
    yield from _settings(policy, NumericPolicy())
    if policy.exponents:
        yield "exponents {"
        yield from (f"  {_name(tensor)} = {exponent}" for tensor, exponent in policy.exponents.items())
        yield "}"
    for layer, override in policy.overrides.items():
        yield f"layer {_name(layer)} {{ {'  '.join(_settings(override, policy))} }}"


def _settings(policy: NumericPolicy, base: NumericPolicy) -> Iterator[str]:
    """What differs from a base policy, as settings."""
    for tensor_class, bits in policy.bits.items():
        if base.bits.get(tensor_class) != bits and tensor_class is not TensorClass.WEIGHTS:
            yield f"{tensor_class} = {bits} bits"
    yield from _weights(policy, base)
    # A layer may say what the network says, which is more than to say nothing.
    if policy.granularity is not None:
        yield f"exponent = {policy.granularity}"
    if policy.blocks is not None and policy.blocks != base.blocks:
        yield f"blocks = {policy.blocks}"
    if policy.rounding != base.rounding:
        yield f"rounding = {policy.rounding}"
    yield from _updates(policy, base)
    if policy.constant_bits != base.constant_bits:
        yield f"constants = {policy.constant_bits} bits"
    if policy.exponent_range != base.exponent_range:
        yield f"exponent_range = [{policy.exponent_range[0]}, {policy.exponent_range[1]}]"


def _weights(policy: NumericPolicy, base: NumericPolicy) -> Iterator[str]:
    """The width of weights and whether each channel has its exponent; the one is not written without the other."""
    bits, per_channel = policy.width(TensorClass.WEIGHTS), policy.weights_per_channel
    if (bits, per_channel) != (base.width(TensorClass.WEIGHTS), base.weights_per_channel) or (
        TensorClass.WEIGHTS in policy.bits and TensorClass.WEIGHTS not in base.bits
    ):
        yield f"weights = {bits} bits{' per channel' if per_channel else ''}"


def _updates(policy: NumericPolicy, base: NumericPolicy) -> Iterator[str]:
    """How exponents are updated. A setting for all classes replaces those of single classes in the base."""
    all_alike = policy.update != base.update or base.updates.keys() - policy.updates.keys()
    if all_alike:
        yield f"update = {policy.update}"
    for tensor_class, update in policy.updates.items():
        if all_alike or base.updates.get(tensor_class) != update:
            yield f"update.{tensor_class} = {update}"
