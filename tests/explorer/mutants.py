"""The system with one guard taken away: a line of a script, or of the code around it. The explorer must see each.

`rule` names the sentence of the protocol that is switched off, where it is one of those.
"""

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from types import ModuleType
from typing import Any

import pytest

from orchestrator import ledger, progress
from orchestrator.ledger import effects as rows
from orchestrator.ledger import writes
from orchestrator.ledger.effects import EffectRows
from orchestrator.store import scripts
from orchestrator.store.scripts import LIBS, Script
from orchestrator.supervisors import reclaim_stale_leases
from schemas import ids
from tests.explorer.moves import Bounds
from tests.explorer.scenarios import Scenario
from workers import effects, execution, probing, undo
from workers.effects import AttemptEffect

ONE_FAULT = Bounds(1, 0)
TWICE = Bounds(1, 1)
RAISING = Bounds(1, 0, 1)
CANCELLED = Bounds(1, 0, 0, 1)
RETRIED = Bounds(1, 0, 0, 1, 0, 1)


@dataclass(frozen=True)
class Mutant:
    """where: a script, a library of scripts, or a function (of a class or module). by_model: nothing wrong comes of it
    within the bounds; only the model knows better.
    """

    name: str
    where: str | tuple[Any, str]
    old: str
    new: str
    scenario: Scenario
    rule: str = ""
    by_model: bool = False

    @contextmanager
    def alive(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(self.where, str):
                mutated = _scripts(self.where, self.old, self.new)
                patch.setattr(scripts, "load", lambda: mutated)
            else:
                self._patch_function(patch, *self.where)
            yield

    def _patch_function(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        function = getattr(owner, name)
        text = _replaced(textwrap.dedent(inspect.getsource(function)), self.old, self.new)
        found: dict[str, Any] = {}
        exec(compile(text, name, "exec"), function.__globals__, found)
        patch.setattr(owner, name, found[name])
        for module in _users(function):
            patch.setattr(module, name, found[name])


def _users(function: Any) -> list[ModuleType]:
    """Modules that have imported it by its name."""
    name = function.__name__
    users = (ledger, effects, reclaim_stale_leases, execution, undo, probing)
    return [module for module in users if getattr(module, name, None) is function]


def _scripts(where: str, old: str, new: str) -> Mapping[str, Script]:
    folder = files("orchestrator.store") / "lua"
    texts = {entry.name[:-4]: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")}
    libs = {name: (folder / "lib" / f"{name}.lua").read_text() for name in LIBS}
    there = libs if where in libs else texts
    there[where] = _replaced(there[where], old, new)
    return {name: scripts.parse(name, text, libs) for name, text in texts.items()}


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{text.count(old)} times there: {old}"
    return text.replace(old, new)


def one(effect: str, bounds: Bounds = ONE_FAULT, attempts: int = 1, **more: Any) -> Scenario:
    return Scenario((effect,), bounds, attempts, **more)


SCRIPTS = (
    Mutant(
        "claims are taken over while their holders live",
        "claim_step",
        "if not rec.dead then return { 'busy' } end",
        "",
        one("once", TWICE),
    ),
    Mutant(
        "a dead claim is taken over though its row is not closed",
        "claim_step",
        "if rec.effect ~= 'pure' or",
        "if rec.effect == 'keyed' or rec.effect == 'once' or",
        one("idempotent", RAISING, 2),
        "close_first",
        by_model=True,
    ),
    Mutant(
        "steps start in a run that is ending",
        "claim_step",
        "if run.status ~= 'running' then return { 'stop', run.status } end",
        "",
        one("pure", CANCELLED),
        by_model=True,
    ),
    Mutant(
        "attempts are not counted",
        "claim_step",
        "rec.attempt + 1, num('fence')",
        "rec.attempt, num('fence')",
        one("keyed"),
        by_model=True,
    ),
    Mutant("fences do not grow", "claim_step", "count('fence', 1)\n", "", one("keyed", attempts=2)),
    Mutant("a claim has no lease", "claim_step", "due('leases', rec.lease_end, rec.id)", "", one("pure")),
    Mutant(
        "who held a claim once may commit",
        "steps",
        "rec.status == 'running' and rec.holder == tonumber(A.fence) and rec.claim == A.claim_id",
        "rec.status == 'running'",
        one("pure", attempts=2),
    ),
    Mutant(
        "what an attempt may have done is forgotten",
        "steps",
        "rec.touched or fact == 'maybe' or nil",
        "fact == 'maybe' or nil",
        one("idempotent", RAISING, 2),
        "touched",
    ),
    Mutant(
        "what is once is tried again in doubt",
        "steps",
        "rec.attempt < rec.max_attempts and not unsafe",
        "rec.attempt < rec.max_attempts",
        one("once", attempts=2),
    ),
    Mutant(
        "an attempt of an ending run is tried again",
        "steps",
        "if run.status == 'running' and may_retry and",
        "if may_retry and",
        one("keyed", CANCELLED, 2),
        "facts",
    ),
    Mutant(
        "what may have happened is skipped",
        "steps",
        "rec.touched and 'in_doubt' or 'skipped'",
        "'skipped'",
        one("keyed", CANCELLED, 2),
        "touched",
    ),
    Mutant(
        "what may have happened has failed",
        "steps",
        "  if rec.touched then\n    move(rec, 'in_doubt')",
        "  if false then\n    move(rec, 'in_doubt')",
        one("keyed"),
    ),
    Mutant(
        "cancel ends running claims",
        "steps",
        "dispatched = true, backoff = true }",
        "dispatched = true, backoff = true, running = true }",
        one("keyed", CANCELLED),
        "cancel_keeps",
    ),
    Mutant(
        "a failing run does not wait for those who run",
        "steps",
        "run.status == 'failing' and num('n_running') == 0",
        "run.status == 'failing'",
        one("keyed", CANCELLED),
        "lapsed_runs",
    ),
    Mutant(
        "cancel stops what has succeeded",
        "steps",
        "if run.status == 'running' and settled() then",
        "if false then",
        one("keyed", CANCELLED),
        "late_test",
    ),
    Mutant("nobody looks whether the run is over", "steps", "due(settle_duty(), NOW + 1000)", "", one("pure")),
    Mutant(
        "a cancel of another generation is carried out",
        "cancel",
        "if said then return said end\n"
        "if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end",
        "",
        one("keyed", RETRIED, on_failure="stop"),
        "generation",
    ),
    Mutant(
        "retry forgets what may have happened",
        "retry",
        "rec.attempt, rec.holder, rec.dead, rec.claim, rec.reply = 0, 0, nil, nil, nil",
        "rec.attempt, rec.holder, rec.dead, rec.touched = 0, 0, nil, nil",
        one("keyed", Bounds(0, 0, 1, 1, 0, 1), on_failure="stop"),
        "keep_touched",
    ),
    Mutant(
        "nothing is undone",
        "settle",
        "and any_owed() then",
        "and false then",
        Scenario(("keyed", "fails"), Bounds(0, 0), 1),
    ),
    Mutant(
        "a live undo's claim is closed",
        "claim_undo",
        "if not undo.dead then return { 'busy' } end",
        "",
        Scenario(("once", "fails"), TWICE, 1),
        by_model=True,
    ),
    Mutant(
        "undos of another claim are accepted",
        "undo",
        "undo.state == 'running' and undo.holder == tonumber(A.fence)\n    and undo.claim == A.claim_id",
        "undo.state == 'running'",
        Scenario(("transactional", "fails"), RAISING, 1),
        by_model=True,
    ),
    Mutant(
        "an undo of what is once is tried again in doubt",
        "undo",
        "rec.undo.attempt < math.max(2, rec.max_attempts) and not unsafe",
        "rec.undo.attempt < math.max(2, rec.max_attempts)",
        Scenario(("once", "fails"), ONE_FAULT, 1),
    ),
    Mutant(
        "what was undone is still owed", "undo", "count('owed', -1)", "", Scenario(("keyed", "fails"), Bounds(0, 0), 1)
    ),
    Mutant(
        "steps are undone before those that needed them",
        "undo",
        "if rec.undo_wait == 0 then last[#last + 1] = rec end",
        "last[#last + 1] = rec",
        Scenario(("keyed", "keyed", "fails"), Bounds(0, 0), 1),
    ),
    Mutant(
        "any child's death ends a claim",
        "end_claim",
        "or rec.worker ~= A.worker then return { 'other' } end\nif rec.dead",
        "then return { 'other' } end\nif rec.dead",
        one("pure", attempts=2),
        by_model=True,
    ),
    Mutant(
        "a claim is ended by whoever ended another",
        "expire_lease",
        "if rec.status ~= 'running' or rec.holder ~= tonumber(A.fence) then",
        "if rec.status ~= 'running' then",
        one("keyed", RAISING, 3),
        by_model=True,
    ),
    Mutant(
        "who comes late makes an undo's lease forgotten",
        "expire_lease",
        "if rec.status ~= 'running' and rec.status ~= 'compensating' then",
        "if rec.status ~= 'running' then",
        one("keyed", RAISING),
    ),
    Mutant(
        "a back-off is never over", "fail_step", "due('retries', at, again.id)", "", one("keyed", Bounds(0, 0, 1), 2)
    ),
)

CODE = (
    Mutant(
        "a failure is told before its row is closed",
        (execution, "_end"),
        "_known(attempt, attempt.effect.close(void=failures.had_no_effect(error)))",
        "Closing(Fact.NONE)",
        one("keyed", Bounds(0, 0, 1)),
        "close_before_fail",
    ),
    Mutant(
        "only the last failure closes its row",
        (execution, "_end"),
        "    closing = _known(",
        "    closing = Closing(Fact.NONE) if attempt.granted.attempt < 2 else _known(",
        one("keyed", Bounds(0, 0, 1, 1), 2),
        "every_end",
    ),
    Mutant(
        "an idempotent effect that is not known did not happen",
        (rows, "fact"),
        "if row_state is EffectState.NONE and effect_class is EffectClass.IDEMPOTENT and not no_effect:",
        "if False:",
        one("idempotent", CANCELLED),
        "idem_maybe",
    ),
    Mutant(
        "the row of who vouches for nothing stays open",
        (EffectRows, "_close"),
        "self._write(connection, effect, state=state, since=since, closed_to=max(row.closed_to, fence))",
        "self._write(connection, effect, closed_to=max(row.closed_to, fence))",
        one("once", Bounds(0, 0, 1), 2),
        "void",
    ),
    Mutant(
        "nobody closes the row of an undo",
        (reclaim_stale_leases, "reclaim_undo"),
        "close_undo(ledger, ref, step, undo.fence) if undo.holder else Fact.NONE",
        "Fact.NONE",
        Scenario(("once", "fails"), ONE_FAULT, 1),
        "undo_guard",
    ),
    Mutant(
        "the row of a lost attempt is not closed",
        (reclaim_stale_leases, "reclaim_step"),
        'close(ledger, ref, step) if step else (Fact.NONE, "")',
        '(Fact.NONE, "")',
        one("keyed"),
    ),
    Mutant(
        "an absent effect of one that may live is believed",
        (probing, "ask"),
        "if answer.text is None and not dead:",
        "if False:",
        one("keyed", probed=True),
        "probe3",
    ),
    Mutant(
        "an undo has the key of its step",
        (ids, "undo_key"),
        ":undo",
        "",
        Scenario(("keyed", "fails"), Bounds(0, 0), 1),
        "undo_key",
    ),
    Mutant(
        "an effect starts without leave",
        (AttemptEffect, "begin"),
        "if name.effect in _ROWED:",
        "if False:",
        one("once", attempts=2),
    ),
    Mutant(
        "an effect lands after its claim was closed",
        (rows, "refusal"),
        "if fence <= over(row) and not",
        "if False and not",
        one("keyed"),
    ),
    Mutant(
        "what comes late is owed by nobody",
        (EffectRows, "_refused"),
        'if effect.kind == "do":',
        "if False:",
        one("keyed"),
    ),
    Mutant(
        "what is written of one run is written of every run's step of that name",
        (EffectRows, "_write"),
        "effect.matches()",
        "self._table.c.step_id == effect.step_id",
        one("keyed"),
    ),
    Mutant(
        "who is slow to say so begins an undo that has ended",
        (writes, "start_undoing"),
        ", still_open(generation)",
        "",
        Scenario(("transactional", "fails"), Bounds(0, 0), 1, controls=2),
    ),
    Mutant(
        "the ledger is not told of the end",
        (progress, "_finish"),
        "if ledger.end_run(ref.run_id, end.generation, status, reason, end.version, end.ended_at, errors):",
        "if False:",
        one("pure", Bounds(0, 0)),
    ),
    Mutant(
        "letters that are owed are not written at the end",
        (progress, "write_owed_letters"),
        "if status is RunStatus.COMPENSATION_FAILED:",
        "if False:",
        Scenario(("transactional", "fails"), RAISING, 1),
    ),
)
