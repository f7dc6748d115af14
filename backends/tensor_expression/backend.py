"""The backend of TVM tensor expressions."""

from __future__ import annotations

from pathlib import Path

from binpoint.backends.gradients import PARAMETER_GRADIENTS, ConvolutionDataGradient, SumsSpec, UpdateSpec
from binpoint.backends.kernel import IntArray, KernelParameters, KernelSpec, TensorSpec
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression.block_kernels import BlockLayerKernel
from binpoint.backends.tensor_expression.block_moves import BlockMoveKernel
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, empty_feature_map
from binpoint.backends.tensor_expression.cache import KernelCache, default_directory, size_limit
from binpoint.backends.tensor_expression.capability import Capability, host_capability
from binpoint.backends.tensor_expression.channel_sums import ChannelSums
from binpoint.backends.tensor_expression.checks import check_spec
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.data_gradient import DataGradientKernel
from binpoint.backends.tensor_expression.kernels import LayerKernel
from binpoint.backends.tensor_expression.layout import pack, unpack
from binpoint.backends.tensor_expression.library import load_runtime
from binpoint.backends.tensor_expression.parameter_gradient import ParameterGradientKernel
from binpoint.backends.tensor_expression.parameter_layout import ParameterMap
from binpoint.backends.tensor_expression.pe_program import TileProgram
from binpoint.backends.tensor_expression.threads import reserve_threads, use_threads
from binpoint.backends.tensor_expression.update import UpdateKernel
from binpoint.support.numeric import Rounding

TensorExpressionKernel = LayerKernel | DataGradientKernel | ParameterGradientKernel


class TensorExpressionBackend:
    """See `binpoint.backends.kernel.Backend`.

    Args:
        threads: how many threads kernels use; None for all cores. It holds for the process.
        capability: the CPU level to generate for; None for this machine's (or BINPOINT_CPU).
        cache: the directory of compiled kernels; None for the user's (or BINPOINT_CACHE).

    Raises:
        UserError: BINPOINT_CPU names a level that this machine has not, or BINPOINT_CACHE_MIB is no size.
    """

    name = "te"

    def __init__(
        self, threads: int | None = None, capability: Capability | None = None, cache: Path | None = None
    ) -> None:
        reserve_threads(threads)
        load_runtime()
        use_threads(threads)
        kernels = KernelCache(cache or default_directory(), size_limit())
        self.compiler = Compiler(capability or host_capability(), kernels)
        self._workspace = Workspace()

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> FeatureMap:
        """(N, C, H, W) mantissas into a buffer. Raises ValueError where they do not fit the spec."""
        if mantissas.shape[1:] != spec.shape:
            raise ValueError(f"mantissas of shape {mantissas.shape[1:]} for a feature map {spec.shape}")
        least, greatest = mantissa_range(spec.bits)
        if mantissas.size and (mantissas.min() < least or mantissas.max() > greatest):
            raise ValueError(f"mantissas outside {spec.bits} bits")
        feature_map = empty_feature_map(spec, len(mantissas))
        pack(mantissas, spec, feature_map.blocked)
        return feature_map

    def download(self, buffer: FeatureMap | ParameterMap) -> IntArray:
        """A buffer as (N, C, H, W) mantissas, int8 up to 8 bits, else int16; aligned for PE programs."""
        if isinstance(buffer, ParameterMap):
            return buffer.layout.unpack(buffer.blocked)
        return unpack(buffer.blocked, buffer.spec)

    def prepare(self, spec: KernelSpec, parameters: KernelParameters) -> TensorExpressionKernel:
        """Bind a kernel's parameters; code is compiled when the first exponents are known.

        Raises UserError where a width is not one that kernels hold.
        """
        check_spec(spec)
        return _kernel_class(spec)(spec, parameters, self.compiler, self._workspace)

    def prepare_blocks(self, spec: KernelSpec, parameters: KernelParameters) -> BlockLayerKernel | BlockMoveKernel:
        """Bind the parameters of a kernel over blocks; code is compiled when the first exponents are known.

        Raises UserError where a width is not one that kernels hold.
        """
        check_spec(spec)
        if spec.exact:
            return BlockMoveKernel(spec, self.compiler, self._workspace)
        return BlockLayerKernel(spec, parameters, self.compiler, self._workspace)

    def prepare_pe_program(
        self, spec: KernelSpec, parameters: KernelParameters, images: int, channels: int
    ) -> TileProgram:
        """The PE program of a kernel; it takes tiles of any size.

        Raises UserError where a width is not one that kernels hold.
        """
        check_spec(spec)
        return TileProgram(spec, parameters, self.compiler)

    def prepare_sums(self, spec: SumsSpec) -> ChannelSums:
        """Exact channel-wise sums. Raises OverflowError where the sum of one image may leave 64 bits."""
        return ChannelSums(spec.inputs, spec.terms, self.compiler)

    def prepare_update(self, spec: UpdateSpec, rounding: Rounding) -> UpdateKernel:
        """SGD on one parameter."""
        return UpdateKernel(spec, rounding, self.compiler, self._workspace)


def _kernel_class(spec: KernelSpec) -> type[LayerKernel] | type[DataGradientKernel] | type[ParameterGradientKernel]:
    if isinstance(spec.operation, PARAMETER_GRADIENTS):
        return ParameterGradientKernel
    # The phases of a data gradient do not know the numbers that stochastic rounding gives to their results.
    if isinstance(spec.operation, ConvolutionDataGradient) and spec.rounding is not Rounding.STOCHASTIC:
        return DataGradientKernel
    return LayerKernel
