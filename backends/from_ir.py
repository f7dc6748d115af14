"""A verified fx module -> the program that backends and the runtime read."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from binpoint.backends.ir_kernels import KernelReader, refusal
from binpoint.backends.program import KernelCall, Program, ProgramInput
from binpoint.dialect.fx_program import InputOp, KernelOp, OutputOp, ParameterOp, ProgramOp
from binpoint.dialect.fx_values import BlockMoveOp, QuantizeOp
from binpoint.support.diagnostics import Collector, user_error
from binpoint.support.numeric import Granularity, TensorClass, TensorPolicy


def program_from_module(module: ModuleOp) -> Program:
    """The module's one program.

    Args:
        module: a verified module (see `binpoint.dialect.text.parse_module`).

    Raises:
        UserError: with everything in the module that is no program or that no kernel computes.
    """
    return _Reader(_program_op(module)).read()


def target_name(module: ModuleOp) -> str | None:
    """The name of the target that the module's one program is for, None where it says none.

    Raises:
        UserError: where the module holds no program, or several.
    """
    target = _program_op(module).target
    return None if target is None else str(target.data)


def _program_op(module: ModuleOp) -> ProgramOp:
    programs = [op for op in module.ops if isinstance(op, ProgramOp)]
    if len(programs) != 1:
        found = f"{len(programs)} of {len(list(module.ops))} operations are fx.program"
        hint = "run lower-nn-to-fx and the passes after it" if not programs else None
        raise user_error("not-a-program", "a module must hold one program", found=found, hint=hint)
    return programs[0]


class _Reader:
    """Reads one program in data-flow order."""

    def __init__(self, program: ProgramOp) -> None:
        self.program = program
        self.kernels = KernelReader(blocks=True)
        self.policies: dict[str, TensorPolicy] = {}
        self.inputs: list[ProgramInput] = []
        self.calls: list[KernelCall] = []
        self.outputs: tuple[str, ...] = ()

    def read(self) -> Program:
        collector = Collector()
        for op in self.program.body.block.ops:
            with collector.catch():
                self._operation(op)
        collector.raise_any()
        for what, found in (("input", self.inputs), ("kernel", self.calls)):
            if not found:
                raise refusal(self.program, f"the program has no {what}")
        name = self.program.symbol.data
        program = Program(name, tuple(self.inputs), tuple(self.calls), self.outputs, self.policies)
        _check_blocks(self.program, program)
        return program

    def _operation(self, op: Operation) -> None:
        match op:
            case InputOp():
                self.policies[op.label.data] = op.exponent.data
                self.inputs.append(self.kernels.input(op))
            case ParameterOp():
                self.policies[op.label.data] = op.exponent.data
                self.kernels.parameter(op)
            case KernelOp():
                self.calls.append(self.kernels.call(op, TensorClass.ACTIVATIONS))
                end = op.steps()[-1]
                if isinstance(end, QuantizeOp | BlockMoveOp) and end.exponent is not None:
                    self.policies[op.label.data] = end.exponent.data
            case OutputOp():
                # Two layers of the network file may have become one tensor; it leaves once.
                self.outputs = tuple(dict.fromkeys(self.kernels.name(op, value) for value in op.values))
            case _:
                raise refusal(op, f"{op.name} stands outside of a kernel", "run outline-kernels")


def _check_blocks(op: ProgramOp, program: Program) -> None:
    """Kernels of one program all find exponents block by block, or none does: the former where any tensor needs it.

    Raises:
        UserError: some kernels that quantise say how, others do not.
    """
    quantising = [call.spec for call in program.calls if not call.spec.exact]
    silent = [spec.name for spec in quantising if spec.blocks is None]
    silent += [declared.name for declared in program.inputs if declared.blocks is None]
    tensors = [tensor for call in program.calls for tensor in (*call.spec.inputs, call.spec.output)]
    needed = any(tensor.granularity != Granularity() for tensor in tensors)
    needed = needed or any(call.weight_per_channel for call in program.calls)
    if silent and (needed or len(silent) < len(quantising) + len(program.inputs)):
        hint = "give each fx.input and fx.quantize blocks = <...>"
        raise refusal(op, f'"{silent[0]}" does not say how its blocks get their exponents', hint)
