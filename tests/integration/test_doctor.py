"""The doctor on real servers: each fault is found, with its mend, and hides no other."""

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from orchestrator import app as celery_app
from orchestrator import doctor
from orchestrator.cli.command import run
from orchestrator.deliveries import deliver
from orchestrator.doctor import Finding
from orchestrator.ledger import DeliveryState, Due, Outcome, upgrade_effects
from orchestrator.store.replies import DUTIES
from schemas.callback import delivery_id
from schemas.states import RunStatus
from tests.support.installation import Installation, installation
from tests.support.ledgers import run_named, url_of
from tests.support.receiver import SECRET
from tests.support.servers import Server, frozen
from workers.cli import mandor


@pytest.fixture
def ours(new_server: Callable[[], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """An installation on a server of its own, with passes that have just been, and nobody who asks workers."""
    with installation(new_server().url, tmp_path, namespace="doc", shards=2, store_timeout_s=1) as made:
        monkeypatch.setattr(celery_app, "app", made.app)
        monkeypatch.setattr(doctor, "ANSWER_S", 0.1)
        look_at_everything(made)
        yield made
        monkeypatch.undo()  # before the installation's own settings go: what a test set over them must not come back


def look_at_everything(ours: Installation) -> None:
    for shard in range(ours.store.shards):
        for duty in DUTIES:
            ours.store.runs.begin_pass(shard, duty, 0)


def found(ours: Installation) -> dict[str, Finding]:
    """The worst finding of each check."""
    ranks = ("ok", "warning", "wrong", "away")
    findings = sorted(doctor.examine(ours.settings), key=lambda one: ranks.index(one.level))
    return {finding.check: finding for finding in findings}


def level_of(ours: Installation, check: str) -> str:
    finding = found(ours)[check]
    assert (finding.level == "ok") == (finding.mend is None), finding
    return finding.level


def test_a_sound_installation(ours: Installation) -> None:
    findings = found(ours)
    well = {check: finding for check, finding in findings.items() if finding.level in ("wrong", "away")}
    assert well == {}
    assert set(findings) == {name for name, _ in (*doctor.HERE, *chain(*doctor.THERE))} - {"servers"}  # there is one
    assert findings["consumers"].level == "warning"  # there is no worker


def test_a_namespace_of_its_own_without_queues_of_its_own(ours: Installation) -> None:
    assert {one.level for one in doctor.examine(ours.settings, servers=False)} == {"ok"}
    shared = ours.settings.model_copy(update={"queue_prefix": "mandor."})
    found = [one for one in doctor.examine(shared, servers=False) if one.level != "ok"]
    assert [(one.check, one.level, one.mend) for one in found] == [
        ("configuration", "warning", "unset MANDOR_QUEUE_PREFIX everywhere, or give it another")
    ]


def test_a_server_that_evicts(ours: Installation) -> None:
    ours.app.backend.client.config_set("maxmemory-policy", "allkeys-lru")
    assert level_of(ours, "server") == "wrong"
    assert "noeviction" in str(found(ours)["server"].mend)


@pytest.mark.parametrize("field", ["broker_url", "result_url"])
def test_another_server_that_evicts(ours: Installation, new_server: Callable[[], Server], field: str) -> None:
    other = new_server()
    given = ours.settings.model_copy(update={field: other.url})
    levels = [one.level for one in doctor.examine(given) if one.check == "servers"]
    assert levels == ["ok"]
    other.client.config_set("maxmemory-policy", "allkeys-lru")
    (finding,) = [one for one in doctor.examine(given) if one.check == "servers"]
    assert (finding.level, f"MANDOR_{field.upper()}" in finding.text) == ("wrong", True)


def test_a_server_that_forgets_at_a_crash(ours: Installation) -> None:
    assert level_of(ours, "server") == "warning"
    ours.app.backend.client.config_set("appendonly", "yes")
    assert level_of(ours, "server") == "ok"


def test_a_server_that_is_nearly_full(ours: Installation) -> None:
    client = ours.app.backend.client
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.02))
    assert level_of(ours, "memory") == "wrong"


def test_a_clock_that_is_off(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    for skew, level in ((0.0, "ok"), (5.0, "warning"), (600.0, "wrong")):
        monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
        assert level_of(ours, "clock") == level


def test_a_server_that_nobody_verified(ours: Installation) -> None:
    ours.app.backend.client.set("{doc:1}:server", "another")
    assert level_of(ours, "shards") == "wrong"
    assert "mandor ledger verify" in str(found(ours)["shards"].mend)


def test_nobody_looks(ours: Installation) -> None:
    ours.app.backend.client.hdel("{doc:0}:pass", "leases")
    finding = found(ours)["supervisors"]
    assert (finding.level, "leases" in finding.text, "beat" in str(finding.mend)) == ("wrong", True, True)
    for shard in (0, 1):
        ours.app.backend.client.hset(f"{{doc:{shard}}}:pass", "leases", ours.store.now_ms() - 60_000)
    assert level_of(ours, "supervisors") == "wrong"


def test_another_visibility_timeout_runs(ours: Installation) -> None:
    ours.store.admin.agree("visibility_timeout", "60 s", 60_000)
    assert level_of(ours, "server") == "wrong"
    assert ours.store.admin.agreed("visibility_timeout") == "60 s"


def test_a_decision_that_nobody_carries_out(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = run_named("late", namespace=ours.settings.namespace)
    ours.ledger.accept(accepted)
    ours.ledger.decide(accepted.run_id, 1, "cancel", "ann", None)
    assert level_of(ours, "decisions") == "ok"
    monkeypatch.setattr(doctor, "OLD_DECISION_S", -1)
    assert level_of(ours, "decisions") == "wrong"


def with_a_secret(ours: Installation) -> Installation:
    signing = ours.settings.model_copy(update={"webhook_secrets": SecretStr(SECRET)})
    return Installation(ours.app, ours.store, ours.ledger, signing)


def test_callbacks_that_nobody_signs_or_posts(ours: Installation) -> None:
    signing = with_a_secret(ours)
    assert {found(one)["callbacks"].level for one in (ours, signing)} == {"ok"}
    run = run_named("told", namespace=ours.settings.namespace, callback="https://example.com/")
    ours.ledger.accept(run)
    late_ms = round(doctor.LATE_CALLBACK_S * 1000) + 1000
    ours.ledger.end_run(run.run_id, 1, RunStatus.SUCCEEDED, None, 9, ours.ledger.now_ms() - late_ms)
    unsigned = found(ours)["callbacks"]
    assert (unsigned.level, unsigned.mend) == ("wrong", deliver.HINT)
    assert unsigned.text.startswith("1 callback waits, and no secret is set")
    assert level_of(signing, "callbacks") == "warning"
    claim = ours.ledger.deliveries.claim(Due(delivery_id(run.run_id, 1), 0), 1000)
    assert claim is not None
    soon = Outcome(DeliveryState.PENDING, 500, "status", ours.ledger.now_ms() + 60_000)
    assert ours.ledger.deliveries.note(claim, soon)
    waits = found(signing)["callbacks"]
    assert (waits.level, waits.text) == ("ok", "1 callback waits")


def test_a_server_that_is_away_hides_nothing_else(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ours.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    findings = {finding.check: finding.level for finding in doctor.examine(gone)}
    assert (findings["server"], findings["broker"], findings["packages"]) == ("away", "ok", "ok")
    assert "clock" not in findings  # of the same server, which was waited for


def test_a_server_that_says_nothing_is_waited_for_once(ours: Installation, new_server: Callable[[], Server]) -> None:
    silent = new_server()
    given = ours.settings.model_copy(update={"redis_url": silent.url, "store_timeout_s": 0.5})
    with frozen(silent):
        findings = doctor.examine(given)
    assert [finding.check for finding in findings if finding.level == "away"] == ["server"]


# ---- the command


def doctor_says(code: int) -> Any:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(mandor, ["doctor", "--json"]) == code, out.getvalue()
    return json.loads(out.getvalue())


def test_the_command_answers_by_its_exit_code(ours: Installation) -> None:
    well = doctor_says(0)
    assert well["healthy"] is True
    assert {"check", "level", "text", "mend"} == set(well["findings"][0])
    ours.app.backend.client.set("{doc:1}:server", "another")
    ill = doctor_says(1)
    assert ill["healthy"] is False
    assert any(finding["check"] == "shards" for finding in ill["findings"])


def test_settings_that_contradict_each_other_are_a_finding(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_VISIBILITY_TIMEOUT_S", "30")
    (finding,) = doctor_says(1)["findings"]
    assert (finding["check"], "MANDOR_VISIBILITY_TIMEOUT_S" in finding["text"]) == ("settings", True)


def test_a_service_that_is_away_is_exit_3(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://127.0.0.1:1/0")
    levels = {finding["check"]: finding["level"] for finding in doctor_says(3)["findings"]}
    assert levels["services"] == "away"
    assert levels["ledger"] == "ok"


def test_a_service_that_is_away_hides_no_other_fault(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("MANDOR_LEDGER_URL", "sqlite:////nowhere/at/all/ledger.db")
    found = {finding["check"]: finding for finding in doctor_says(3)["findings"]}
    assert found["ledger"]["level"] != "ok"
    assert found["ledger"]["mend"]


def test_an_address_that_names_nobody_is_a_wrong_setting(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDOR_REDIS_URL", "nonsense")
    found = {finding["check"]: finding for finding in doctor_says(1)["findings"]}
    assert found["services"]["level"] == "wrong"
    assert "MANDOR_REDIS_URL" in found["services"]["text"]


def test_a_database_for_effects_is_looked_at(
    ours: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = url_of(tmp_path / "shop.db")
    monkeypatch.setenv("MANDOR_EFFECTS_URLS", url)
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://127.0.0.1:1/0")

    def effects() -> Any:
        return {finding["check"]: finding for finding in doctor_says(3)["findings"]}["effects"]

    assert effects()["level"] != "ok"
    (tmp_path / "shop.db").touch()
    assert "mandor ledger upgrade --effects" in effects()["mend"]
    upgrade_effects(url)
    assert effects()["level"] == "ok"
