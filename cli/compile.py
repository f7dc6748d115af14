"""`binpoint compile`: compile a network for a target into a .bpz artifact."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binpoint.cli.schedule_options import count, number
from binpoint.cli.set_option import add_set_argument
from binpoint.cli.sgd_options import add_sgd_arguments

if TYPE_CHECKING:
    from binpoint.compiler.network import NetworkGraph
    from binpoint.compiler.parameters import Parameters
    from binpoint.compiler.pass_runner import Timing, Watcher
    from binpoint.compiler.pipeline import Compilation
    from binpoint.runtime.manifest import Origin
    from binpoint.support.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("network", type=Path, metavar="NET", help="a .bp network, or an .onnx model")
    parser.add_argument("-t", "--target", required=True, help="a shipped target (see `targets list`) or a .toml file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT.bpz", help="the artifact to write; with --training, the IR"
    )
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="a safetensors file (default: the one that the network names)"
    )
    parser.add_argument(
        "--seed", type=number, default=0, metavar="S", help="draws the weights where there is no file (default 0)"
    )
    parser.add_argument("--batch", type=count, metavar="N", help="images of a mini-batch (default 64)")
    add_set_argument(parser)
    parser.add_argument("--use", type=Path, metavar="FILE", help="check and obey an edited schedule")
    training = parser.add_argument_group("training")
    training.add_argument(
        "--training", action="store_true", help="compile a mini-batch of training: forward, loss, backward, update"
    )
    add_sgd_arguments(training)
    inside = parser.add_argument_group("looking inside")
    inside.add_argument(
        "--dump-dir", type=Path, metavar="DIR", help="write the IR after each pass, the schedule and the times"
    )
    inside.add_argument("--print-ir-after-all", action="store_true", help="print the IR after each pass on stderr")
    inside.add_argument(
        "--emit",
        nargs=2,
        action="append",
        default=[],
        metavar=("{tir,llvm,c}", "DIR"),
        help="write the generated kernels, a file each; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Compile, write, print what came out."""
    from binpoint.cli.compile_report import facts, print_report
    from binpoint.compiler.dump import DumpDirectory
    from binpoint.compiler.pipeline import CompileOptions, compile_network
    from binpoint.compiler.settings import apply_settings, parse_settings
    from binpoint.support.diagnostics import Collector
    from binpoint.support.files import check_writable
    from binpoint.support.target_file import load_target

    clock = _Clock()
    faults = Collector()
    with faults.catch():
        _check_options(arguments)
    with faults.catch():
        settings = parse_settings(arguments.set)
    faults.raise_any()
    target = load_target(arguments.target)
    network, parameters = clock.timed(
        "network", "read-network", lambda: read_network(arguments.network, arguments.weights)
    )
    network, target = apply_settings(network, target, settings)
    if arguments.output is not None and network.weights is not None:
        check_writable(arguments.output, [network.weights])
    if arguments.training:
        return _run_training(arguments, network, target, clock)
    origin = _origin(arguments, network, in_model=parameters is not None)
    if parameters is None:
        read = partial(read_parameters, network, arguments.weights, arguments.seed)
        parameters = clock.timed("parameters", "read-parameters", read)
    dump = None if arguments.dump_dir is None else DumpDirectory(arguments.dump_dir)
    options = CompileOptions(arguments.batch, arguments.use, _watcher(dump, arguments.print_ir_after_all))
    compilation = compile_network(network, parameters, target, options)
    clock.timings += compilation.timings
    for form, directory in arguments.emit:
        clock.timed("kernels", f"emit {form}", partial(_emit, compilation, form, directory))
    if arguments.output is not None:
        clock.timed("artifact", "write-artifact", lambda: _write(arguments.output, compilation, origin))
    if dump is not None:
        dump.write_times(clock.timings)
    folded = any(layer.kind == "batch_norm" for layer in network.layers.values())
    report = facts(compilation, clock.timings, arguments.output, origin.seed, folded)
    _print(report, arguments.json, print_report)
    return 0


def _run_training(arguments: argparse.Namespace, network: NetworkGraph, target: Target, clock: _Clock) -> int:
    """Compile a mini-batch of training, write, print what came out."""
    from binpoint.cli.compile_training import compile_for_training, print_training_report, training_facts
    from binpoint.compiler.dump import DumpDirectory

    dump = None if arguments.dump_dir is None else DumpDirectory(arguments.dump_dir)
    watch = _watcher(dump, arguments.print_ir_after_all)
    compilation = compile_for_training(arguments, network, target, watch)
    clock.timings += compilation.timings
    if dump is not None:
        dump.write_times(clock.timings)
    report = training_facts(compilation, clock.timings, arguments.output)
    _print(report, arguments.json, print_training_report)
    return 0


def _print(report: dict[str, Any], json: bool, print_report: Callable[[dict[str, Any]], None]) -> None:
    """What came out, as JSON or for people, and what to mind."""
    from binpoint.cli.output import print_json

    if json:
        print_json(report)
    else:
        print_report(report)
    for warning in report["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)


class _Clock:
    """Keeps the time of what this verb does itself."""

    def __init__(self) -> None:
        self.timings: list[Timing] = []

    def timed(self, stage: str, step: str, work: Callable[[], Any]) -> Any:
        from binpoint.compiler.pass_runner import Timing

        start = time.perf_counter()
        result = work()
        self.timings.append(Timing(stage, step, time.perf_counter() - start))
        return result


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be done before anything is read."""
    from binpoint.cli.compile_training import check_training_options
    from binpoint.compiler.dump import check_dump
    from binpoint.support.diagnostics import user_error
    from binpoint.support.files import check_writable

    check_training_options(arguments)
    if not (arguments.output or arguments.emit or arguments.dump_dir or arguments.print_ir_after_all):
        expected = "-o OUT.bpz, --dump-dir, --emit or --print-ir-after-all"
        raise user_error("nothing-to-write", "the compiler is asked to write nothing", expected=expected)
    inputs = (arguments.network, Path(arguments.target), arguments.weights, arguments.use)
    given = [path for path in inputs if path is not None]
    if arguments.output is not None:
        check_writable(arguments.output, given)
    if arguments.dump_dir is not None:
        check_dump(arguments.dump_dir, given)


def read_network(path: Path, weights: Path | None) -> tuple[NetworkGraph, Parameters | None]:
    """The network and, from a model that holds them, its parameters, unless they come from a file of their own."""
    from binpoint.compiler.frontends.dsl.parser import parse_network

    if path.suffix.lower() == ".onnx":
        from binpoint.compiler.frontends.onnx.importer import import_onnx

        network, parameters = import_onnx(path)
        return network, None if weights is not None else parameters
    return parse_network(path), None


def read_parameters(network: NetworkGraph, weights: Path | None, seed: int) -> Parameters:
    """The parameters from a file, the network's own or another, else drawn."""
    from binpoint.compiler.parameters import load_parameters

    return load_parameters(network, weights, seed)


def _origin(arguments: argparse.Namespace, network: NetworkGraph, *, in_model: bool) -> Origin:
    """Where the parameters come from. Names of files are without folders, so that equal inputs give equal artifacts."""
    from binpoint.runtime.manifest import Origin, Source

    file = arguments.network if in_model else arguments.weights or network.weights
    return Origin(Source.DRAW, seed=arguments.seed) if file is None else Origin(Source.FILE, file=file.name)


def _watcher(dump: Watcher | None, print_ir: bool) -> Watcher | None:
    """Who looks at what passes leave: the dump, standard error, both or nobody."""

    def watch(name: str, text: Callable[[], str]) -> None:
        if dump is not None:
            dump(name, text)
        if print_ir and name.endswith(".mlir"):
            print(f"// --- after {name.removesuffix('.mlir')} ---\n{text()}", file=sys.stderr)

    return watch if print_ir or dump is not None else None


def _emit(compilation: Compilation, form: str, directory: str) -> None:
    from binpoint.backends.tensor_expression.emit import emit

    emit(compilation.program, form, Path(directory))


def _write(path: Path, compilation: Compilation, origin: Origin) -> None:
    from binpoint.runtime.artifact import write_artifact

    write_artifact(path, compilation.artifact(origin))
