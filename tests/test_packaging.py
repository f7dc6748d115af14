"""The package list of pyproject.toml says exactly what the folders hold, and `make demo` what it draws."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_the_demo_names_the_picture_that_it_draws() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    drawn = re.findall(r"--picture (\S+)", recipe)
    assert drawn
    assert re.findall(r'@echo ".*: (\S+)"', recipe) == drawn


def packages_on_disk() -> set[str]:
    """Every folder below a mapped top folder that holds an `__init__.py`, by its import name."""
    found = set()
    for name, folder in PROJECT["package-dir"].items():
        for marker in (ROOT / folder).rglob("__init__.py"):
            parts = marker.parent.relative_to(ROOT / folder).parts
            found.add(".".join([name, *parts]))
    return found


def test_every_package_is_listed() -> None:
    assert set(PROJECT["packages"]) == packages_on_disk()


def test_every_package_is_typed() -> None:
    for name, folder in PROJECT["package-dir"].items():
        assert (ROOT / folder / "py.typed").exists(), name
        assert "py.typed" in PROJECT["package-data"][name], name
