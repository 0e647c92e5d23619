"""The transactional memory of an installation: accepted runs, plans, effects, decisions, ends, dead letters."""

from orchestrator.errors import EffectRefused, LedgerMissing, LedgerUnavailable
from orchestrator.ledger.effects import (
    AlreadyLanded,
    AlreadyOpen,
    Closed,
    EffectRows,
    Fresh,
    Kind,
    Landed,
    NotClosed,
    Opened,
    RowClosed,
    fact,
)
from orchestrator.ledger.ledger import Ledger, open_ledger
from orchestrator.ledger.rows import (
    Accepted,
    AcceptedRun,
    ConflictingSubmission,
    Decision,
    DecisionOver,
    Epoch,
    LedgerRun,
    ListedRun,
    PlannerAnswer,
    Record,
    RecordChange,
    StoredPlan,
)
from orchestrator.ledger.tables import EffectState

__all__ = [
    "Accepted",
    "AcceptedRun",
    "AlreadyLanded",
    "AlreadyOpen",
    "Closed",
    "ConflictingSubmission",
    "Decision",
    "DecisionOver",
    "EffectRefused",
    "EffectRows",
    "EffectState",
    "Epoch",
    "Fresh",
    "Kind",
    "Landed",
    "Ledger",
    "LedgerMissing",
    "LedgerRun",
    "LedgerUnavailable",
    "ListedRun",
    "NotClosed",
    "Opened",
    "PlannerAnswer",
    "Record",
    "RecordChange",
    "RowClosed",
    "StoredPlan",
    "fact",
    "open_ledger",
]
