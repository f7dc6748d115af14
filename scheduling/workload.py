"""What the scheduler knows of a layer: how many results there are, and what one result costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from binpoint.support.diagnostics import did_you_mean, user_error


@dataclass(frozen=True)
class Workload:
    """One layer that PEs compute, per image: C channels of H x W results.

    `operations_per_result` counts multiply-accumulates, or comparisons, additions and look-ups where a layer does
    not multiply. Bytes are those of the mantissas in DRAM: `input_bytes` and `output_bytes` per image,
    `parameter_bytes` for all. `statistics` says whether the layer's results pass a statistics circuit: not where it
    only moves mantissas (`exact`), and not where the exponents of its blocks follow what each block loses.
    `fused` are the layers of the network file that this one computes, itself among them.

    The gradient of a parameter and its update have `rows`, the output channels, in the place of images, and the input
    channels as channels; the feature maps that such a gradient reads count as `parameter_bytes`.
    """

    layer: str
    channels: int
    height: int
    width: int
    operations_per_result: int
    input_bytes: int
    parameter_bytes: int
    output_bytes: int
    statistics: bool = True
    exact: bool = False
    fused: tuple[str, ...] = ()
    rows: int | None = None
    """None for the images of a mini-batch."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that means this layer."""
        return tuple(dict.fromkeys((self.layer, *self.fused)))

    @property
    def operations_per_channel(self) -> int:
        """Operations of one (image, channel) pair."""
        return self.height * self.width * self.operations_per_result


def select_workloads(workloads: Sequence[Workload], names: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads that compute the named layers, in data-flow order; without names all of them.

    Raises:
        UserError: for names that no workload computes, and where there is no workload at all.
    """
    if not workloads:
        message, hint = "the network has no layer that PEs compute", "flatten and reshape move nothing"
        raise user_error("nothing-to-schedule", message, hint=hint)
    known = {name for workload in workloads for name in workload.names}
    for name in names:
        if name not in known:
            raise user_error(
                "unknown-layer",
                f'no scheduled layer is called "{name}"',
                found=name,
                expected=", ".join(workload.layer for workload in workloads),
                hint=did_you_mean(name, known),
            )
    # Of one layer, training computes several things: its result, and the gradients that follow from it.
    return tuple(workload for workload in workloads if not names or set(names) & set(workload.names))
