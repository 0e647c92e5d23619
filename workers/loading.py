"""Importing the modules that declare actions and planners, once a process.

Which: what is built in; what installed distributions offer as entry points of the group `mandor.actions`; what
MANDOR_ACTIONS names.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from typing import Final

from orchestrator.errors import ConfigError, MandorError
from orchestrator.settings import Settings, env_name

GROUP: Final = "mandor.actions"
BUILT_IN: Final = "built in"
_BUILT_IN_MODULES: Final = "workers.actions"
_WANTS_MODEL: Final = "workers.actions.models"  # offered only where it can work
_PLANNER: Final = "workers.planners.llm.planner"
_loaded: set[str] = set()
_lock = RLock()


@dataclass(frozen=True, slots=True)
class Source:
    """A module that declares something. named_by: who wants it imported; mend: what to do if that fails."""

    module: str
    named_by: str
    mend: str


def load_actions(settings: Settings) -> None:
    """Import every source. ConfigError names the first module that fails, who named it, and its fault."""
    for source in sources(settings):
        load(source)


def load(source: Source) -> None:
    """Import one, unless this process has done so before."""
    with _lock:
        if source.module not in _loaded:
            _import(source)
            _loaded.add(source.module)


def sources(settings: Settings) -> list[Source]:
    """All of them, in the order in which they are imported."""
    built_in = [Source(name, BUILT_IN, "repair the installation") for name in _built_in(settings)]
    return [*built_in, *_installed(), *_named(settings)]


def _built_in(settings: Settings) -> Iterator[str]:
    package = importlib.import_module(_BUILT_IN_MODULES)
    names = sorted(f"{_BUILT_IN_MODULES}.{module.name}" for module in pkgutil.iter_modules(package.__path__))
    return (name for name in (*names, _PLANNER) if name != _WANTS_MODEL or settings.llm_provider)


def _installed() -> list[Source]:
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return [_offered(point) for point in points]


def _offered(point: EntryPoint) -> Source:
    owner = point.dist.name if point.dist else "an unknown distribution"
    mend = f'repair or uninstall {owner}; its entry point names a module: {point.name} = "package.module"'
    return Source(point.module, f"entry point {point.name} of {owner}", mend)


def _named(settings: Settings) -> list[Source]:
    mend = "name importable modules, separated by commas; the working directory is on the path"
    names = (name for part in settings.actions.split(",") if (name := part.strip()))
    return [Source(name, env_name("actions"), mend) for name in names]


def _import(source: Source) -> None:
    _see_working_directory()
    try:
        importlib.import_module(source.module)
    except MandorError:
        raise
    except (Exception, SystemExit) as fault:
        message = f"the module {source.module!r} could not be imported: {type(fault).__name__}: {fault}"
        raise ConfigError(message, path=source.named_by, hint=source.mend) from fault


def _see_working_directory() -> None:
    """A console script does not look there, `python -m` does; last, so that no file there hides an installed one."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
