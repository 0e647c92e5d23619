"""Which shards of the state store are not the ones the ledger remembers, and which runs it has lost. Reads only.

amnesia   nothing is there
behind    another server, and less is there than the ledger knows
moved     another server, and all is there
foreign   another epoch: two installations, or an old copy
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from orchestrator.errors import ConfigError
from orchestrator.isolation import apart, raise_what_concerns_all
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.ledger.engine import in_pages
from orchestrator.store import Store
from orchestrator.store.admin import ShardFacts
from orchestrator.store.stream import BEGINNING, position
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL, RunStatus

PAGE: Final = 200
FOREIGN: Final = "foreign"
UNMOVED: Final = frozenset({"pending", "waiting_approval", "ready", "dispatched", "backoff", "skipped"})


def judged(ledger: Ledger, store: Store, namespace: str) -> dict[int, str]:
    """Shards that are not ours as they are: moved, behind or amnesia. ConfigError: one is somebody else's."""
    found = suspicious(store)
    moved = [shard for shard, state in found.items() if state == "moved"]
    return found | dict.fromkeys(behind(ledger, store, namespace, moved), "behind")


def suspicious(store: Store) -> dict[int, str]:
    """Shards that do not say that they are ours: amnesia, or moved, which may be behind. ConfigError as above."""
    found = states(store)
    refuse_foreign(found)
    return found


def states(store: Store) -> dict[int, str]:
    """The same, and those that are foreign. One round trip."""
    facts = store.admin.shards().items()
    return {shard: state for shard, one in facts if (state := state_of(store.scripts.epoch, one))}


def state_of(epoch: str, facts: ShardFacts) -> str | None:
    """What is wrong with a shard by what it says of itself; None: it is whole."""
    word = word_of(epoch, facts)
    return None if word == "ours" else word


def word_of(epoch: str, facts: ShardFacts) -> str:
    """The same in a word: ours, moved, amnesia or foreign."""
    if facts.epoch is None:
        return "amnesia"
    if facts.epoch != epoch:
        return FOREIGN
    return "ours" if facts.server == facts.our_server else "moved"


def refuse_foreign(found: Mapping[int, str]) -> None:
    """ConfigError if a shard is somebody else's."""
    for shard in (shard for shard, state in found.items() if state == FOREIGN):
        raise ConfigError(
            f"shard {shard} belongs to another installation",
            path="MANDOR_NAMESPACE",
            hint="two installations share this server, or its data is an old copy: use another namespace or server",
        )


def behind(
    ledger: Ledger, store: Store, namespace: str, moved: list[int], keep: Callable[[], None] = lambda: None
) -> set[int]:
    """Of these shards, those that hold less than the ledger knows. keep: called now and then, for it may last."""
    if not moved:
        return set()
    cursors = ledger.history.cursors(namespace)
    found = {
        shard for shard in moved if position(store.stream.last_id(shard)) < position(cursors.get(shard, BEGINNING))
    }

    def judge(some: Sequence[LedgerRun]) -> list[LedgerRun]:
        return list(runs_behind(ledger, store, some))

    for page in open_runs(ledger, namespace):
        keep()
        here = [run for run in page if store.keys.shard_of(run.run_id) in set(moved) - found]
        found |= {store.keys.shard_of(run.run_id) for run in _judged_apart(ledger, here, judge)}
    return found | {shard for shard in set(moved) - found if _any_has_ended(ledger, store, shard, keep)}


def _any_has_ended(ledger: Ledger, store: Store, shard: int, keep: Callable[[], None]) -> bool:
    for page in in_pages(store.admin.live_runs(shard)):
        keep()
        if any(have_ended(ledger, store, page)):
            return True
    return False


def lost_of(ledger: Ledger, store: Store, runs: Sequence[LedgerRun]) -> list[LedgerRun]:
    """Of these runs, those that the store does not have, or has begun anew, or has in pieces. One that cannot be judged
    is told of, and left as it is."""
    return _judged_apart(ledger, runs, lambda some: _lost(ledger, store, some))


def _judged_apart(
    ledger: Ledger, runs: Sequence[LedgerRun], judge: Callable[[Sequence[LedgerRun]], list[LedgerRun]]
) -> list[LedgerRun]:
    """What is judged of all; where one of them cannot be, of each for itself."""
    try:
        return judge(runs)
    except Exception as error:  # noqa: BLE001  # whatever lies under the keys of one of them
        raise_what_concerns_all(ledger, error)
    found: list[LedgerRun] = []
    for run in runs:
        with apart(ledger, run.run_id, []):
            found += judge([run])
    return found


def _lost(ledger: Ledger, store: Store, runs: Sequence[LedgerRun]) -> list[LedgerRun]:
    behind = {run.run_id for run in runs_behind(ledger, store, runs)}
    return [run for run in runs if run.run_id in behind or store.views.run(RunRef(run.run_id, run.session)) is None]


def runs_behind(ledger: Ledger, store: Store, runs: Sequence[LedgerRun]) -> Iterator[LedgerRun]:
    """Runs of which the store has less than was heard before, or less than the effect rows say."""
    ids = [run.run_id for run in runs]
    standings, begun = ledger.history.standings(ids), ledger.losses.effects_beyond(ids)
    for run in runs:
        if _is_behind(store, run, standings, begun.get(run.run_id, set())):
            yield run


def _is_behind(store: Store, run: LedgerRun, standings: Mapping[str, tuple[int, int]], begun: set[str]) -> bool:
    ref = RunRef(run.run_id, run.session)
    state = store.views.run(ref)
    if state is None:
        return run.plan_hash is not None or run.run_id in standings
    known = max(standings.get(run.run_id, (0, 0)), (run.generation, 0))
    not_undoing = run.status == RunStatus.COMPENSATING and state.status == RunStatus.RUNNING
    older = (state.generation, state.version) < known
    return older or not_undoing or store.admin.is_in_pieces(ref) or _effects_unknown(store, ref, begun)


def _effects_unknown(store: Store, ref: RunRef, begun: set[str]) -> bool:
    """Whether an effect began of a step that the store believes untouched."""
    records = store.views.records(ref, sorted(begun)) if begun else []
    return len(records) < len(begun) or any(one.status in UNMOVED and not one.touched for one in records)


def have_ended(ledger: Ledger, store: Store, refs: Sequence[RunRef]) -> Iterator[RunRef]:
    """Of these runs, those that are under way here, and have ended in the ledger. What cannot be read is told."""
    for ref in refs:
        ended = False
        with apart(ledger, ref.run_id, []):
            ended = _has_ended(ledger, store, ref)
        if ended:
            yield ref


def _has_ended(ledger: Ledger, store: Store, ref: RunRef) -> bool:
    row, state = ledger.run(ref.run_id), store.views.run(ref)
    if row is None or row.ended_at is None or state is None:
        return False
    return state.status not in RUN_TERMINAL and state.generation <= row.generation


def open_runs(ledger: Ledger, namespace: str) -> Iterator[list[LedgerRun]]:
    """All runs without an end, in pages."""
    after: str | None = None
    while page := ledger.open_runs(after, PAGE, namespace):
        yield page
        after = page[-1].run_id
