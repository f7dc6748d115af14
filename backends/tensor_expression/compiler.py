"""Compiled kernels on demand: from memory, from the cache, or generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from binpoint.backends.kernel import IntArray
from binpoint.backends.tensor_expression.cache import KernelCache
from binpoint.backends.tensor_expression.capability import Capability
from binpoint.backends.tensor_expression.convolution_avx2 import Avx2ConvolutionDesign
from binpoint.backends.tensor_expression.design import Design
from binpoint.backends.tensor_expression.generic import GenericDesign
from binpoint.backends.tensor_expression.library import Function, Library, load
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan

AVX2_CONVOLUTION = Avx2ConvolutionDesign()
GENERIC = GenericDesign()


def choose_design(plan: KernelPlan, weight: IntArray | None, capability: Capability) -> Design:
    """The fastest design that computes a plan exactly with these weights on a CPU level."""
    if capability is Capability.AVX2 and weight is not None and AVX2_CONVOLUTION.supports(plan, weight):
        return AVX2_CONVOLUTION
    return GENERIC


class Compiler:
    """Gives the function of a plan; equal plans share one. TVM's compiler is imported only to generate."""

    def __init__(self, capability: Capability, cache: KernelCache) -> None:
        self.capability = capability
        self._cache = cache
        self._libraries: dict[str, Library] = {}
        self.generated = 0
        """How many kernels were generated because no cache had them."""

    def kernel(self, plan: KernelPlan, design: Design) -> Function:
        """The function of a layer or of a PE program."""
        return self._function(f"{design.name} {plan!r}", lambda: design.build(plan))

    def statistics(self, container: Container, form: Form) -> Function:
        """The function that fills histograms from values (see `statistics_kernel`)."""

        def build() -> Any:
            from binpoint.backends.tensor_expression import statistics_kernel

            return statistics_kernel.build(container, form)

        return self._function(f"statistics {container} {form}", build)

    def _function(self, what: str, build: Callable[[], Any]) -> Function:
        description = f"{self.capability} {what}"
        library = self._libraries.get(description)
        if library is None:
            code = self._cache.get(description)
            if code is None:
                code = self._generate(build)
                self._cache.put(description, code)
            library = self._libraries[description] = load(code)
        return library.function

    def _generate(self, build: Callable[[], Any]) -> bytes:
        from binpoint.backends.tensor_expression.codegen import object_code

        self.generated += 1
        return object_code(build(), self.capability)
