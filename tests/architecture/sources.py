"""The project's own files, as git knows them or would."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "orchestrator", "workers")


def modules() -> Iterator[Path]:
    """Every Python file that is shipped."""
    yield ROOT / "celeryconfig.py"
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def tracked_files() -> list[Path]:
    """Files under version control that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def text_of_tests(path: str) -> str:
    """A file of tests, by its path below tests; empty where there is none."""
    file = ROOT / "tests" / path
    return file.read_text(encoding="utf-8") if file.exists() else ""


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file with its number of lines, decorators left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def declared_dependencies() -> set[str]:
    """Names of the distributions that pyproject.toml says are needed at run time."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.split(r"[\[<>=;~! ]", text, maxsplit=1)[0].lower() for text in project["dependencies"]}
