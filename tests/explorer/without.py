"""A plugin of pytest: takes each guard line away that tests of these files are to miss, and has them run, not once each
but until one fails. That one must pass with the guard. All in one process, on one server.
"""

from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol

from tests.explorer.guards import Guard, guards
from tests.explorer.missed import Elsewhere, known


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Answers what a run of tests does: as many have failed as guards are not missed."""
    files = {item.path.relative_to(item.config.rootpath).as_posix() for item in session.items}
    for guard, place in elsewhere(files):
        if not is_missed(guard, place, session):
            print(f"NOT MISSED {guard}")  # noqa: T201  (what the caller shows)
            session.testsfailed += 1
    return True


def elsewhere(files: set[str]) -> Iterator[tuple[Guard, Elsewhere]]:
    for guard in guards():
        place = known(guard)
        if isinstance(place, Elsewhere) and place.file in files:
            yield guard, place


def is_missed(guard: Guard, place: Elsewhere, session: pytest.Session) -> bool:
    named = [item for item in session.items if named_by(place, guard, item)]
    with guard.away():
        first = next((item for item in named if fails(item, session)), None)
    return first is not None and not fails(first, session)


def named_by(place: Elsewhere, guard: Guard, item: pytest.Item) -> bool:
    return item.nodeid.startswith(f"{place.file}::") and (place.word or guard.script) in item.name


def fails(item: pytest.Item, session: pytest.Session) -> bool:
    """The session is next, so to say, so that what all tests share stays."""
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=session))  # type: ignore[arg-type]
