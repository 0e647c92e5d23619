"""One granted attempt to do a step, or to undo one: what it is, what it holds, and what its code is handed."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from orchestrator.errors import NotFound
from orchestrator.store.replies import Granted
from orchestrator.telemetry import logs, signals
from schemas.ids import idempotency_key
from schemas.messages import StepMessage
from schemas.policy import Policy, policy_of
from schemas.states import EffectClass
from workers.binding import bind
from workers.context import Context, StepIdentity
from workers.context import Services as ContextServices
from workers.effects import AttemptEffect, EffectName
from workers.failures import UnknownAction
from workers.lease import Lease, Renewal, Terms
from workers.registry import Action
from workers.results import result_text
from workers.scratch import Scratch
from workers.services import Services
from workers.workspace import Workspace


@dataclass(frozen=True)
class Attempt:
    """granted_at: time.monotonic() before the claim was sent. kind: which lease and which effect row are its own.
    leaving: what is taken away when the attempt has ended; whoever makes an attempt closes it.
    """

    kind: ClassVar[Literal["do", "undo"]] = "do"
    message: StepMessage
    granted: Granted
    claim_id: str
    granted_at: float
    services: Services
    leaving: ExitStack = field(default_factory=ExitStack, init=False, compare=False, repr=False)

    @cached_property
    def step(self) -> dict[str, Any]:
        """The step as the canonical plan holds it: action, params, id, needs."""
        step: dict[str, Any] = json.loads(self.granted.step_text)
        return step

    @property
    def action(self) -> str:
        return str(self.step["action"])

    @cached_property
    def policy(self) -> Policy:
        return policy_of(self.granted.policy_text)

    @cached_property
    def lease(self) -> Lease:
        """The claim, kept alive inside its `with` block."""
        granted = self.granted
        loop: signals.Loop = "step" if self.kind == "do" else "undo"
        terms = Terms(granted.fence, granted.lease_ms, granted.limit_ms, granted.stop_grace_ms, self.granted_at, loop)
        return Lease(terms, self._renew)

    @cached_property
    def effect(self) -> AttemptEffect:
        """The effect row, as this attempt may use it."""
        return AttemptEffect(self.services.ledger, self.effect_name, self.lease.patiently)

    @property
    def effect_name(self) -> EffectName:
        granted = self.granted
        step_id, effect = self.message.step_id, EffectClass(granted.effect)
        return EffectName(self.message.run_id, step_id, granted.fence, granted.token, effect, self.kind)

    @cached_property
    def identity(self) -> StepIdentity:
        message, granted = self.message, self.granted
        return StepIdentity(
            run_id=message.run_id,
            session_id=granted.session_id,
            step_id=message.step_id,
            attempt=granted.attempt,
            fencing_token=granted.fence,
            idempotency_key=idempotency_key(message.run_id, message.step_id, granted.attempt_group),
        )

    def find_action(self) -> Action[Any, Any]:
        """The code behind the step; UnknownAction where this worker has none."""
        try:
            return self.services.registry.find_action(self.action)
        except NotFound as missing:
            raise UnknownAction(f"no worker supports {self.action}", hint=missing.hint) from None

    def params(self) -> BaseModel:
        """The step's params with results in the place of references; StepInputInvalid where they do not fit."""
        granted = self.granted
        return bind(self.find_action().spec, self.step["params"], granted.inputs, index=granted.index)

    def context(self) -> Context:
        """What the step's code is handed."""
        return Context(self.identity, self.policy, self.context_services())

    def context_services(self) -> ContextServices:
        """What stands behind that."""
        return ContextServices(
            workspace=self._workspace,
            scratch=self._make_scratch,
            result=self.result_of,
            effect=self._land_within,
            check=self.lease.check,
            ledger=lambda: self.services.ledger,
            log=lambda: logs.logger(self.action),
        )

    def text_of(self, value: Any) -> str:
        """A result as it is stored, or PermanentError."""
        return result_text(value, self.find_action().spec.result_model, self.policy.result_bytes_for(self.action))

    def result_of(self, step_id: str) -> Any:
        """The parsed result of a step that this one waited for; KeyError for any other."""
        text = self.granted.inputs.get(step_id)
        if text is None and self._waited_for(step_id):
            text = self.lease.patiently(lambda: self.services.store.views.result(self.message.ref, step_id))
        if text is None:
            raise KeyError(f"step {self.message.step_id} does not need {step_id}, so its result may not be there")
        return json.loads(text)

    def _waited_for(self, wanted: str) -> bool:
        waiting, seen = list(self.step["needs"]), set[str]()
        while waiting:
            step_id = waiting.pop()
            if step_id == wanted:
                return True
            if step_id not in seen:
                seen.add(step_id)
                waiting += self._needs(step_id)
        return False

    def _needs(self, step_id: str) -> tuple[str, ...]:
        views, ref = self.services.store.views, self.message.ref
        return self.lease.patiently(lambda: views.needs(ref, step_id))

    def _land_within(self, connection: Any, value: Any) -> None:
        self.effect.land_within(connection, self.text_of(value))

    def _workspace(self) -> Workspace:
        return self.services.workspaces.open(self.message.run_id, self.granted.fence, policy=self.policy)

    def _make_scratch(self) -> Path:
        made = Scratch(self.services.settings.home)
        self.leaving.callback(made.close)
        return made.path

    def _renew(self) -> Renewal:
        guard, message = self.services.store.guard, self.message
        return guard.renew_lease(message.ref, message.step_id, self.granted.fence, self.claim_id, self.kind)
