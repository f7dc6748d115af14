"""How many threads kernels use."""

from __future__ import annotations

import os

import tvm_ffi

POOL_SIZE = "TVM_NUM_THREADS"
"""TVM reads this environment variable once, when its thread pool starts, and takes one thread where it is not set."""

_BIG_CORES_FIRST = 1
"""The affinity mode of `runtime.config_threadpool`."""


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def reserve_threads(threads: int | None) -> None:
    """Size the pool for all cores, or for as many threads as asked for. Call before the first kernel runs.

    What the environment says is overruled: a pool of thousands of threads would only spin.
    """
    os.environ[POOL_SIZE] = str(max(available_cores(), threads or 1))


def use_threads(threads: int | None) -> None:
    """Use that many threads from now on, None for all cores. The TVM runtime must be loaded."""
    tvm_ffi.get_global_func("runtime.config_threadpool")(_BIG_CORES_FIRST, threads or available_cores())
