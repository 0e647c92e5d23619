"""For unit tests of your own actions: a context without servers.

    from workers.testing import context

    def test_charge(tmp_path):
        ctx = context(workspace=tmp_path)
        assert charge(Charge(card="4242", cents=990), ctx).charge_id

What it hands out is what an action would get; what stands behind it is a dict, a folder and a list. It shows nothing
about retries, leases and crashes: for those, run the action against a real system.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.errors import ConfigError
from orchestrator.ledger import Ledger
from orchestrator.telemetry import logs
from schemas.ids import idempotency_key
from schemas.policy import Policy
from workers.context import Context, Services, StepIdentity
from workers.outcomes import AttemptStopped
from workers.results import result_text
from workers.workspace import Workspace, Workspaces

T = TypeVar("T")
RUN_ID: Final = "00000000-0000-8000-8000-000000000000"


class RecordingContext(Context):
    """A context that remembers. effects: (connection, result) of each call of `effect`."""

    effects: list[tuple[Any, Any]]
    stop: AttemptStopped | None


def context(
    *,
    run_id: str = RUN_ID,
    session_id: str | None = None,
    step_id: str = "s0",
    attempt: int = 1,
    fencing_token: int = 1,
    policy: Policy | None = None,
    results: Mapping[str, Any] | None = None,
    workspace: Path | None = None,
    ledger: Ledger | None = None,
    in_doubt: bool = False,
    stop: AttemptStopped | None = None,
) -> RecordingContext:
    """A context for one call of an action.

    results: of the steps it needs, by id. workspace: a folder of the test's own. ledger: for actions that open its
    transactions. in_doubt: what a compensation is told of its step. stop: what `check` raises; it may be set later as
    well, as `ctx.stop`.
    """
    made: RecordingContext
    identity = StepIdentity(
        run_id, session_id, step_id, attempt, fencing_token, idempotency_key(run_id, step_id), in_doubt
    )

    def check() -> None:
        if made.stop is not None:
            raise made.stop

    def effect(connection: Any, result: Any) -> None:
        result_text(result, None, made.policy.result_bytes)
        made.effects.append((connection, result))

    services = Services(
        workspace=lambda: _workspace(workspace, run_id, fencing_token, made.policy),
        scratch=lambda: _scratch(workspace),
        result=lambda wanted: dict(results or {})[wanted],
        effect=effect,
        check=check,
        ledger=lambda: _given(ledger, "ledger"),
        log=lambda: logs.logger("test"),
    )
    made = RecordingContext(identity, policy or Policy(), services)
    made.effects, made.stop = [], stop
    return made


def _workspace(folder: Path | None, run_id: str, fence: int, policy: Policy) -> Workspace:
    return Workspaces(_given(folder, "workspace")).open(run_id, fence, policy=policy)


def _scratch(folder: Path | None) -> Path:
    """Not taken away: the test's own folder is."""
    made = _given(folder, "workspace") / "scratch"
    made.mkdir(exist_ok=True)
    return made


def _given(value: T | None, name: str) -> T:
    if value is None:
        raise ConfigError(f"this test's context has no {name}", path=name, hint=f"pass {name}=… to context()")
    return value
