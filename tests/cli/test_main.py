"""The entry point: verbs, exit codes and start-up cost."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from binpoint.cli import main as cli
from binpoint.support.diagnostics import user_error
from binpoint.support.version import VERSION

HEAVY = ("tvm", "xdsl", "networkx", "numpy", "onnx", "lark", "rich", "matplotlib")


def test_every_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in cli.VERBS:
        with pytest.raises(SystemExit) as stop:
            cli.main([verb, "--help"])
        assert stop.value.code == 0
        assert f"binpoint {verb}" in capsys.readouterr().out


def test_no_verb_prints_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "VERB" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([verb, "--help"] for verb in cli.VERBS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from binpoint.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        f"    print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def replace_verb(monkeypatch: pytest.MonkeyPatch, run: Callable[[], int]) -> None:
    """Let every verb do `run`."""
    verb = SimpleNamespace(add_arguments=lambda parser: None, run=lambda arguments: run())
    monkeypatch.setattr(cli, "_verb", lambda name: verb)


def fail_with(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


def test_user_errors_exit_with_2_and_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = user_error("some-code", "it is wrong", found=3, expected="four", hint="count again")
    replace_verb(monkeypatch, fail_with(error))
    assert cli.main(["check"]) == 2
    assert capsys.readouterr().err == (
        "error[some-code]: it is wrong\n  found:    3\n  expected: four\n  hint:     count again\n"
    )


def test_too_little_memory_is_an_error_not_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_verb(monkeypatch, lambda: len(np.ones(1 << 60, np.uint8)))
    assert cli.main(["run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error[out-of-memory]")
    assert "1.00 EiB" in error


def test_interrupts_exit_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_verb(monkeypatch, fail_with(KeyboardInterrupt()))
    assert cli.main(["check"]) == 130


def test_interrupts_while_modules_are_imported_are_no_traceback() -> None:
    program = (
        "import builtins, os, signal, sys; from binpoint.cli.main import main; found = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'argparse':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return found(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "sys.exit(main(['targets', 'list']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_version_is_that_of_artifacts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"binpoint {VERSION}\n"


def binpoint(arguments: str, redirection: str) -> tuple[int, str]:
    """Exit code and standard error of a shell command with its standard output redirected."""
    program = "import sys; from binpoint.cli.main import main; sys.exit(main())"
    command = f"set -o pipefail; {sys.executable} -c '{program}' {arguments} {redirection}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", ["--version", "targets list --json", "targets list"])
def test_a_reader_that_has_gone_is_no_error(arguments: str) -> None:
    assert binpoint(arguments, "| true") == (0, "")


@pytest.mark.parametrize("arguments", ["targets list --json", "targets list"])
def test_a_full_disk_behind_standard_output_is_an_error(arguments: str) -> None:
    code, error = binpoint(arguments, "> /dev/full")
    assert code == 2
    assert error == "error[system-error]: the system refused to read or write\n  found:    [Errno 28] " + (
        "No space left on device\n"
    )


@pytest.mark.parametrize("arguments", ["targets list --json", "targets list", "targets check tiny16"])
def test_a_closed_standard_output_is_no_error(arguments: str) -> None:
    assert binpoint(arguments, ">&-") == (0, "")


def test_errors_do_not_go_to_standard_output_where_there_is_no_standard_error() -> None:
    assert binpoint("inspect missing.bpz", "2>&- | { ! grep -q .; }") == (2, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_half_written_file(tmp_path: Path, number: int) -> None:
    program = (
        "import os, sys; from pathlib import Path; from binpoint.cli import main; from binpoint.support import files;"
        f"os.fsync = lambda _: os.kill(os.getpid(), {number:d});"
        "main._run = lambda _: files.write_atomically(Path('out'), 'text'); sys.exit(main.main())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE)
    assert done.returncode == 128 + number
    assert not list(tmp_path.iterdir())


def test_errors_of_a_command_survive_a_broken_standard_output() -> None:
    code, error = binpoint("inspect missing.bpz", "> /dev/full")
    assert code == 2
    assert error.startswith("error[unreadable-file]")


def test_what_standard_output_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding="latin-1"))
    replace_verb(monkeypatch, lambda: print("\u00f6 \u20ac \udcff") or 0)
    assert cli.main(["check"]) == 0
    assert stream.getvalue() == b"\xf6 \\u20ac \\udcff\n"
