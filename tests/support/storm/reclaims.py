"""How long claims stood after their holder was lost, as the ledger's history tells. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.ledger.history import Happened
from workers.faults.effects import RESTORED
from workers.faults.invariants import moves

CLAIMED: Final = ".claimed"
NOTICED: Final = ".claim_ended"  # somebody says that the holder is gone; the claim still stands
FOREVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Loss:
    """A process that was killed or frozen. at: ms since the epoch."""

    pid: int
    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Outage:
    """From when until when those who reclaim could not, or had to wait. what: was away."""

    began: int
    ended: int
    what: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of a process to a plan, a step or an undo, in one run. ended: FOREVER, while it stands."""

    run_id: str
    kind: str
    step_id: str
    pid: int
    granted: int
    ended: int


@dataclass(frozen=True, slots=True)
class Stood:
    """A claim that lost its holder."""

    claim: Claim
    loss: Loss

    def ms(self, outages: Sequence[Outage]) -> int:
        """How long it stood, without the time in which nobody could have ended it."""
        until = self.claim.ended
        return until - self.loss.at - covered(outages, self.loss.at, until)


def covered(outages: Sequence[Outage], since: int, until: int) -> int:
    """How much of a time lies in any outage."""
    total, reached = 0, since
    for one in sorted(outages, key=lambda one: one.began):
        began, ended = max(one.began, reached), min(one.ended, until)
        if ended > began:
            total += ended - began
            reached = ended
    return total


def share_of(what: str, outages: Sequence[Outage], since: int, until: int) -> float:
    """How much of a time lies in outages of this kind, and in no other."""
    others = [one for one in outages if one.what != what]
    return (covered(outages, since, until) - covered(others, since, until)) / max(until - since, 1)


def claims(run_id: str, events: Sequence[Happened]) -> Iterator[Claim]:
    """Each claim of a run, with the next transition of what was claimed."""
    for number, event in enumerate(events):
        if event.event.endswith(CLAIMED):
            kind = event.event.removesuffix(CLAIMED)
            step_id = event.fields.get("step_id", "")
            pid = int(event.fields["worker_id"].split(":")[1])
            yield Claim(run_id, kind, step_id, pid, event.at, _end(events[number + 1 :], kind, step_id))


def _end(later: Sequence[Happened], kind: str, step_id: str) -> int:
    return next((event.at for event in later if _ends(event, kind, step_id)), FOREVER)


def _ends(event: Happened, kind: str, step_id: str) -> bool:
    """Whether it is a transition of the same plan or step; a run that is built again ends all claims."""
    if event.event == kind + NOTICED:
        return False
    mine = event.event.startswith(f"{kind}.") and event.fields.get("step_id", "") == step_id
    moved = step_id in {move.step_id for move in moves(event)} if step_id else event.event.startswith("run.")
    return mine or moved or event.event == RESTORED


def stood(losses: Sequence[Loss], found: Mapping[int, Collection[Claim]]) -> Iterator[Stood]:
    """The claims that these processes held when they were lost. found: claims by the process that held them."""
    for loss in losses:
        for claim in found.get(loss.pid, ()):
            if claim.granted <= loss.at < claim.ended:
                yield Stood(claim, loss)
