"""A Darknet network in floating point, beside ONNX Runtime: python bench/darknet.py NET.cfg NET.weights PICTURE...

The ONNX model is built here from the .cfg and the .weights file, by a reader of its own that shares nothing with the
importer, with Darknet's batch norm written out: (x - mean) / (sqrt(variance) + 1e-6) * scale + bias. The largest
difference of an output is printed relative to the largest number of that output.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from binpoint.backends.float_reference import run_float
from binpoint.compiler.frontends.darknet.importer import DarknetOptions
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.importing import import_model
from binpoint.compiler.parameters import load_parameters
from binpoint.compiler.pipeline import compile_network
from binpoint.runtime.detection.letterbox import PictureFiles
from binpoint.support.target_file import load_target

HEADER_BYTES = 20


class OnnxBuilder:
    """Builds an ONNX model from the sections of a .cfg file and the numbers of a .weights file."""

    def __init__(self, cfg: str, numbers: np.ndarray, size: tuple[int, int] | None = None) -> None:
        first, *self.sections = _sections(cfg)
        height, width = size or (int(first["height"]), int(first["width"]))
        self.shape = (int(first["channels"]), height, width)
        self.numbers, self.used = numbers, 0
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.maps: list[tuple[str, int]] = []
        self.heads: list[str] = []

    def model(self) -> onnx.ModelProto:
        """The model: input `image`, outputs the maps before detection heads, else the last map."""
        current = ("image", self.shape[0])
        for section in self.sections:
            current = getattr(self, section["type"])(section, current)
            self.maps.append(current)
        if self.used != len(self.numbers):
            raise ValueError(f"{len(self.numbers)} numbers, of which {self.used} are used")
        outputs = self.heads or [current[0]]
        graph = helper.make_graph(
            self.nodes,
            "darknet",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", *self.shape])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    def convolutional(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """A convolution, its batch norm or bias, its activation."""
        filters, size = int(section.get("filters", 1)), int(section.get("size", 1))
        groups, stride = int(section.get("groups", 1)), int(section.get("stride", 1))
        padding = size // 2 if int(section.get("pad", 0)) else int(section.get("padding", 0))
        normed = int(section.get("batch_normalize", 0))
        bias = self._take(filters)
        norm = [self._take(filters) for _ in range(3 * normed)]
        weight = self._take(filters, before[1] // groups, size, size)
        inputs = [before[0], self._constant(weight)] + ([] if normed else [self._constant(bias)])
        window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4, "group": groups}
        result = self._node("Conv", inputs, **window)
        if normed:
            result = self._norm(result, bias, *norm, shape=(1, -1, 1, 1))
        return self._activate(section.get("activation", "logistic"), result), filters

    def connected(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """A fully connected layer on a vector."""
        outputs = int(section.get("output", 1))
        bias = self._take(outputs)
        flat = self._node("Flatten", [before[0]])
        inputs = before[1]  # one pixel a channel: the networks that this is for have [connected] behind [avgpool]
        weight = self._take(outputs, inputs)
        normed = int(section.get("batch_normalize", 0))
        norm = [self._take(outputs) for _ in range(3 * normed)]
        result = self._node(
            "Gemm", [flat, self._constant(weight)] + ([] if normed else [self._constant(bias)]), transB=1
        )
        if normed:
            result = self._norm(result, bias, *norm, shape=(1, -1))
        result = self._node("Reshape", [result, self._constant(np.array([0, outputs, 1, 1], np.int64))])
        return self._activate(section.get("activation", "logistic"), result), outputs

    def maxpool(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """A max pool with padding after and, from two cells on, before."""
        stride = int(section.get("stride", 1))
        size = int(section.get("size", stride))
        padding = int(section.get("padding", size - 1))
        pads = [padding // 2] * 2 + [padding - padding // 2] * 2
        return self._node("MaxPool", [before[0]], kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads), before[1]

    def avgpool(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """The mean of each channel."""
        return self._node("GlobalAveragePool", [before[0]]), before[1]

    def upsample(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """Nearest neighbour."""
        scale = float(section.get("stride", 2))
        scales = self._constant(np.array([1, 1, scale, scale], np.float32))
        modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self._node("Resize", [before[0], "", scales], **modes), before[1]

    def route(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """Earlier maps, joined by channel."""
        sources = [self.maps[int(number)] for number in section["layers"].split(",")]
        groups, group = int(section.get("groups", 1)), int(section.get("group_id", 0))
        if groups > 1:
            sources = [
                (self._slice(name, group * count // groups, count // groups), count // groups)
                for name, count in sources
            ]
        channels = sum(count for _, count in sources)
        return self._node("Concat", [name for name, _ in sources], axis=1), channels

    def shortcut(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """The sum with an earlier map."""
        result = self._node("Add", [before[0], self.maps[int(section["from"])][0]])
        return self._activate(section.get("activation", "linear"), result), before[1]

    def dropout(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """Nothing, as for [cost]."""
        return before

    cost = dropout

    def softmax(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """Softmax over the channels."""
        return self._node("Softmax", [before[0]], axis=1), before[1]

    def yolo(self, section: dict[str, str], before: tuple[str, int]) -> tuple[str, int]:
        """The map before is an output."""
        self.heads.append(before[0])
        return before

    region = yolo

    def _norm(
        self,
        name: str,
        bias: np.ndarray,
        scale: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        *,
        shape: tuple[int, ...],
    ) -> str:
        deviation = np.sqrt(variance) + np.float32(1e-6)
        for operator, values in (("Sub", mean), ("Div", deviation), ("Mul", scale), ("Add", bias)):
            name = self._node(operator, [name, self._constant(values.reshape(shape))])
        return name

    def _activate(self, activation: str, name: str) -> str:
        if activation == "linear":
            return name
        operator = {"leaky": "LeakyRelu", "relu": "Relu", "logistic": "Sigmoid"}[activation]
        return self._node(operator, [name], **({"alpha": 0.1} if activation == "leaky" else {}))

    def _slice(self, name: str, first: int, count: int) -> str:
        ends = [np.array([number], np.int64) for number in (first, first + count, 1)]
        return self._node("Slice", [name, *map(self._constant, ends)])

    def _take(self, *shape: int) -> np.ndarray:
        start, self.used = self.used, self.used + int(np.prod(shape))
        return self.numbers[start : self.used].reshape(shape)

    def _constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _node(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name


def _sections(cfg: str) -> list[dict[str, str]]:
    sections: list[dict[str, str]] = []
    for line in cfg.splitlines():
        text = "".join(line.split())
        if text.startswith("["):
            sections.append({"type": text.strip("[]")})
        elif text and text[0] not in "#;":
            key, _, value = text.partition("=")
            sections[-1][key] = value
    return sections


def run_onnx(cfg: Path, weights: Path, images: np.ndarray) -> list[np.ndarray]:
    """The outputs of ONNX Runtime for images (N, C, H, W)."""
    numbers = np.frombuffer(weights.read_bytes()[HEADER_BYTES:], "<f4")
    model = OnnxBuilder(cfg.read_text(), numbers, images.shape[2:]).model()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(None, {"image": images})
    return outputs


def relative_difference(values: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference, relative to the largest number of the reference."""
    return float(np.abs(values - reference.reshape(values.shape)).max() / np.abs(reference).max())


def main() -> None:
    """Import, run both, print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cfg", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("pictures", type=Path, nargs="+")
    parser.add_argument("--size", type=int, default=448)
    arguments = parser.parse_args()
    size = (arguments.size, arguments.size)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "net.bp"
        options = DarknetOptions(arguments.weights, size)
        import_model(arguments.cfg, output, output.with_suffix(".safetensors"), darknet=options)
        network = parse_network(output)
        parameters = load_parameters(network, None, 0)
    compilation = compile_network(network, parameters, load_target("dlu2048"))
    program, declared = compilation.program, compilation.program.inputs[0]
    images = PictureFiles(declared, tuple(arguments.pictures)).read(0, len(arguments.pictures))
    found = run_float(program, compilation.floats, {declared.name: images}, keep=program.outputs)
    for name, reference in zip(program.outputs, run_onnx(arguments.cfg, arguments.weights, images), strict=True):
        print(f"output {name} differs by {relative_difference(found[name], reference):.2e} of its largest number")


if __name__ == "__main__":
    main()
