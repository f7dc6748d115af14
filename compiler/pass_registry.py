"""Every pass by name, in the order in which the compiler runs them; a pass's file loads when the pass is used."""

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
    "count-positions": "CountPositions",
    "insert-statistics": "InsertStatistics",
    "outline-kernels": "OutlineKernels",
}
"""The passes of inference: the class of each; its file has the pass's name."""

TRAINING_PASSES: Mapping[str, str] = {
    "insert-loss": "InsertLoss",
    "canonicalize": "Canonicalize",
    "lower-nn-to-training": "LowerNnToTraining",
    "fuse-activations": "FuseActivations",
    "outline-kernels": "OutlineKernels",
    "differentiate": "Differentiate",
    "insert-updates": "InsertUpdates",
    "prove-accumulators": "ProveAccumulators",
    "insert-statistics": "InsertStatistics",
}
"""The passes of training; some are those of inference."""

ALL_PASSES: Mapping[str, str] = {**PASSES, **TRAINING_PASSES}
"""Every pass."""


def pass_class(name: str) -> type[ModulePass]:
    """The class of a pass that `ALL_PASSES` names."""
    module = importlib.import_module(f"binpoint.compiler.passes.{name.replace('-', '_')}")
    found: type[ModulePass] = getattr(module, ALL_PASSES[name])
    return found
