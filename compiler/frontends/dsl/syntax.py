"""The syntax tree of a network file. Every node knows its span in the source."""

from __future__ import annotations

from dataclasses import dataclass

from binpoint.compiler.frontends.dsl.source import Span


@dataclass(frozen=True)
class Word:
    """A name as it is written; inside an expression, a parameter of the block, or true or false."""

    text: str
    span: Span


@dataclass(frozen=True)
class Text:
    """A text in quotes, still with its quotes and escapes."""

    quoted: str
    span: Span


@dataclass(frozen=True)
class Number:
    """8, 0.1 or 2e-5."""

    text: str
    span: Span


@dataclass(frozen=True)
class Size:
    """3x5, one number an axis."""

    numbers: tuple[Number, ...]
    span: Span


@dataclass(frozen=True)
class List:
    """[1, 0, 1, 2]."""

    items: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True)
class Product:
    """The first factor, then (operator, factor) with "*" or "/", from left to right."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]
    span: Span


@dataclass(frozen=True)
class Sum:
    """(sign, term) with "+" or "-", from left to right; -1 is a sum of one term."""

    terms: tuple[tuple[str, Expression], ...]
    span: Span


Expression = Word | Number | Size | List | Product | Sum


@dataclass(frozen=True)
class Attribute:
    """kernel=3."""

    name: Word
    value: Expression
    span: Span


@dataclass(frozen=True)
class Call:
    """conv2d(x, channels=16): a layer kind or a block; operands are names or calls."""

    callee: Word
    operands: tuple[Word | Call, ...]
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class Assignment:
    """y = relu(x)."""

    target: Word
    call: Call
    span: Span


@dataclass(frozen=True)
class Return:
    """return y, or return relu(y)."""

    operand: Word | Call
    span: Span


@dataclass(frozen=True)
class Parameter:
    """A parameter of a block: a feature map, or a number with or without a default."""

    name: Word
    default: Expression | None
    span: Span


@dataclass(frozen=True)
class Block:
    """block residual(x, channels, stride = 1) { ... return y }."""

    name: Word
    parameters: tuple[Parameter, ...]
    assignments: tuple[Assignment, ...]
    returns: tuple[Return, ...]
    span: Span


@dataclass(frozen=True)
class Granule:
    """The <4x4> of block<4x4>."""

    size: Size
    span: Span


@dataclass(frozen=True)
class Options:
    """The (r_max = 2e-5) of an update rule."""

    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class Period:
    """every 4."""

    number: Number
    span: Span


@dataclass(frozen=True)
class Bits:
    """The unit of a width."""

    span: Span


@dataclass(frozen=True)
class Per:
    """per channel: what has an exponent of its own."""

    what: Word
    span: Span


Detail = Granule | Options | Period | Bits | Per


@dataclass(frozen=True)
class Setting:
    """rounding = half-even: a name, a value and what follows it."""

    name: Word
    value: Expression
    details: tuple[Detail, ...]
    span: Span


@dataclass(frozen=True)
class Settings:
    """{ scale = 1/255  mean = 0.5 }."""

    items: tuple[Setting, ...]
    span: Span


@dataclass(frozen=True)
class InputStatement:
    """input image: 3x224x224 { scale = 1/255 }."""

    name: Word
    shape: Size | Number
    settings: Settings | None
    span: Span


@dataclass(frozen=True)
class WeightsStatement:
    """weights "lenet.safetensors"."""

    file: Text
    span: Span


@dataclass(frozen=True)
class OutputStatement:
    """output head1, head2."""

    names: tuple[Word, ...]
    span: Span


Statement = InputStatement | WeightsStatement | OutputStatement | Assignment


@dataclass(frozen=True)
class Network:
    """network lenet { ... }."""

    name: Word | Text
    statements: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class ClassNames:
    """classes "person", "car"."""

    names: tuple[Text, ...]
    span: Span


@dataclass(frozen=True)
class ClassFile:
    """classes from "coco.names"."""

    file: Text
    span: Span


@dataclass(frozen=True)
class HeadSection:
    """head large { anchors = [81, 82] } of a detection section."""

    name: Word
    settings: Settings
    span: Span


@dataclass(frozen=True)
class DetectionSection:
    """detection { ... }."""

    items: tuple[Setting | ClassNames | ClassFile | HeadSection, ...]
    span: Span


@dataclass(frozen=True)
class LayerSection:
    """layer conv1 { ... } of a numeric section; layer body.* { ... } is about all layers inside."""

    name: Word
    all_inside: bool
    settings: Settings
    span: Span


@dataclass(frozen=True)
class ExponentsSection:
    """exponents { ... } of a numeric section."""

    settings: Settings
    span: Span


@dataclass(frozen=True)
class NumericSection:
    """numeric { ... }."""

    items: tuple[Setting | LayerSection | ExponentsSection, ...]
    span: Span


@dataclass(frozen=True)
class File:
    """A whole network file."""

    networks: tuple[Network, ...]
    blocks: tuple[Block, ...]
    numerics: tuple[NumericSection, ...]
    detections: tuple[DetectionSection, ...]
