"""What `binpoint compile` says of a compilation: facts for JSON, a summary, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binpoint.support.diagnostics import printable

if TYPE_CHECKING:
    from binpoint.backends.kernel import KernelSpec
    from binpoint.compiler.pass_runner import Timing
    from binpoint.compiler.pipeline import Compilation
    from binpoint.compiler.position_report import MapPositions, PositionReport
    from binpoint.compiler.proofs import AccumulatorProof
    from binpoint.dialect.block_attributes import Positions


NOT_PROVED = "not proved"
"""Neither possible nor impossible from widths alone."""


def facts(
    compilation: Compilation,
    timings: Sequence[Timing],
    output: Path | None,
    drawn_with: int | None,
    batch_norm_folded: bool,
) -> dict[str, Any]:
    """The result as one JSON document.

    Args:
        compilation: what was compiled.
        timings: every step, reading and writing included.
        output: the artifact that was written, if any.
        drawn_with: the seed, where the weights were drawn.
        batch_norm_folded: whether the network had batch normalisations, which are now in other layers' parameters.
    """
    mantissas = compilation.parameters.mantissas.values()
    return {
        "network": compilation.program.name,
        "target": compilation.target.name,
        "batch": compilation.schedule.images,
        "kernels": _kernels(compilation),
        "positions": positions_facts(compilation.positions),
        "parameters": sum(array.size for array in mantissas),
        "parameter_bytes": sum(array.nbytes for array in mantissas),
        "batch_norm_folded": batch_norm_folded,
        "drawn_with_seed": drawn_with,
        "warnings": list(_warnings(compilation)),
        "seconds": stage_seconds(timings),
        "artifact": None if output is None else str(output),
        "artifact_bytes": None if output is None else output.stat().st_size,
    }


def print_report(report: dict[str, Any]) -> None:
    """The summary on standard output."""
    kernels = report["kernels"]
    name = printable(report["network"])
    scheduled = sum(kernel["scheduled"] for kernel in kernels)
    reshapes = len(kernels) - scheduled
    contents = _count(scheduled, "kernel") + " on PEs" + (f" and {_count(reshapes, 'reshape')}" if reshapes else "")
    print(f"{name} for {report['target']}: {contents}, {_count(report['batch'], 'image')} a mini-batch")
    origin = "" if report["drawn_with_seed"] is None else f", drawn with seed {report['drawn_with_seed']}"
    folded = " after folding batch norm" if report["batch_norm_folded"] else ""
    print(f"{report['parameters']:,} parameters{folded} in {report['parameter_bytes']:,} bytes of mantissas{origin}")
    print(overflow_sentence([kernel for kernel in kernels if "needed_bits" in kernel]))
    unproved = [kernel["name"] for kernel in kernels if kernel.get("overflow") == NOT_PROVED]
    if unproved:
        print(f"not proved where positions of several layers meet: {', '.join(unproved)}")
    if report["positions"] is not None:
        print(positions_sentence(report["positions"]))
    times = ", ".join(f"{stage} {seconds * 1e3:.0f} ms" for stage, seconds in report["seconds"].items())
    print(f"{sum(report['seconds'].values()) * 1e3:.0f} ms: {times}")
    if report["artifact"] is not None:
        print(f"wrote {report['artifact']} ({report['artifact_bytes']:,} bytes)")


def stage_seconds(timings: Sequence[Timing]) -> dict[str, float]:
    """How long each stage took."""
    seconds: dict[str, float] = {}
    for timing in timings:
        seconds[timing.stage] = round(seconds.get(timing.stage, 0.0) + timing.seconds, 6)
    return seconds


def _kernels(compilation: Compilation) -> list[dict[str, Any]]:
    """Every kernel: the layers fused in it, whether PEs compute it, and the proof of its accumulators, if any."""
    proofs = {proof.kernel: proof for proof in compilation.proofs}
    scheduled = {layer.layer for layer in compilation.schedule.layers}
    return [
        {
            "name": call.spec.name,
            "layers": list(call.fused),
            "scheduled": call.spec.name in scheduled,
            **proof_facts(proofs.get(call.spec.name)),
            **({"overflow": NOT_PROVED} if _is_open(call.spec, proofs) else {}),
            **_position_facts(compilation.positions.maps.get(call.spec.name)),
        }
        for call in compilation.program.calls
    ]


def _is_open(spec: KernelSpec, proofs: Mapping[str, AccumulatorProof]) -> bool:
    """Whether nothing is proved of accumulators: operands of several layers' positions meet in them."""
    return spec.blocks is not None and spec.accumulator.can_overflow and spec.name not in proofs


def _position_facts(positions: MapPositions | None) -> dict[str, Any]:
    """The positions of a kernel's result, and how many it meets in its input, where the program knows blocks."""
    if positions is None:
        return {}
    return {
        "granularity": positions.granularity,
        "positions_met": _met_facts(positions.met),
        "position_bits": positions.position_bits,
        "blocks_per_frame": positions.blocks_per_frame,
        "position_bits_per_frame": positions.position_bits_per_frame,
    }


def _met_facts(met: Positions) -> list[dict[str, int]]:
    """How many positions are met in how many pixels; floating point would meet one a pixel."""
    return [{"positions": count, "height": height, "width": width} for count, (height, width) in met]


def positions_facts(positions: PositionReport) -> dict[str, Any] | None:
    """The positions of the whole program; None where it knows no blocks."""
    if not positions.maps:
        return None
    return {
        "most_met": _met_facts(positions.most_met),
        "position_bits_per_frame": positions.position_bits_per_frame,
        "mantissa_bits_per_frame": positions.mantissa_bits_per_frame,
    }


def positions_sentence(facts: dict[str, Any]) -> str:
    """The positions of the whole program in one sentence."""
    share = facts["position_bits_per_frame"] / facts["mantissa_bits_per_frame"]
    memory = f"positions take {facts['position_bits_per_frame']:,} bits a frame, {share:.2g} of the mantissas"
    met = [f"{each['positions']} in {each['height']}x{each['width']} pixels" for each in facts["most_met"]]
    return f"{memory}; a PE meets at most {' and '.join(met)}" if met else memory


def proof_facts(proof: AccumulatorProof | None) -> dict[str, Any]:
    """The proof of a kernel's accumulators, where it has any."""
    if proof is None:
        return {}
    return {
        "needed_bits": proof.needed_bits,
        "accumulator_bits": proof.accumulator_bits,
        "overflow": "possible" if proof.overflow_possible else "impossible",
        "by_construction": proof.by_construction,
    }


def overflow_sentence(kernels: Sequence[dict[str, Any]]) -> str:
    """The proofs in one sentence."""
    if not kernels:
        return "no kernel accumulates"
    possible = [kernel for kernel in kernels if kernel["overflow"] == "possible"]
    if possible:
        needs = ", ".join(
            f"{kernel['name']} ({kernel['needed_bits']} of {kernel['accumulator_bits']} bits)" for kernel in possible
        )
        return f"accumulators may overflow in {len(possible)} of {len(kernels)} kernels: {needs}"
    # Operations that fit their values themselves would always seem to be the tightest.
    reductions = [kernel for kernel in kernels if not kernel["by_construction"]]
    if not reductions:
        return "no accumulator can overflow: all kernels fit by construction"
    widest = max(reductions, key=lambda kernel: int(kernel["needed_bits"]))
    needs = f"{widest['name']} needs {widest['needed_bits']} of {widest['accumulator_bits']} bits"
    others = ", the others no more" if len(reductions) > 1 else ""
    fitted = len(kernels) - len(reductions)
    return f"no accumulator can overflow: {needs}{others}" + (f"; {fitted} more fit by construction" if fitted else "")


def _count(number: int, noun: str, plural: str | None = None) -> str:
    """So many things: "1 kernel", "2 kernels"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _warnings(compilation: Compilation) -> Iterator[str]:
    """What a user may not have meant."""
    for misfit in compilation.missing:
        yield f"{misfit.message} ({misfit.found}): exponents can be fixed, but not follow statistics"
    if compilation.loose is not None:
        yield str(compilation.loose)
    parameters = compilation.parameters
    for name in parameters.clamped:
        low, high = compilation.program.policies[name].exponent_range
        yield f"the exponent of {name} was clamped to {parameters.shown_exponent(name)}, into {low} to {high}"
    for name, saturated in parameters.saturated.items():
        size = parameters.mantissas[name].size
        yield f"{saturated} of {size} values of {name} saturate at the exponent {parameters.shown_exponent(name)}"
