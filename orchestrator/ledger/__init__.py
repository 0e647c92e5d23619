"""The transactional memory of an installation: accepted runs, plans, effects, decisions, ends, dead letters."""

from orchestrator.errors import EffectRefused, LedgerMissing, LedgerUnavailable
from orchestrator.ledger.answers import (
    AlreadyLanded,
    AlreadyOpen,
    Closed,
    Fresh,
    Landed,
    NotClosed,
    Opened,
    RowClosed,
)
from orchestrator.ledger.census import Census
from orchestrator.ledger.deliveries import Delivery, Due, Outcome
from orchestrator.ledger.effect_row import Kind
from orchestrator.ledger.effects import EffectRows, fact
from orchestrator.ledger.late import Late
from orchestrator.ledger.ledger import ANY_RUN, Ledger, open_ledger, upgrade_effects
from orchestrator.ledger.rows import (
    Accepted,
    AcceptedRun,
    AdmittedPlan,
    ConflictingSubmission,
    Decision,
    DecisionOver,
    Epoch,
    LedgerRun,
    LetterDecision,
    LetterFilter,
    LetterGroup,
    ListedLetter,
    ListedRun,
    PlannerAnswer,
    Pruned,
    Record,
    RecordChange,
    RunFilter,
    StoredPlan,
    Taken,
)
from orchestrator.ledger.tables import DeliveryState, EffectState
from orchestrator.ledger.triage import ANY_LETTER

__all__ = [
    "ANY_LETTER",
    "ANY_RUN",
    "Accepted",
    "AcceptedRun",
    "AdmittedPlan",
    "AlreadyLanded",
    "AlreadyOpen",
    "Census",
    "Closed",
    "ConflictingSubmission",
    "Decision",
    "DecisionOver",
    "Delivery",
    "DeliveryState",
    "Due",
    "EffectRefused",
    "EffectRows",
    "EffectState",
    "Epoch",
    "Fresh",
    "Kind",
    "Landed",
    "Late",
    "Ledger",
    "LedgerMissing",
    "LedgerRun",
    "LedgerUnavailable",
    "LetterDecision",
    "LetterFilter",
    "LetterGroup",
    "ListedLetter",
    "ListedRun",
    "NotClosed",
    "Opened",
    "Outcome",
    "PlannerAnswer",
    "Pruned",
    "Record",
    "RecordChange",
    "RowClosed",
    "RunFilter",
    "StoredPlan",
    "Taken",
    "fact",
    "open_ledger",
    "upgrade_effects",
]
