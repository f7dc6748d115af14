"""Tables and JSON as verbs print them."""

import json
import subprocess
import sys

import pytest

from binpoint.cli.output import print_json, print_table


def test_a_table_aligns_numbers_and_words(capsys):
    print_table("title", ("name", "count"), [("a", 1), ("long name", "1,000"), ("b", None)])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()] == [
        "title",
        " name        count",
        " ─────────────────",
        " a               1",
        " long name   1,000",
        " b",
    ]


@pytest.mark.parametrize("columns", ["0", "20", "80"])
def test_a_table_wider_than_the_terminal_is_not_cut(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    print_table(None, ("first", "second"), [("a" * 100, 12_345_678_901_234_567_890)])
    assert f" {'a' * 100}   12345678901234567890" in capsys.readouterr().out


def test_nothing_in_a_table_is_markup(capsys):
    print_table("[bold]title", ("[red]name",), [("[/x] :smile:\x1b[2J",)])
    assert capsys.readouterr().out.split() == ["[bold]title", "[red]name", "─" * 16, "[/x]", ":smile:�[2J"]


def test_json(capsys):
    print_json({"name": "ö", "values": [1, None]})
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "ö", "values": [1, None]}
    assert "ö" in out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_any_encoding(encoding):
    value = {"name": "\u00f6 \u20ac", "file": "\udcff.png"}
    program = f"from binpoint.cli.output import print_json\nprint_json({value!a})"
    command = [sys.executable, "-X", "utf8=0", "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, env={"PYTHONIOENCODING": encoding})
    assert json.loads(done.stdout.decode(encoding)) == value
