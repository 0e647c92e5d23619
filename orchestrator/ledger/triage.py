"""Dead letters as a person deals with them: found, grouped, decided about. Every method is one transaction."""

from collections.abc import Callable
from typing import Final

from orchestrator.ledger import letters, writes
from orchestrator.ledger.effect_row import Transaction
from orchestrator.ledger.rows import LetterDecision, LetterFilter, LetterGroup, ListedLetter, Taken
from schemas.dead_letter import DeadLetterStatus

ANY_LETTER: Final = LetterFilter()
ENDS: Final = {"replay": DeadLetterStatus.REPLAYED, "drop": DeadLetterStatus.DROPPED}
DROPPED: Final = "dropped"


class Triage:
    """The letters of a ledger, and the decisions about them."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int]) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock

    def listed(self, limit: int, before: str | None = None, wanted: LetterFilter = ANY_LETTER) -> list[ListedLetter]:
        """Up to `limit` letters that are wanted, newest first, written before the letter `before`; without what they
        hold."""
        with self._read() as connection:
            return letters.listed(connection, limit, before, wanted)

    def one(self, letter_id: str, namespace: str | None = None) -> ListedLetter | None:
        """What a list tells of one letter; of one namespace."""
        with self._read() as connection:
            return letters.listed_one(connection, letter_id, namespace)

    def groups(
        self, limit: int, before: tuple[int, str] | None = None, wanted: LetterFilter = ANY_LETTER
    ) -> list[LetterGroup]:
        """Up to `limit` groups of letters that say the same, the one with the newest letter first. before: time of its
        newest letter and fingerprint of the last group that was read."""
        with self._read() as connection:
            return letters.groups(connection, limit, before, wanted)

    def replay(
        self, letter_id: str, namespace: str, by: str, reason: str | None, details_text: str
    ) -> LetterDecision | Taken:
        """Decide once that an open letter is replayed, and how. Whoever comes later, at once or after years, is told
        who was first. After a crash behind it the decision is pending, and a supervisor carries it out."""
        return self._decide(LetterDecision("", letter_id, namespace, "replay", details_text, by, reason, 0))

    def drop(self, letter_id: str, namespace: str, by: str, reason: str) -> LetterDecision | Taken:
        """Decide once that nothing is to be done about an open letter."""
        now = self._clock()
        return self._decide(LetterDecision("", letter_id, namespace, "drop", None, by, reason, now, DROPPED, now))

    def _decide(self, decision: LetterDecision) -> LetterDecision | Taken:
        values = {
            "letter_id": decision.letter_id,
            "namespace": decision.namespace,
            "kind": decision.kind,
            "details_text": decision.details_text,
            "made_by": writes.writable(decision.made_by),
            "reason": writes.writable(decision.reason),
            "created_at": decision.created_at or self._clock(),
            "outcome": decision.outcome,
            "done_at": decision.done_at,
        }
        with self._begin() as connection:
            return letters.decide(connection, values, ENDS[decision.kind])

    def pending(self, limit: int, namespace: str, after: LetterDecision | None = None) -> list[LetterDecision]:
        """Up to `limit` decisions of an installation that were not carried out yet, oldest first, behind `after`."""
        with self._read() as connection:
            return letters.pending(connection, limit, namespace, after)

    def decisions(self, letter_id: str) -> list[LetterDecision]:
        """What people have decided about a letter, oldest first."""
        with self._read() as connection:
            return letters.decisions(connection, letter_id)

    def done(self, decision: LetterDecision, outcome: str, *, reopen: bool = False) -> bool:
        """Note what came of a decision. reopen: it could not be carried out, and the letter is open again. False: that
        is noted already (it stays)."""
        with self._begin() as connection:
            return letters.done(connection, decision, outcome, self._clock(), reopen=reopen)
