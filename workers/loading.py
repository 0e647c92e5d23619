"""Importing the modules that declare actions and planners, once a process."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import RLock

from orchestrator.errors import ConfigError, MandorError
from orchestrator.settings import Settings, env_name

_BUILT_IN = "workers.actions"
_WANTS_MODEL = "workers.actions.models"  # offered only where it can work
_PLANNER = "workers.planners.llm.planner"
_loaded: set[str] = set()
_lock = RLock()


def load_actions(settings: Settings) -> None:
    """Import what is built in and the modules of MANDOR_ACTIONS. ConfigError names the module and its fault."""
    with _lock:
        for name in (*_built_in(settings), _PLANNER, *user_modules(settings)):
            if name not in _loaded:
                _import(name)
                _loaded.add(name)


def user_modules(settings: Settings) -> list[str]:
    """The names in MANDOR_ACTIONS."""
    return [name for part in settings.actions.split(",") if (name := part.strip())]


def _built_in(settings: Settings) -> Iterator[str]:
    package = importlib.import_module(_BUILT_IN)
    names = sorted(f"{_BUILT_IN}.{module.name}" for module in pkgutil.iter_modules(package.__path__))
    return (name for name in names if name != _WANTS_MODEL or settings.llm_provider)


def _import(name: str) -> None:
    _see_working_directory()
    try:
        importlib.import_module(name)
    except MandorError:
        raise
    except Exception as fault:
        message = f"the module {name!r} could not be imported: {type(fault).__name__}: {fault}"
        hint = "name importable modules, separated by commas; the working directory is on the path"
        raise ConfigError(message, path=env_name("actions"), hint=hint) from fault


def _see_working_directory() -> None:
    """A console script does not look there, `python -m` does; last, so that no file there hides an installed one."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
