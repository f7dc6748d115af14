"""What `binpoint compile` says of a compilation: facts for JSON, a summary, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binpoint.compiler.pass_runner import Timing
    from binpoint.compiler.pipeline import Compilation


def facts(
    compilation: Compilation, timings: Sequence[Timing], output: Path | None, drawn_with: int | None
) -> dict[str, Any]:
    """The result as one JSON document.

    Args:
        compilation: what was compiled.
        timings: every step, reading and writing included.
        output: the artifact that was written, if any.
        drawn_with: the seed, where the weights were drawn.
    """
    mantissas = compilation.parameters.mantissas.values()
    seconds: dict[str, float] = {}
    for timing in timings:
        seconds[timing.stage] = round(seconds.get(timing.stage, 0.0) + timing.seconds, 6)
    return {
        "network": compilation.program.name,
        "target": compilation.target.name,
        "batch": compilation.schedule.images,
        "kernels": _kernels(compilation),
        "parameters": sum(array.size for array in mantissas),
        "parameter_bytes": sum(array.nbytes for array in mantissas),
        "drawn_with_seed": drawn_with,
        "warnings": list(_warnings(compilation)),
        "seconds": seconds,
        "artifact": None if output is None else str(output),
        "artifact_bytes": None if output is None else output.stat().st_size,
    }


def print_report(report: dict[str, Any]) -> None:
    """The summary on standard output."""
    kernels = report["kernels"]
    print(f"{report['network']} for {report['target']}: {len(kernels)} kernels, {report['batch']} images a mini-batch")
    origin = "" if report["drawn_with_seed"] is None else f", drawn with seed {report['drawn_with_seed']}"
    print(f"{report['parameters']:,} parameters in {report['parameter_bytes']:,} bytes of mantissas{origin}")
    print(_overflow([kernel for kernel in kernels if "needed_bits" in kernel]))
    times = ", ".join(f"{stage} {seconds * 1e3:.0f} ms" for stage, seconds in report["seconds"].items())
    print(f"{sum(report['seconds'].values()) * 1e3:.0f} ms: {times}")
    if report["artifact"] is not None:
        print(f"wrote {report['artifact']} ({report['artifact_bytes']:,} bytes)")


def _kernels(compilation: Compilation) -> list[dict[str, Any]]:
    """Every kernel: the layers fused in it and, where it accumulates, the proof of its accumulators."""
    proofs = {proof.kernel: proof for proof in compilation.proofs}
    kernels = []
    for call in compilation.program.calls:
        kernel: dict[str, Any] = {"name": call.spec.name, "layers": list(call.fused)}
        if call.spec.name in proofs:
            proof = proofs[call.spec.name]
            kernel["needed_bits"] = proof.needed_bits
            kernel["accumulator_bits"] = proof.accumulator_bits
            kernel["overflow"] = "possible" if proof.overflow_possible else "impossible"
        kernels.append(kernel)
    return kernels


def _overflow(kernels: Sequence[dict[str, Any]]) -> str:
    """The proofs in one sentence."""
    if not kernels:
        return "no kernel accumulates"
    possible = [kernel for kernel in kernels if kernel["overflow"] == "possible"]
    if possible:
        needs = ", ".join(
            f"{kernel['name']} ({kernel['needed_bits']} of {kernel['accumulator_bits']} bits)" for kernel in possible
        )
        return f"accumulators may overflow in {len(possible)} of {len(kernels)} kernels: {needs}"
    widest = max(kernels, key=lambda kernel: int(kernel["needed_bits"]))
    needs = f"{widest['name']} needs {widest['needed_bits']} of {widest['accumulator_bits']} bits"
    return f"no accumulator can overflow: {needs}{', the others no more' if len(kernels) > 1 else ''}"


def _warnings(compilation: Compilation) -> Iterator[str]:
    """What a user may not have meant."""
    for misfit in compilation.missing:
        yield f"{misfit.message} ({misfit.found}): exponents can be fixed, but not follow statistics"
    parameters = compilation.parameters
    for name in parameters.clamped:
        low, high = compilation.program.policies[name].exponent_range
        yield f"the exponent of {name} was clamped to {parameters.exponents[name]}, into {low} to {high}"
    for name, saturated in parameters.saturated.items():
        size = parameters.mantissas[name].size
        yield f"{saturated} of {size} values of {name} saturate at the exponent {parameters.exponents[name]}"
