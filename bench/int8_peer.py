"""Measure plain 8-bit inference beside ONNX Runtime's own: the layers of YOLOv3-tiny and the whole network.

ONNX Runtime gets the same shapes and weights as QLinearConv with unsigned activations and signed weights, its fast
form on CPUs like this one (its sums may saturate, ours are exact), with its leaky ReLU on 8 bits, its max pool, resize
and concat, and all optimisations on. A layer on its own is measured with the leaky ReLU. Both run in turn; the table
has medians over the rounds, the ratio that of what both took in the same round. `python bench/int8_peer.py [ROUNDS]`;
it also goes to bench/results/int8_peer.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime
from blocks import WARM_UP, plain_calls
from onnx import TensorProto, helper, numpy_helper
from rounds import Call, measure, one_after_the_other, ratio
from yolov3_tiny import Layer, calibrate, layers

from binpoint.backends.kernel import Concat, Convolution, MaxPool, TensorSpec
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.threads import use_threads

RESULTS = Path(__file__).resolve().parent / "results"
THREADS = (1, 2)
SCALES = {"scale": np.float32(2**-4), "weight_scale": np.float32(2**-7)}
MICROSOFT = "com.microsoft"


def model(chain: list[Layer], sources: dict[str, TensorSpec], outputs: list[str]) -> bytes:
    """A quantised ONNX model of some layers; all feature maps have one scale, which changes no speed."""
    constants = dict(SCALES) | {"zero": np.uint8(128), "weight_zero": np.int8(0)}
    nodes = []
    for layer in chain:
        name = layer.spec.name
        inputs, result = list(layer.inputs), name
        match layer.spec.operation:
            case Convolution() as operation:
                constants[f"{name}_weight"] = layer.parameters.weight.astype(np.int8)
                constants[f"{name}_bias"] = layer.parameters.bias.astype(np.int32)
                map_scale = ["scale", "zero"]
                weight = [f"{name}_weight", "weight_scale", "weight_zero"]
                result = f"{name}_sum" if layer.spec.activation else name
                nodes.append(
                    helper.make_node(
                        "QLinearConv",
                        [inputs[0], *map_scale, *weight, *map_scale, f"{name}_bias"],
                        [result],
                        pads=operation.padding,
                    )
                )
                if layer.spec.activation:
                    leaky = [result, *map_scale, *map_scale]
                    nodes.append(helper.make_node("QLinearLeakyRelu", leaky, [name], domain=MICROSOFT, alpha=0.1))
            case MaxPool() as pool:
                nodes.append(
                    helper.make_node(
                        "MaxPool", inputs, [name], kernel_shape=pool.kernel, strides=pool.stride, pads=pool.padding
                    )
                )
            case Concat():
                parts = [part for source in inputs for part in (source, "scale", "zero")]
                nodes.append(
                    helper.make_node("QLinearConcat", ["scale", "zero", *parts], [name], domain=MICROSOFT, axis=1)
                )
            case _:
                constants["sizes"] = np.array([1, 1, 2, 2], np.float32)
                nodes.append(
                    helper.make_node(
                        "Resize",
                        [inputs[0], "", "sizes"],
                        [name],
                        mode="nearest",
                        nearest_mode="floor",
                        coordinate_transformation_mode="asymmetric",
                    )
                )

    def described(name: str, tensor: TensorSpec) -> object:
        return helper.make_tensor_value_info(name, TensorProto.UINT8, (1, *tensor.shape))

    shapes = {layer.spec.name: layer.spec.output for layer in chain}
    graph = helper.make_graph(
        nodes,
        "network",
        [described(name, tensor) for name, tensor in sources.items()],
        [described(name, shapes[name]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    domains = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()


def peer_call(chain: list[Layer], sources: dict[str, TensorSpec], outputs: list[str], threads: int) -> Call:
    """A call of ONNX Runtime on random maps."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model(chain, sources, outputs), options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    maps = {name: generator.integers(128, 256, (1, *tensor.shape), dtype=np.uint8) for name, tensor in sources.items()}
    return lambda: session.run(outputs, maps)


def peer_calls(threads: int) -> dict[str, Call]:
    """Each convolution with its leaky ReLU, and the network."""
    chain = layers()
    calls = {
        layer.spec.name: peer_call([layer], {layer.inputs[0]: layer.spec.inputs[0]}, [layer.spec.name], threads)
        for layer in chain
        if isinstance(layer.spec.operation, Convolution)
    }
    return calls | {"network": peer_call(chain, {"picture": chain[0].spec.inputs[0]}, ["large", "small"], threads)}


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    backend = TensorExpressionBackend(max(THREADS))
    own = plain_calls(backend, calibrate(backend))
    own["network"] = one_after_the_other(dict(own))
    rows = []
    for threads in THREADS:
        use_threads(threads)
        print(f"{threads} thread{'s' if threads > 1 else ' '}{'binpoint ms':>14} {'ONNX Runtime':>13} {'ratio':>6}")
        for name, peer in peer_calls(threads).items():
            pair = {"binpoint": own[name], "onnxruntime": peer}
            measure(pair, WARM_UP, threads)
            seconds = measure(pair, rounds, threads)
            ours, theirs = (median(times) * 1e3 for times in seconds.values())
            beside = ratio(seconds, "binpoint", "onnxruntime")
            print(f"{name:<9} {ours:>13.3f} {theirs:>13.3f} {beside:>5.2f}x", flush=True)
            rows.append(
                {"threads": threads, "layer": name, "binpoint_ms": round(ours, 4), "onnxruntime_ms": round(theirs, 4)}
                | {"ratio": round(beside, 3)}
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "int8_peer.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
