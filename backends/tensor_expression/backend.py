"""The backend of TVM tensor expressions."""

from __future__ import annotations

from pathlib import Path

from binpoint.backends.kernel import IntArray, KernelParameters, KernelSpec, TensorSpec
from binpoint.backends.memory import aligned_empty
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace
from binpoint.backends.tensor_expression.cache import KernelCache, default_directory
from binpoint.backends.tensor_expression.capability import Capability, host_capability
from binpoint.backends.tensor_expression.checks import check_spec
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.kernels import LayerKernel
from binpoint.backends.tensor_expression.layout import feature_map_layout, pack, storage_dtype, unpack
from binpoint.backends.tensor_expression.library import load_runtime
from binpoint.backends.tensor_expression.pe_program import TileProgram
from binpoint.backends.tensor_expression.threads import reserve_threads, use_threads


class TensorExpressionBackend:
    """See `binpoint.backends.kernel.Backend`.

    Args:
        threads: how many threads kernels use; None for all cores. It holds for the process.
        capability: the CPU level to generate for; None for this machine's (or BINPOINT_CPU).
        cache: the directory of compiled kernels; None for the user's (or BINPOINT_CACHE).

    Raises:
        UserError: BINPOINT_CPU names a level that this machine has not.
    """

    name = "tensor-expression"

    def __init__(
        self, threads: int | None = None, capability: Capability | None = None, cache: Path | None = None
    ) -> None:
        reserve_threads(threads)
        load_runtime()
        use_threads(threads)
        self.compiler = Compiler(capability or host_capability(), KernelCache(cache or default_directory()))
        self._workspace = Workspace()

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> FeatureMap:
        """(N, C, H, W) mantissas into a buffer. Raises ValueError where they do not fit the spec."""
        if mantissas.shape[1:] != spec.shape:
            raise ValueError(f"mantissas of shape {mantissas.shape[1:]} for a feature map {spec.shape}")
        least, greatest = mantissa_range(spec.bits)
        if mantissas.size and (mantissas.min() < least or mantissas.max() > greatest):
            raise ValueError(f"mantissas outside {spec.bits} bits")
        shape = feature_map_layout(spec).shape(spec, len(mantissas))
        blocked = aligned_empty(shape, storage_dtype(spec.bits))
        pack(mantissas, spec, blocked)
        return FeatureMap(spec, blocked)

    def download(self, buffer: FeatureMap) -> IntArray:
        """A buffer as (N, C, H, W) mantissas, int8 up to 8 bits, else int16; aligned for PE programs."""
        return unpack(buffer.blocked, buffer.spec)

    def prepare(self, spec: KernelSpec, parameters: KernelParameters) -> LayerKernel:
        """Bind a kernel's parameters; code is compiled when the first exponents are known.

        Raises UserError where a width is not one that kernels hold.
        """
        check_spec(spec)
        return LayerKernel(spec, parameters, self.compiler, self._workspace)

    def prepare_pe_program(
        self, spec: KernelSpec, parameters: KernelParameters, images: int, channels: int
    ) -> TileProgram:
        """The PE program of a kernel; it takes tiles of any size.

        Raises UserError where a width is not one that kernels hold.
        """
        check_spec(spec)
        return TileProgram(spec, parameters, self.compiler)
