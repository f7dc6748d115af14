"""Compiled kernels on demand: from memory, from the cache, or generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from binpoint.backends.tensor_expression.cache import KernelCache
from binpoint.backends.tensor_expression.capability import Capability
from binpoint.backends.tensor_expression.convolution_avx2 import Avx2ConvolutionDesign
from binpoint.backends.tensor_expression.design import Design
from binpoint.backends.tensor_expression.generic import GenericDesign
from binpoint.backends.tensor_expression.library import Function, Library, load
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.backends.tensor_expression.winograd import WinogradDesign, winograd_designs

AVX2_CONVOLUTION = Avx2ConvolutionDesign()
GENERIC = GenericDesign()


def designs(plan: KernelPlan, capability: Capability) -> tuple[Design, ...]:
    """The designs that compute a plan on a CPU level, the fastest first; the last one is exact with any weights."""
    if capability is Capability.AVX2 and AVX2_CONVOLUTION.supports(plan):
        return *winograd_designs(plan), AVX2_CONVOLUTION, GENERIC
    return (GENERIC,)


def centred_designs(plan: KernelPlan, capability: Capability) -> list[WinogradDesign]:
    """The designs that compute a centred plan, the fastest first; whether they are exact depends on the inputs."""
    return winograd_designs(plan) if capability is Capability.AVX2 and AVX2_CONVOLUTION.supports(plan) else []


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
        return self.function(f"{design.name} {plan!r}", lambda: design.build(plan))

    def statistics(self, container: Container, form: Form) -> Function:
        """The function that fills histograms from values (see `statistics_kernel`)."""

        def build() -> Any:
            from binpoint.backends.tensor_expression import statistics_kernel

            return statistics_kernel.build(container, form)

        return self.function(f"statistics {container} {form}", build)

    def function(self, what: str, build: Callable[[], Any]) -> Function:
        """The function of the module that `build` gives; `what` names everything that decides it."""
        description = f"{self.capability} {what}"
        library = self._libraries.get(description)
        if library is None:
            library = self._kept(description)
            if library is None:
                code = self._generate(build)
                self._cache.put(description, code)
                library = load(code)
            self._libraries[description] = library
        return library.function

    def _kept(self, description: str) -> Library | None:
        """What the cache has, None where it has nothing that can be linked: a cache never fails a run."""
        code = self._cache.get(description)
        if code is None:
            return None
        try:
            return load(code)
        except Exception:  # each linker has errors of its own, and TVM's derive from several bases
            return None

    def _generate(self, build: Callable[[], Any]) -> bytes:
        from binpoint.backends.tensor_expression.codegen import object_code

        self.generated += 1
        return object_code(build(), self.capability)
