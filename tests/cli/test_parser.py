"""Errors of the command line: diagnostics like all others, whatever the verb."""

from __future__ import annotations

import pytest

from binpoint.cli.main import VERBS, main

WORDS = {
    "import": ("net.onnx", "-o", "net.bp"),
    "check": ("net.bp",),
    "compile": ("net.bp", "-t", "tiny16", "-o", "net.bpz"),
    "train": ("net.bp", "-t", "tiny16", "--data", "mnist:data"),
    "run": ("net.bpz", "--data", "mnist:data"),
    "inspect": ("net.bpz",),
    "schedule": ("net.bp", "-t", "tiny16"),
    "explain": ("net.bp", "-t", "tiny16", "--layer", "conv", "--idle"),
    "targets": ("show", "tiny16"),
    "opt": ("net.mlir",),
}
"""A command line of each verb that has nothing wrong with it but that the files are missing."""


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is printed on standard error for a wrong command line, and nothing else is."""
    assert main(list(words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_every_verb_is_tested() -> None:
    assert WORDS.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_options(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    for option in ("--unheard-of", "--unheard-of=3", "-%"):
        place = f"{verb} show" if verb == "targets" else verb
        assert error(capsys, verb, *WORDS[verb], option) == (
            "error[unknown-option]: there is no such option\n"
            f"  --> binpoint {place}\n"
            f"  found:    {option.removesuffix('=3')}\n"
            f"  hint:     binpoint {place} --help lists what it takes\n"
        )


@pytest.mark.parametrize("verb", VERBS)
def test_an_argument_too_many(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    printed = error(capsys, verb, *WORDS[verb], "one", "--", "--two")
    assert printed.startswith("error[unexpected-argument]: this is one argument too many\n")
    assert "  found:    one\n" in printed


@pytest.mark.parametrize(
    ("verb", "missing"),
    [
        ("import", "MODEL, -o/--output"),
        ("check", "NET"),
        ("compile", "NET, -t/--target"),
        ("train", "NET, -t/--target, --data"),
        ("run", "FILE"),
        ("inspect", "FILE.bpz"),
        ("schedule", "NET, -t/--target"),
        ("explain", "NET, -t/--target, --layer"),
        ("targets", "ACTION"),
    ],
)
def test_missing_arguments(capsys: pytest.CaptureFixture[str], verb: str, missing: str) -> None:
    assert error(capsys, verb) == (
        "error[missing-argument]: something is missing here\n"
        f"  --> binpoint {verb}\n"
        f"  expected: {missing}\n"
        f"  hint:     binpoint {verb} --help lists what it takes\n"
    )


def test_one_of_several_options_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    printed = error(capsys, "run", "net.bpz")
    assert printed.startswith("error[missing-argument]")
    assert "  expected: one of --data --input --frames\n" in printed


def test_options_that_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    printed = error(capsys, "run", *WORDS["run"], "--input", "x.npy")
    assert printed.startswith("error[contradicting-options]")
    assert "  found:    --data and --input\n" in printed


@pytest.mark.parametrize(
    ("words", "option", "expected"),
    [
        (("compile", "--seed", "-1"), "--seed", "a whole number, at least 0"),
        (("compile", "--momentum", "1"), "--momentum", "a number such as 0.9, at least 0 and below 1"),
        (("compile", "--loss-scale", "256"), "--loss-scale", "a whole number, at most 255"),
        (("train", "--batch", "0"), "--batch", "a whole number, at least 1"),
        (("train", "--lr", "fast"), "--lr", "a number such as 0.05, above 0 and below 2^128, which float32 ends at"),
        (("train", "--target-accuracy", "101%"), "--target-accuracy", "a share such as 0.988 or 98.8%, above 0 and"),
        (("run", "--seed", "x"), "--seed", "a whole number"),
        (("explain", "--pe", "1.5"), "--pe", "a whole number"),
        (("schedule", "--round", "two"), "--round", "a whole number"),
    ],
)
def test_wrong_values(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], option: str, expected: str) -> None:
    verb, name, value = words
    printed = error(capsys, verb, *WORDS[verb], name, value)
    assert printed.startswith(f"error[wrong-value]: wrong value of {option}\n  --> binpoint {verb}\n")
    assert f"  found:    {value}\n  expected: {expected}" in printed


def test_wrong_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, "train", *WORDS["train"], "--backend", "oracel") == (
        "error[unknown-choice]: wrong value of --backend\n"
        "  --> binpoint train\n"
        "  found:    oracel\n"
        "  expected: te, oracle\n"
        '  hint:     did you mean "oracle"?\n'
    )
    assert "error[unknown-choice]: there is no such verb\n  --> binpoint\n" in error(capsys, "trian")
    printed = error(capsys, "targets", "lits")
    assert "error[unknown-choice]: there is no such action\n  --> binpoint targets\n" in printed
    assert 'did you mean "list"?' in printed


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (("train", "--epochs"), "missing-value", "--epochs needs a value"),
        (("compile", "--emit", "c"), "missing-value", "expected: 2 arguments"),
        (("train", "--l", "1"), "ambiguous-option", "expected: one of --limit, --lr, --lr-schedule, --loss-scale"),
        (("train", "--resume=yes"), "unexpected-value", "found:    yes"),
    ],
)
def test_options_and_their_values(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: str, shown: str
) -> None:
    verb, *rest = words
    printed = error(capsys, verb, *WORDS[verb], *rest)
    assert printed.startswith(f"error[{code}]")
    assert shown in printed


def test_a_misspelt_option_is_told_before_what_it_was_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    printed = error(capsys, "train", "net.bp", "--traget", "tiny16", "--dta=mnist:data")
    assert printed.count("error[unknown-option]") == 2
    assert 'did you mean "--target"?' in printed
    assert 'did you mean "--data"?' in printed
    assert "missing" not in printed


def test_options_may_be_cut_short_and_words_behind_two_dashes_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "error[unreadable-file]" in error(capsys, "check", "--js", "--", "--nowhere")
