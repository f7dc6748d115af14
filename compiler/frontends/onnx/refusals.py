"""Why operators cannot be imported, and the one error that lists all of a model's refused nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binpoint.compiler.frontends.onnx.model import OnnxModel, has_body
from binpoint.support.diagnostics import Diagnostic, UserError

QUANTISED = "it belongs to a quantised model; import the floating-point one, the compiler quantises itself"
STATE = "the language has no state from step to step"
PRODUCT = "the language has no product of two feature maps"

REASONS: Mapping[str, str] = {
    "ConvTranspose": "the language has no transposed convolution; a resize before a convolution does similar work",
    "LRN": "the language has no normalisation across channels; batch_norm is what newer networks use",
    "LogSoftmax": "the language has softmax without the logarithm; export the scores before it",
    "InstanceNormalization": "its statistics change with each image; only batch_norm's stay fixed",
    "LayerNormalization": "its statistics change with each image; only batch_norm's stay fixed",
    "GroupNormalization": "its statistics change with each image; only batch_norm's stay fixed",
    "PRelu": "the language's leaky_relu has one slope for all channels",
    "Slice": "the language cannot cut feature maps into parts",
    "Split": "the language cannot cut feature maps into parts",
    "Gather": "the language cannot pick parts of feature maps",
    "DepthToSpace": "the language cannot move channels into pixels",
    "SpaceToDepth": "the language cannot move pixels into channels",
    "Einsum": PRODUCT,
    "Attention": PRODUCT,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), QUANTISED),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"), QUANTISED),
    **dict.fromkeys(("RNN", "LSTM", "GRU"), STATE),
}
"""What the language lacks, for operators that people ask about."""


def why_not(node: Any, supported: Mapping[str, Any]) -> str | None:
    """Why no node of this operator can be imported; None where some can."""
    if node.domain not in ("", "ai.onnx"):
        if "quant" in node.op_type.lower():
            return QUANTISED
        return f'the operator belongs to the extension "{node.domain}", not to ONNX itself'
    if has_body(node):
        return "the language has no control flow"
    if node.op_type in supported:
        return None
    return REASONS.get(node.op_type, "the language has no such layer")


class RefusalTable:
    """Gathers refused nodes, so that the user sees all of them at once."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._rows: list[tuple[str, str, str]] = []

    def add(self, name: str, operator: str, reason: str) -> None:
        """One refused node."""
        self._rows.append((_printable(name), _printable(operator), _printable(reason)))

    def raise_any(self) -> None:
        """Raise one UserError with all nodes, if there is any."""
        if not self._rows:
            return
        count = "1 node" if len(self._rows) == 1 else f"{len(self._rows)} nodes"
        raise UserError(
            Diagnostic(
                "unsupported-operator",
                f"{count} of {len(self._model.nodes)} cannot be expressed in the network language",
                self._model.location,
                rows=(("node", "operator", "why"), *self._rows),
                hint="docs/import.md lists what can be imported",
            )
        )


def _printable(text: str) -> str:
    """Text from the model without characters that would break a line or drive the terminal."""
    return text if text.isprintable() else ascii(text)
