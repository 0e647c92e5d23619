"""Lets workspaces go when their run has ended and its time is over, and keeps what policy keeps of them.

    running  ->  ended: policy's files are copied out  ->  workspace_keep_s later: noted in the ledger, renamed, removed

Of a run that was undone they go at once: what stays in the workspace is undone by its end, and nobody starts that run
over. Where something of it could not be undone, a person may want to look at them.

Each host looks after its own disk, so this is done beside each worker for steps, and by several of them at once: what
one does, another finds done, or locked. It may be interrupted anywhere. Copies appear whole; the ledger hears of them
before anything goes; what was renamed belongs to nobody and is removed by whoever looks next; and once the ledger has
noted that the files go, the run can be started over only if they are written again.

Never touched is what belongs to a run without an end. Of a run that the ledger does not have, files go when no run can
still be using them: it would have passed its deadline.
"""

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from orchestrator.healing.forks import GATE
from orchestrator.home import WORKSPACES
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.ledger.files import Artifact, Standing
from orchestrator.settings import Settings
from orchestrator.telemetry import events, letting_go
from orchestrator.telemetry.logs import emit, identity
from schemas.ids import is_run_id
from schemas.policy import policy_of
from schemas.states import RunStatus
from workers.belonging import alone, run_of, used_at
from workers.keeping import ARTIFACTS, Wanted, keep, leave_out
from workers.removal import remove_tree
from workers.scratch import remove_dead

GOING: Final = ".going-"
PATIENCE_S: Final = 3.0  # for the ledger; who comes in meanwhile waits longer than that
_PAGE: Final = 200
_KEPT: Final = "kept"  # holds the generation whose files have been copied out; its lock is that of who copies
_DAY_S: Final = 86_400
_OVERTIME_MS: Final = 3_600_000  # that a workspace stays for its copies, where they cannot be made


class LettingGo:
    """One look at a time; nothing is remembered between two."""

    def __init__(self, given: Settings, ledger: Ledger) -> None:
        self._home = given.home.absolute()
        self._above = self._home / WORKSPACES
        self._ledger = ledger
        self._keep_s = given.workspace_keep_s + given.deadline_s  # of what belongs to no run that is known
        self._artifacts_s = given.ledger_runs_d * _DAY_S
        self._failed: list[Exception] = []

    def look(self) -> None:
        """See to every workspace, dead attempt and artifact of this home. LedgerError is raised, once it is told what
        failed before.
        """
        self._failed = []
        try:
            self._see_to_all()
        finally:
            self._tell_failed()

    def _see_to_all(self) -> None:
        remove_dead(self._home)
        for folder in self._folders(self._above):
            if folder.name.startswith(GOING):
                self._remove(folder)
        for page in _pages(folder for folder in self._folders(self._above) if not folder.name.startswith(GOING)):
            self._see_to(page)
        for page in _pages(self._folders(self._home / ARTIFACTS)):
            self._forget_artifacts(page)

    def _tell_failed(self) -> None:
        if self._failed:
            first = self._failed[0]
            _tell(letting_go.WorkspacesNotDone(len(self._failed), events.kind(first), events.where(first)))

    def _folders(self, above: Path) -> Iterator[Path]:
        with suppress(FileNotFoundError), os.scandir(above) as found:
            yield from [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]

    def _see_to(self, folders: Sequence[Path]) -> None:
        of = {folder: run_of(folder) for folder in folders}
        known = self._standing([run_id for run_id in of.values() if run_id is not None])
        for folder, run_id in of.items():
            with self._apart(run_id):
                if run_id is None or run_id not in known:
                    self._see_to_unknown(folder, named=run_id is not None)
                elif known[run_id].ended_at is not None:
                    self._see_to_ended(folder, known[run_id])

    def _standing(self, run_ids: Sequence[str]) -> dict[str, Standing]:
        with GATE.inside():
            return self._ledger.files.standing(run_ids)

    @contextmanager
    def _apart(self, run_id: str | None) -> Iterator[None]:
        """What is met with in one folder is no trouble of the others."""
        with identity(run_id=run_id):
            try:
                yield
            except FileNotFoundError:  # somebody else lets it go
                pass
            except (OSError, ValueError) as error:  # ValueError: a policy that another release wrote
                self._failed.append(error)

    # ---- a run that has ended

    def _see_to_ended(self, folder: Path, run: Standing) -> None:
        policy = policy_of(run.policy_text)
        keep_s = 0.0 if run.status == RunStatus.COMPENSATED else policy.workspace_keep_s
        before = self._ledger.now_ms() - int(keep_s * 1000)
        wanted = Wanted(policy.artifacts, policy.artifact_bytes, policy.protected_names)
        if wanted.patterns and wanted.max_bytes and not self._copy_out(folder, run, wanted, before):
            return
        if run.ended_at is not None and run.ended_at <= before:
            with alone(folder) as nobody_comes_in:
                moved = self._move_away(folder) if nobody_comes_in and self._let_go(run, before) else None
            if moved and self._remove(moved):
                _tell(letting_go.WorkspaceGone("ended"))

    def _let_go(self, run: Standing, before: int) -> bool:
        with GATE.inside():
            return self._ledger.files.let_go(run.run_id, run.generation, before)

    def _copy_out(self, folder: Path, run: Standing, wanted: Wanted, before: int) -> bool:
        """Whether the copies of this generation are there, and noted. False: somebody else makes them just now, or the
        run was started over meanwhile."""
        with _locked(folder / _KEPT) as kept:
            if kept is None:
                return False
            if os.pread(kept, 20, 0) == b"%020d" % run.generation:
                return True
            found = self._copies(folder / "tree", run, wanted, before)
            if found is None:
                return False
            with GATE.inside():
                self._ledger.files.keep(run.run_id, run.generation, found)
            with suppress(OSError):  # it only spares the next look the work, and a full disk has no room for it
                os.pwrite(kept, b"%020d" % run.generation, 0)
        copies = [one.bytes for one in found if one.left_out is None]
        _tell(letting_go.ArtifactsKept(len(copies), sum(copies), len(found) - len(copies)))
        return True

    def _copies(self, tree: Path, run: Standing, wanted: Wanted, before: int) -> list[Artifact] | None:
        """Where they cannot be made, this is an error first; in the end a full disk may not keep what fills it."""
        try:
            return keep(tree, self._home, run.run_id, run.generation, wanted, lambda: self._is_over(run))
        except OSError as error:
            if run.ended_at is None or run.ended_at > before - _OVERTIME_MS:
                raise
            self._failed.append(error)
            why = f"it could not be copied while the workspace was there: {os.strerror(error.errno or 0)}"
            return leave_out(tree, self._home, run.run_id, run.generation, wanted, why)

    def _is_over(self, run: Standing) -> bool:
        with GATE.inside():
            return self._ledger.files.is_over(run.run_id, run.generation)

    # ---- nobody's

    def _see_to_unknown(self, folder: Path, *, named: bool) -> None:
        if not self._is_idle(folder):
            return
        if named:
            with alone(folder) as nobody_comes_in:
                moved = self._move_away(folder) if nobody_comes_in and self._is_idle(folder) else None
        else:
            moved = self._move_away(folder)
        if moved and self._remove(moved):
            _tell(letting_go.WorkspaceGone("unknown"))

    def _is_idle(self, folder: Path) -> bool:
        return time.time() - used_at(folder) > self._keep_s

    def _forget_artifacts(self, folders: Sequence[Path]) -> None:
        """Of runs that the ledger has let go: those ended longer ago than it keeps any."""
        known = self._standing([folder.name for folder in folders if is_run_id(folder.name)])
        for folder in folders:
            if is_run_id(folder.name) and folder.name not in known:
                with self._apart(folder.name):
                    if time.time() - folder.stat().st_mtime > self._artifacts_s:
                        remove_tree(folder)

    # ---- away with it

    def _move_away(self, folder: Path) -> Path:
        """To a name under which nobody looks for it. In one step: nobody ever finds half of a workspace."""
        return folder.rename(self._above / f"{GOING}{secrets.token_hex(20)}")

    def _remove(self, folder: Path) -> bool:
        """Whether nothing stands in the way. What is left, because it is large or somebody still writes in it, is for
        the next look.
        """
        known = len(self._failed)
        with self._apart(None):
            remove_tree(folder)
        return len(self._failed) == known


def _pages(folders: Iterator[Path]) -> Iterator[list[Path]]:
    while page := list(islice(folders, _PAGE)):
        yield page


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """A file of ours, made if it is not there; None: somebody else has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield lock if _is_free(lock) else None
    finally:
        os.close(lock)


def _is_free(lock: int) -> bool:
    """Whether it was, and is ours now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tell(fact: events.Occurrence) -> None:
    with GATE.inside():
        emit(fact)


# ---- beside a worker


def begin(given: Settings) -> threading.Thread:
    """Look again and again, in a thread of this process, for as long as that lives."""
    looking = threading.Thread(target=_look_for_ever, args=(given,), name="workspaces", daemon=True)
    looking.start()
    return looking


def _look_for_ever(given: Settings) -> None:
    with GATE.inside():
        ledger = open_ledger(given.ledger, patience_s=PATIENCE_S)
    task = LettingGo(given, ledger)
    while True:
        try:
            with identity():
                task.look()
        except Exception as error:  # noqa: BLE001  # a look that fails, whatever by, is no reason to look no more
            _tell(letting_go.WorkspacesNotDone(1, events.kind(error), events.where(error)))
        time.sleep(given.workspace_sweep_s)
