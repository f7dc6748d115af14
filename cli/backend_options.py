"""The options that choose what computes: shared by `run` and `train`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Protocol

from binpoint.cli.schedule_options import count

if TYPE_CHECKING:
    from binpoint.backends.blocks import BlockBackend
    from binpoint.backends.training_backend import TrainingBackend

    class AnyBackend(TrainingBackend, BlockBackend, Protocol):
        """Computes everything: plain kernels, training, blocks."""


def add_backend_arguments(parser: argparse._ActionsContainer) -> None:
    """--backend and --threads."""
    parser.add_argument(
        "--backend", choices=("te", "oracle"), default="te", help="compiled kernels (default), or the reference"
    )
    parser.add_argument("--threads", type=count, metavar="T", help="threads that compute (default: all cores)")


BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Where the libraries that NumPy may be built with look for their number of threads, once, when they are loaded."""


def limit_blas(threads: int | None) -> None:
    """Let floating point use that many threads. It has to come before NumPy is first imported."""
    if threads is not None:
        os.environ |= dict.fromkeys(BLAS_THREADS, str(threads))


def chosen_threads(name: str, asked: int | None) -> int:
    """How many threads a backend uses: all cores, or as many as asked for, since more would wait for each other."""
    if name == "oracle":
        return 1
    from binpoint.backends.tensor_expression.threads import available_cores

    return min(asked or available_cores(), available_cores())


def make_backend(name: str, threads: int) -> AnyBackend:
    """The backend of that name. The oracle has one thread."""
    if name == "oracle":
        from binpoint.backends.oracle.backend import OracleBackend

        return OracleBackend()
    from binpoint.backends.tensor_expression.backend import TensorExpressionBackend

    return TensorExpressionBackend(threads)
