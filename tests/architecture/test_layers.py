"""Who may import whom, and what."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import PACKAGES, ROOT, declared_dependencies, modules

INSIDE = ROOT / "workers" / "sandbox" / "inside"
CANVAS = {"chain", "chord", "chunks", "group", "maybe_signature", "signature", "starmap", "xmap"}
# the declared distribution that brings a module of another name
DISTRIBUTION = {
    "billiard": "celery",
    "prometheus_client": "prometheus-client",
    "pydantic_core": "pydantic",
    "pydantic_settings": "pydantic-settings",
}


def test_the_import_contracts_hold() -> None:
    # in a process of its own: it configures logging, and silences every logger that there is
    program = "from importlinter.cli import lint_imports_command as check; check(['--no-logo', '--no-cache'])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# modules that are imported only where an extra is installed, with the libraries that it brings
EXTRAS = {
    "orchestrator/ledger/silence.py": {"psycopg"},
    "workers/planners/llm/anthropic.py": {"anthropic"},
    "workers/planners/llm/openai.py": {"openai"},
}


def test_only_dispatch_builds_canvases() -> None:
    guilty = {
        path.relative_to(ROOT).as_posix()
        for path in modules()
        for module, names in imports(path)
        if module == "celery.canvas" or (module == "celery" and names & CANVAS)
    }
    assert guilty <= {"orchestrator/dispatch.py"}


def test_what_several_tests_use_is_no_test_itself() -> None:
    """It lies in tests/support. A whole module of tests may be imported, to tell its tests once more elsewhere."""
    guilty = [
        f"{path.relative_to(ROOT)} takes {sorted(names)} from {module}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for module, names in imports(path)
        if module.rpartition(".")[2].startswith("test_")
    ]
    assert guilty == []


def test_every_library_is_a_declared_dependency() -> None:
    declared = declared_dependencies()
    for path in modules():
        foreign = {module.partition(".")[0] for module, _ in imports(path)} - set(PACKAGES) - sys.stdlib_module_names
        wanted = {DISTRIBUTION.get(name, name) for name in foreign - {"celeryconfig"}}
        wanted -= EXTRAS.get(path.relative_to(ROOT).as_posix(), set())
        assert wanted <= declared, f"{path.relative_to(ROOT)} needs {sorted(wanted - declared)} in pyproject.toml"


def test_what_runs_inside_a_sandbox_needs_nothing_but_the_standard_library() -> None:
    for path in INSIDE.glob("*.py"):
        assert {module.partition(".")[0] for module, _ in imports(path)} <= sys.stdlib_module_names, path.name


def imports(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Each imported module of a file, with the names taken from it; the project imports absolutely throughout.

    But for what runs inside a sandbox: there is no such thing as our package there, and no library.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, set()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not (node.level and path.parent == INSIDE):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno} imports relatively"
            assert node.module is not None
            yield node.module, {alias.name for alias in node.names}


def test_nothing_that_every_process_imports_needs_an_extra() -> None:
    """The adapters' libraries are loaded when a model is asked, and only then."""
    program = "import sys, workers.cli, workers.tasks; print({'openai', 'anthropic', 'httpx2'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
