"""Measure how fast the command line answers and compiles, start-up included.

Runs each command in a fresh process, all commands in turn so that a slow moment of the machine hits every one,
and prints medians. `python bench/startup.py [ROUNDS]`; the table also goes to bench/results/startup.json.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = ROOT / "examples" / "networks"
BINPOINT = Path(sys.executable).parent / "binpoint"


def commands(output: Path) -> dict[str, tuple[list[str], float]]:
    """Each measured command and the goal for its time in seconds."""

    def compile_network(name: str) -> list[str]:
        return ["compile", str(NETWORKS / f"{name}.bp"), "-t", "dlu2048", "-o", str(output / f"{name}.bpz")]

    return {
        "binpoint --help": (["--help"], 0.3),
        "compile lenet": (compile_network("lenet"), 1.5),
        "compile resnet18 at 224x224": (compile_network("resnet18"), 10.0),
    }


def measure(rounds: int) -> list[dict[str, object]]:
    """Wall-clock seconds of each command, interleaved."""
    with tempfile.TemporaryDirectory() as folder:
        todo = commands(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in todo}
        for _ in range(rounds):
            for name, (arguments, _goal) in todo.items():
                start = time.perf_counter()
                subprocess.run([BINPOINT, *arguments], check=True, capture_output=True)
                seconds[name].append(time.perf_counter() - start)
        return [
            {
                "command": name,
                "median_seconds": round(statistics.median(seconds[name]), 3),
                "worst_seconds": round(max(seconds[name]), 3),
                "goal_seconds": goal,
            }
            for name, (_arguments, goal) in todo.items()
        ]


def main() -> None:
    """Measure, print a table, keep the numbers as JSON."""
    rows = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    print(f"{'command':<30} {'median':>9} {'worst':>9} {'goal':>9}")
    for row in rows:
        figures = " ".join(f"{row[key]:>7.2f} s" for key in ("median_seconds", "worst_seconds", "goal_seconds"))
        print(f"{row['command']:<30} {figures}")
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / "startup.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
