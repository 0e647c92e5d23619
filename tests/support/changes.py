"""Every call by which the code changes the state store or the ledger, found in its source: none is to be forgotten."""

import ast
from collections.abc import Iterator
from pathlib import Path

import orchestrator.ledger
from orchestrator.store.scripts import load

BEGINS = ("writing", "_begin")  # how a method of the ledger opens a transaction that writes


def scripts() -> set[str]:
    """The store's, as a test that wraps them names them."""
    return {f"store {name}" for name in load()}


def transactions() -> set[str]:
    """The ledger's."""
    modules = Path(orchestrator.ledger.__file__).parent.glob("*.py")
    return {f"ledger {name}" for module in modules for name in _writers(ast.parse(module.read_text()))}


def _writers(inside: ast.AST, named: str = "") -> Iterator[str]:
    """Functions and methods, wherever they are."""
    for node in ast.iter_child_nodes(inside):
        inner = f"{named}{node.name}." if isinstance(node, ast.ClassDef | ast.FunctionDef) else named
        if isinstance(node, ast.withitem) and _begins(node.context_expr):
            yield named.rstrip(".")
        else:
            yield from _writers(node, inner)


def _begins(opened: ast.expr) -> bool:
    call = opened.func if isinstance(opened, ast.Call) else None
    return isinstance(call, ast.Attribute) and call.attr in BEGINS


# ---- whose they are

# by operators, between runs: none of these belongs to the life of one
OPERATORS = {
    "ledger Ledger.create_epoch",
    "ledger Ledger.upgrade",
    "ledger Ledger.prune",
    "ledger Elsewhere.upgrade",
    "ledger Elsewhere.forget",
    "ledger Ledger.claim_run",  # both: of runs that an older release accepted
    "ledger History.keep_admitted",
    *(f"ledger Triage.{name}" for name in ("_decide", "done")),  # a death at each: integration/test_triage
    *(f"ledger FilesOfRuns.{name}" for name in ("keep", "let_go")),  # of ended runs: unit/workers/test_letting_go
}
# about runs that have ended; a death at each: integration/test_callbacks
CALLBACKS = {f"ledger Deliveries.{name}" for name in ("claim", "give_up", "note", "send_again", "take")}
# by whoever brings the ledger what the store has to tell, and builds the store again from it
RECOVERY = {
    *(f"store {name}" for name in ("accept_run", "begin_restore", "drain_ledger", "drop_run", "forget_fresh")),
    *(f"store {name}" for name in ("mend_due", "open_shard", "restore_run", "snapshot")),
    "ledger History.take",
    *(f"ledger Losses.{name}" for name in ("ask_again", "claim", "close_rows", "done", "found", "keep", "release")),
    "ledger Losses.withdraw",
}
# of these, what only two at once come to: lua/test_repeats, integration/test_recovery, unit/ledger/test_losses
RACES = {"store forget_fresh", "ledger Losses.withdraw"}
