"""Which convolutions the AVX2 design takes, and that its cost model prefers what measurements prefer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpoint.backends.kernel import AveragePool, Convolution, KernelSpec, TensorSpec
from binpoint.backends.tensor_expression.convolution_tiling import RegisterTile
from binpoint.backends.tensor_expression.plan import Container, KernelPlan
from binpoint.backends.tensor_expression.tile_choice import choose_tiling, instructions_per_result


def plan(
    channels: int, outputs: int, size: int, kernel: int = 3, groups: int = 1, reduction: str = "int32"
) -> KernelPlan:
    """A square convolution that keeps the size of the map; values as wide as the sums."""
    before, after = (kernel - 1) // 2, kernel // 2
    spec = KernelSpec(
        "layer",
        Convolution((kernel, kernel), padding=(before, before, after, after), groups=groups),
        (TensorSpec(channels, size, size, 8),),
        TensorSpec(outputs, size, size, 8),
    )
    return KernelPlan(spec, Container(reduction), reduction, values=False)


@pytest.mark.parametrize(
    "refused",
    [
        plan(16, 4, 8),
        plan(16, 16, 8, groups=2),
        plan(16, 16, 8, groups=16),
        plan(131_073, 8, 1, kernel=1, reduction="int64"),
        replace(
            plan(16, 16, 8),
            spec=KernelSpec("pool", AveragePool((2, 2), (2, 2)), (TensorSpec(8, 4, 4, 8),), TensorSpec(8, 2, 2, 8)),
        ),
    ],
    ids=["four-channels", "half-blocks", "depthwise", "long-split-reduction", "pool"],
)
def test_what_does_not_fit(refused: KernelPlan) -> None:
    assert choose_tiling(refused) is None


def test_a_tile_divides_the_map_where_it_can() -> None:
    for size in (4, 7, 12, 13, 14, 28, 56):
        tiling = choose_tiling(plan(64, 64, size))
        assert tiling is not None
        assert (tiling.padded_height, tiling.padded_width) == (size, size)


def test_vectors_share_weights_between_two_images() -> None:
    tiling = choose_tiling(plan(512, 1000, 1, kernel=1))
    assert tiling is not None
    assert tiling.tile == RegisterTile(images=2, rows=1, columns=1, vectors=4)


@pytest.mark.parametrize("reduction", ["int32", "int64"])
def test_no_other_tile_is_cheaper_by_the_model(reduction: str) -> None:
    wanted = plan(64, 64, 12, reduction=reduction)
    tiling = choose_tiling(wanted)
    assert tiling is not None
    cost = instructions_per_result(tiling, wanted.container)
    for tile in (
        RegisterTile(1, 1, 1, 1),
        RegisterTile(1, 1, 2, 2),
        RegisterTile(1, 1, 6, 1),
        RegisterTile(1, 1, 5, 1),
    ):
        assert cost <= instructions_per_result(replace(tiling, tile=tile), wanted.container)


def test_wasted_results_cost() -> None:
    tiling = choose_tiling(plan(64, 64, 12))
    assert tiling is not None
    whole, wasteful = (
        instructions_per_result(replace(tiling, tile=RegisterTile(1, 1, columns, 1)), Container.INT32)
        for columns in (6, 7)
    )
    assert whole < wasteful
