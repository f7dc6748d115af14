"""Every pass by name, in the order in which `compile` runs them; a pass's file loads when the pass is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from xdsl.passes import ModulePass

PASSES: Mapping[str, str] = {
    "strip-loss": "StripLoss",
    "fold-batch-norm": "FoldBatchNorm",
    "canonicalize": "Canonicalize",
    "lower-nn-to-fx": "LowerNnToFx",
    "fuse-activations": "FuseActivations",
    "prove-accumulators": "ProveAccumulators",
    "insert-statistics": "InsertStatistics",
    "outline-kernels": "OutlineKernels",
}
"""The class of each pass; its file has the pass's name."""


def pass_class(name: str) -> type[ModulePass]:
    """The class of a pass that `PASSES` names."""
    module = importlib.import_module(f"binpoint.compiler.passes.{name.replace('-', '_')}")
    found: type[ModulePass] = getattr(module, PASSES[name])
    return found
