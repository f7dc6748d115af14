"""Random kernels over blocks, with inputs and exponents, for comparing backends."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from binpoint.backends.blocks import BlockExponents, BlockMap, BlockResult, grid_shape
from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    Draw,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.compiler.layers import window_output
from binpoint.support.numeric import (
    BlockMethod,
    BlockPolicy,
    Granularity,
    Measure,
    Neighbour,
    Rounding,
    Selection,
    fixed_constant,
)

ACTIVATIONS = None, Relu(), Clip(fixed_constant(Fraction(6), 8)), LeakyRelu(fixed_constant(Fraction(1, 10), 8))
FILLS = ("random", "zeros", "hot", "least", "greatest")


def block_policies(measures: tuple[Measure, ...] = tuple(Measure)) -> st.SearchStrategy[BlockPolicy]:
    """Both embodiments, both selections."""
    return st.builds(
        BlockPolicy,
        method=st.sampled_from(BlockMethod),
        measure=st.sampled_from(measures),
        neighbours=st.lists(st.sampled_from(Neighbour), unique=True, min_size=1).map(tuple),
        threshold=st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(2), Fraction(10), Fraction(1000)]),
        selection=st.sampled_from(Selection),
    )


granularities = st.one_of(
    st.just(Granularity()),
    st.builds(Granularity, st.tuples(st.integers(1, 5), st.integers(1, 9)), st.booleans()),
    st.builds(Granularity, st.sampled_from([(1, 1), (2, 2), (4, 4)]), st.booleans()),
)


@st.composite
def operations(draw: st.DrawFn, tensor: TensorSpec) -> tuple[object, int, int, int]:
    """(operation, channels, height, width) of a kernel on one feature map."""
    kernel = draw(st.tuples(*(st.integers(1, min(5, size + 2)) for size in (tensor.height, tensor.width))))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, size // 2)) for size in (*kernel, *kernel))
    sizes = _sizes(tensor, kernel, stride, padding)
    kinds = ["widen", "resize", "sigmoid", "softmax", "add", "concat"]
    if min(sizes) >= 1:
        kinds += ["convolution"] * 8 + ["average", "max"]
    match draw(st.sampled_from(kinds)):
        case "convolution":
            groups = draw(st.sampled_from([g for g in (1, 2, tensor.channels) if tensor.channels % g == 0]))
            outputs = groups * draw(st.integers(1, 3))
            bias = draw(st.sampled_from([None, 16]))
            dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
            extent = tuple(step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True))
            dilated = _sizes(tensor, extent, stride, padding)
            if min(dilated) < 1:
                dilation, dilated = (1, 1), sizes
            return Convolution(kernel, stride, padding, dilation, groups, bias_bits=bias), outputs, *dilated
        case "average":
            return AveragePool(kernel, stride, padding, draw(st.booleans())), tensor.channels, *sizes
        case "max":
            return MaxPool(kernel, stride, padding), tensor.channels, *sizes
        case "resize":
            return Resize(), tensor.channels, draw(st.integers(1, 9)), draw(st.integers(1, 9))
        case kind:
            plain = {"widen": Widen, "sigmoid": Sigmoid, "softmax": Softmax, "add": Add, "concat": Concat}[kind]
            return plain(), tensor.channels, tensor.height, tensor.width


def _sizes(
    tensor: TensorSpec, extent: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int, int, int]
) -> list[int]:
    """(height, width) of what windows of some extent leave of a map; below 1 where none fits."""
    return [
        window_output(size, extent[axis], stride[axis], padding[axis], padding[axis + 2])
        for axis, size in enumerate((tensor.height, tensor.width))
    ]


@st.composite
def block_kernels(draw: st.DrawFn, policies: st.SearchStrategy[BlockPolicy] | None = None) -> KernelSpec:
    """A kernel over blocks that quantises."""
    bits = draw(st.sampled_from([2, 6, 8]))
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    first = TensorSpec(*shape, bits, draw(granularities))
    operation, channels, height, width = draw(operations(first))
    inputs = (first,)
    if isinstance(operation, Add | Concat):
        inputs = (first, replace(first, granularity=draw(granularities)))
        channels *= 2 if isinstance(operation, Concat) else 1
    return KernelSpec(
        "kernel",
        operation,
        inputs,
        TensorSpec(channels, height, width, draw(st.sampled_from([4, 8])), draw(granularities)),
        draw(st.sampled_from(ACTIVATIONS)),
        Accumulator(draw(st.sampled_from([32, 40])), draw(st.booleans())),
        draw(st.sampled_from(Rounding)),
        blocks=draw(block_policies() if policies is None else policies),
    )


def mantissas(rng: np.random.Generator, tensor: TensorSpec, images: int, fill: str) -> np.ndarray:
    """Random ones, zeros, zeros but one, or all at an end of their range."""
    least, most = -(1 << (tensor.bits - 1)), (1 << (tensor.bits - 1)) - 1
    shape = images, *tensor.shape
    if fill == "random":
        return rng.integers(least, most + 1, shape)
    result = np.full(shape, {"least": least, "greatest": most}.get(fill, 0))
    if fill == "hot":
        result[tuple(rng.integers(0, size) for size in shape)] = most
    return result


@st.composite
def calls(draw: st.DrawFn, spec: KernelSpec, spread: int = 6) -> dict[str, object]:
    """What a call takes: arrays, grids and exponents whose distances reach `spread`."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    images = draw(st.integers(1, 2))
    arrays = [mantissas(rng, tensor, images, draw(st.sampled_from(FILLS))) for tensor in spec.inputs]
    width = draw(st.integers(0, spread))
    grids = [rng.integers(-width, 1, (images, *grid_shape(tensor))).astype(np.int32) for tensor in spec.inputs]
    parameters, weight, bias = KernelParameters(), (0,), (0,)
    if isinstance(spec.operation, Convolution):
        inputs, outputs = spec.inputs[0].channels // spec.operation.groups, spec.output.channels
        filters = rng.integers(-128, 128, (outputs, inputs, *spec.operation.kernel))
        own = None if spec.operation.bias_bits is None else rng.integers(-(2**15), 2**15, outputs)
        parameters = KernelParameters(filters, own)
        channels = draw(st.sampled_from([1, outputs]))
        weight = tuple(rng.integers(-9, -4, channels).tolist())
        bias = tuple((np.array(weight) + draw(st.integers(-3, 6))).tolist())
    top = draw(st.integers(-8, 8))
    candidates = tuple(top - index for index in range(draw(st.integers(1, 5))))
    return {
        "arrays": arrays,
        "grids": grids,
        "parameters": parameters,
        "exponents": BlockExponents(weight, bias, candidates, candidates[0]),
        "draw": Draw(1, 2, 3),
    }


def run_blocks(backend: object, spec: KernelSpec, call: dict[str, object]) -> tuple[np.ndarray, BlockResult]:
    """The mantissas and the result of one call."""
    maps = [
        BlockMap(backend.upload(array, tensor), grid)
        for array, tensor, grid in zip(call["arrays"], spec.inputs, call["grids"], strict=True)
    ]
    kernel = backend.prepare_blocks(spec, call["parameters"])
    result = kernel(maps, call["exponents"], overflows=True, draw=call["draw"], first_image=call.get("first_image", 0))
    return backend.download(result.output.buffer), result


def assert_equal(left: tuple[np.ndarray, BlockResult], right: tuple[np.ndarray, BlockResult]) -> None:
    """Both say the same, bit for bit."""
    np.testing.assert_array_equal(left[1].output.exponents, right[1].output.exponents)
    np.testing.assert_array_equal(left[0], right[0])
    np.testing.assert_array_equal(left[1].overflows, right[1].overflows)
    assert left[1].events == right[1].events


def run_network(backend: object, policy: BlockPolicy, *, per_channel: bool, seed: int) -> dict[str, BlockMap]:
    """All feature maps of a network of random weights, with blocks of several sizes, as (mantissas, exponents).

    Convolutions of stride 1 and 2, pools that move blocks and pools that do not, upsampling, concat, add.
    """
    rng = np.random.default_rng(seed)
    blocks = {size: Granularity((size, size), per_channel) for size in (2, 3, 4, 8)}
    image = TensorSpec(2, 9, 10, 8)
    array = rng.integers(-128, 128, (2, *image.shape))
    maps = {"image": BlockMap(backend.upload(array, image), np.full((2, 1, 1, 1), -7, np.int32))}
    sizes = {"image": image}

    def layer(name: str, operation: object, sources: str, output: TensorSpec, *, moves: bool = False) -> None:
        inputs = tuple(sizes[each] for each in sources.split())
        weight = None
        if isinstance(operation, Convolution):
            weight = rng.integers(-99, 100, (output.channels, inputs[0].channels, *operation.kernel))
        activation = ACTIVATIONS[3] if name == "second" else None
        spec = KernelSpec(name, operation, inputs, output, activation, blocks=None if moves else policy)
        kernel = backend.prepare_blocks(spec, KernelParameters(weight))
        exponents = BlockExponents((-7,), (0,), (-3, -4, -5, -6, -7), -3)
        maps[name], sizes[name] = kernel([maps[each] for each in sources.split()], exponents).output, output

    layer("first", Convolution((3, 3), padding=(1, 1, 1, 1)), "image", TensorSpec(3, 9, 10, 8, blocks[4]))
    layer("pool", MaxPool((2, 2), (2, 2)), "first", TensorSpec(3, 4, 5, 8, blocks[2]), moves=True)
    layer("second", Convolution((3, 3), (2, 2), (1, 1, 1, 1)), "pool", TensorSpec(4, 2, 3, 8, blocks[2]))
    layer("up", Resize(), "second", TensorSpec(4, 4, 6, 8, blocks[4]), moves=True)
    layer("wide", Convolution((1, 2), padding=(0, 1, 0, 1)), "pool", TensorSpec(4, 4, 6, 8, blocks[8]))
    layer("both", Concat(), "up wide", TensorSpec(8, 4, 6, 8, blocks[3]))
    layer("smooth", MaxPool((2, 2), (1, 1), (0, 0, 1, 1)), "both", TensorSpec(8, 4, 6, 8, blocks[4]))
    layer("sum", Add(), "both smooth", TensorSpec(8, 4, 6, 8, blocks[3]))
    return {name: BlockMap(backend.download(found.buffer), found.exponents) for name, found in maps.items()}


def assert_same_maps(left: dict[str, BlockMap], right: dict[str, BlockMap]) -> None:
    """All feature maps of two runs are the same, bit for bit."""
    for name, found in left.items():
        np.testing.assert_array_equal(found.exponents, right[name].exponents, name)
        np.testing.assert_array_equal(found.buffer, right[name].buffer, name)
