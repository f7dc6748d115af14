"""`--set key=value`: changes to the numeric policy and to the target, checked like the files that they stand in for.

numeric.activations=16        numeric.rounding=floor       numeric.exponents.conv1=-4
layer.conv1.activations=16    layer.body.*.update=msb-max    numeric.update.gradients=msb-max(window=16)
target.allocation.strategy=mechanical                      target.array.pes=256
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.numeric_section import CLASS_UPDATES, read_numeric
from binpoint.compiler.frontends.dsl.reader import read
from binpoint.compiler.frontends.dsl.source import Source
from binpoint.compiler.network import NetworkGraph
from binpoint.support.diagnostics import Collector, Diagnostic, Location, UserError, did_you_mean, user_error
from binpoint.support.numeric import NumericPolicy, TensorClass
from binpoint.support.target import Strategy, Target, unused_parameters
from binpoint.support.target_file import parse_target, target_settings
from binpoint.support.target_keys import KEYS
from binpoint.support.toml_text import TomlText

OPTION = "--set"
TARGET = "target"
SCOPES = ("numeric", "layer", TARGET)

FIELDS = {
    "blocks": "blocks",
    "constants": "constant_bits",
    "exponent": "granularity",
    "exponent_range": "exponent_range",
    "rounding": "rounding",
    "update": "update",
}
"""The field of `NumericPolicy` that each setting changes; the others are widths."""

_TARGET_KEYS = {".".join(key.path): key.path for key in KEYS}


@dataclass(frozen=True)
class Setting:
    """One `key=value`; `scope` is the first word of the key, `key` the rest."""

    text: str
    scope: str
    key: str
    value: str

    @property
    def location(self) -> Location:
        """Where it stands, for diagnostics."""
        return Location(f"{OPTION} {self.text}")


def parse_settings(texts: Sequence[str]) -> list[Setting]:
    """Split each `key=value`. Raises UserError with every one that is none."""
    collector = Collector()
    settings = []
    for text in texts:
        with collector.catch():
            settings.append(_parse(text))
    collector.raise_any()
    return settings


def apply_settings(network: NetworkGraph, target: Target, settings: Sequence[Setting]) -> tuple[NetworkGraph, Target]:
    """The network and the target with all settings, in order. Raises UserError with every faulty one."""
    collector = Collector()
    with collector.catch():
        network = apply_to_network(network, [setting for setting in settings if setting.scope != TARGET])
    with collector.catch():
        target = apply_to_target(target, [setting for setting in settings if setting.scope == TARGET])
    collector.raise_any()
    return network, target


def apply_to_network(network: NetworkGraph, settings: Sequence[Setting]) -> NetworkGraph:
    """The network with all settings, in order, where there is no target. Raises UserError with every faulty one."""
    collector = Collector()
    policy = network.numeric
    for setting in settings:
        with collector.catch():
            if setting.scope == TARGET:
                message, hint = "there is no target to change", "name one with -t TARGET"
                raise user_error("needs-target", message, location=setting.location, found=setting.text, hint=hint)
            policy = _change_policy(policy, setting, network)
    collector.raise_any()
    return network.with_numeric(policy)


def apply_to_target(target: Target, settings: Sequence[Setting]) -> Target:
    """The target with all settings, in order, where there is no network. Raises UserError with every faulty one."""
    collector = Collector()
    for setting in settings:
        if setting.scope != TARGET:
            message, hint = "there is no network to change", "settings of a target begin with target."
            collector.add(Diagnostic("needs-network", message, setting.location, setting.text, hint=hint))
    collector.raise_any()
    return _change_target(target, settings) if settings else target


def _parse(text: str) -> Setting:
    key, equals, value = (part.strip() for part in text.partition("="))
    scope, _, rest = key.partition(".")
    expected = "key=value with a key such as numeric.activations, layer.conv1.rounding or target.array.pes"
    location = Location(f"{OPTION} {text}")
    if scope not in SCOPES:
        message = f'a setting begins with {", ".join(SCOPES)}, not "{scope}"'
        hint = did_you_mean(scope, SCOPES)
        raise user_error("unknown-setting", message, location=location, found=key, expected=expected, hint=hint)
    if not equals or not rest or not value or re.search(r"[{}#\n\r]", text):
        raise user_error("bad-setting", "this is no setting", location=location, found=text, expected=expected)
    return Setting(text, scope, rest, value)


def _change_policy(policy: NumericPolicy, setting: Setting, network: NetworkGraph) -> NumericPolicy:
    """The policy with one setting of the scope numeric or layer."""
    if setting.scope == "layer":
        layer, key = _layer_and_key(setting.key, network)
        changed = _read_policy(f"layer {layer} {{ {_assignment(key, setting.value)} }}", setting, network)
        overrides, start = dict(policy.overrides), replace(policy, granularity=None, overrides={})
        for name, read_for in changed.overrides.items():
            overrides[name] = _with_setting(policy.overrides.get(name, start), key, read_for)
            if key == "update":  # as in a network file, it replaces those of single classes
                overrides[name] = replace(overrides[name], updates={})
        return replace(policy, overrides=overrides)
    section, _, tensor = setting.key.partition(".")
    if section == "exponents" and tensor:
        return _with_exponent(policy, tensor, setting, network)
    changed = _read_policy(_assignment(setting.key, setting.value), setting, network)
    return _with_setting_everywhere(policy, setting.key, changed)


def _layer_and_key(text: str, network: NetworkGraph) -> tuple[str, str]:
    """The parts of conv1.rounding or conv1.update.gradients; names of layers have dots, too."""
    layer, _, key = text.rpartition(".")
    if layer.endswith(".update") and layer not in network.layers:
        return layer.removesuffix(".update"), f"update.{key}"
    return layer, key


def _assignment(key: str, value: str) -> str:
    """A setting as a network file writes it; widths may be given without their unit."""
    width = key == "constants" or key in [str(each) for each in TensorClass]
    return f"{key} = {value}{' bits' if width and value.isdigit() else ''}"


def _read_policy(content: str, setting: Setting, network: NetworkGraph, settings: int = 1) -> NumericPolicy:
    """The policy of a numeric section with that content, so many settings, read by the language's own reader."""
    source = Source(setting.location.file, f"numeric {{ {content} }}")
    section = read(source).numerics[0]
    found = sum(1 if isinstance(item, syntax.Setting) else len(item.settings.items) for item in section.items)
    if found != settings:
        message, hint = "this is more than one setting", f"{OPTION} may be repeated"
        raise user_error("bad-setting", message, location=setting.location, found=setting.value, hint=hint)
    collector = Collector()
    policy = read_numeric(section, source, list(network.layers), (), collector)
    collector.raise_any()
    return policy


def _with_setting(policy: NumericPolicy, key: str, changed: NumericPolicy) -> NumericPolicy:
    """The policy with one setting taken over from another."""
    if key in CLASS_UPDATES:
        updated = CLASS_UPDATES[key]
        return replace(policy, updates={**policy.updates, updated: changed.updates[updated]})
    if key == "blocks" and policy.blocks is not None and changed.blocks is not None:
        return replace(policy, blocks=changed.blocks.over(policy.blocks))
    if key in FIELDS:
        return replace(policy, **{FIELDS[key]: getattr(changed, FIELDS[key])})
    tensor_class = TensorClass(key)
    if tensor_class is TensorClass.WEIGHTS:
        policy = replace(policy, weights_per_channel=changed.weights_per_channel)
    return policy.with_bits(tensor_class, changed.bits[tensor_class])


def _with_setting_everywhere(policy: NumericPolicy, key: str, changed: NumericPolicy) -> NumericPolicy:
    """The same for the network's policy and for layers that have not set it for themselves."""
    overrides = {
        # What shares an exponent is inherited, not copied: see `NumericPolicy`.
        layer: own if key == "exponent" or _value(own, key) != _value(policy, key) else _with_setting(own, key, changed)
        for layer, own in policy.overrides.items()
    }
    return replace(_with_setting(policy, key, changed), overrides=overrides)


def _value(policy: NumericPolicy, key: str) -> Any:
    if key in CLASS_UPDATES:
        return policy.update_for(CLASS_UPDATES[key])
    if key == TensorClass.WEIGHTS:
        return policy.width(TensorClass.WEIGHTS), policy.weights_per_channel
    return getattr(policy, FIELDS[key]) if key in FIELDS else policy.width(TensorClass(key))


def _with_exponent(policy: NumericPolicy, tensor: str, setting: Setting, network: NetworkGraph) -> NumericPolicy:
    """The policy with the first exponent of one tensor."""
    tensors = {*network.shapes, *network.parameter_shapes()}
    if tensor not in tensors:
        raise user_error(
            "unknown-tensor",
            f'there is no tensor "{tensor}"',
            location=setting.location,
            found=tensor,
            expected="an input, a layer or a parameter such as conv1.weight",
            hint=did_you_mean(tensor, tensors),
        )
    bounds = list(policy.exponent_range)
    content = f"exponent_range = {bounds} exponents {{ {tensor} = {setting.value} }}"
    exponents = {**policy.exponents, **_read_policy(content, setting, network, settings=2).exponents}
    overrides = {layer: replace(own, exponents=exponents) for layer, own in policy.overrides.items()}
    return replace(policy, exponents=exponents, overrides=overrides)


def _change_target(target: Target, settings: Sequence[Setting]) -> Target:
    """The target whose file has these keys changed."""
    collector = Collector()
    values = target_settings(target)
    changes: dict[str, Any] = {}
    for setting in settings:
        if setting.key in _TARGET_KEYS:
            changes[setting.key] = _toml_value(setting.value)
        else:
            hint = did_you_mean(setting.key, _TARGET_KEYS)
            message = f'a target has no key "{setting.key}"'
            collector.add(
                Diagnostic("unknown-key", message, setting.location, setting.key, ", ".join(_TARGET_KEYS), hint)
            )
    collector.raise_any()
    for key in _superseded(changes):
        values.pop(key, None)
    values |= {key: _spelt(value) for key, value in changes.items()}
    text = "".join(f"{key} = {value}\n" for key, value in values.items())
    shown = ", ".join(setting.text for setting in settings)
    try:
        return parse_target(text, f"{OPTION} {shown}")
    except UserError as error:
        # The text is made here, so its lines would mislead: the settings are the place.
        place = Location(f"{OPTION} {shown}")
        raise UserError(*(replace(diagnostic, location=place) for diagnostic in error.diagnostics)) from None


def _superseded(changes: dict[str, Any]) -> list[str]:
    """The keys of the target as it was that no longer hold after the changes."""
    dropped = []
    if "statistics.every" in changes or "statistics.pes" in changes:
        dropped += ["statistics.every", "statistics.pes"]
    if "array.pes" in changes:
        dropped.append("array.grid")
    strategy = changes.get("allocation.strategy")
    if strategy in list(Strategy):
        dropped += [f"allocation.{name}" for name in unused_parameters(Strategy(strategy))]
    return dropped


def _toml_value(text: str) -> Any:
    """A value in TOML's spelling; anything else is text, so that quotes may be left out."""
    try:
        return TomlText(f"value = {text}", OPTION, "value").data["value"]
    except UserError:
        return text


def _spelt(value: Any) -> str:
    """A value as TOML spells it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_spelt, value))}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan, which JSON does not have
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")
