"""What is wrong with an installation, and how it is mended: every start-up check, and what only a running one shows.

Each examination stands alone: one that finds its service away is a finding, and those of other services go on.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from orchestrator import app as celery_app
from orchestrator import dispatch, names, policies, startup
from orchestrator.deliveries import deliver
from orchestrator.errors import (
    BrokerUnavailable,
    LedgerMissing,
    LedgerUnavailable,
    MandorError,
    StoreUnavailable,
)
from orchestrator.healing import passes
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.recovery import verdicts, verification
from orchestrator.releases import release
from orchestrator.settings import Settings, unknown_names
from orchestrator.store import Store, open_server, open_store

Level = Literal["ok", "warning", "wrong", "away"]
LIBRARIES: Final = ("mandor", "celery", "kombu", "redis", "sqlalchemy", "pydantic")
SKEW_S: Final = 1.0  # beyond it, times in logs and in the store tell different stories
OLD_DECISION_S: Final = 60.0
OLD_ENTRY_S: Final = 60.0
LATE_CALLBACK_S: Final = 600.0
FULL: Final = 0.9
ANSWER_S: Final = 2.0
TRY_S: Final = 2.0  # for each of the four tries of a call to the store: a person waits


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. level: away means that a service does not answer; mend: what to do."""

    check: str
    level: Level
    text: str
    mend: str | None = None


@dataclass(frozen=True)
class Patient:
    """The installation under examination, with services of its own."""

    settings: Settings
    ledger: Ledger
    app: Any

    @cached_property
    def store(self) -> Store:
        """A store for the ledger's epoch; raises what stands in the way."""
        epoch = self.ledger.epoch(self.settings.namespace)
        if epoch is None:
            message = f"the ledger knows no namespace {self.settings.namespace}"
            raise LedgerMissing(message, hint="run `mandor ledger upgrade`")
        patience_s = min(self.settings.store_timeout_s, TRY_S)
        return open_store(self.settings.model_copy(update={"store_timeout_s": patience_s}), epoch.epoch)


Examination = Callable[[Patient], Iterator[Finding]]
Looks = tuple[tuple[str, Examination], ...]


def examine(settings: Settings, *, servers: bool = True) -> list[Finding]:
    """Look at everything, or at what needs no broker and no store. Raises nothing that a service or a setting could
    cause. A service that does not answer is waited for once: what else would be asked of it is left out.
    """
    elsewhere = settings.effects_urls.split()
    opened = open_ledger(settings.ledger, patience_s=ANSWER_S, effects_urls=elsewhere)
    patient = Patient(settings, opened, celery_app.app)
    found = [finding for name, look in HERE for finding in examined(name, look, patient)]
    for looks in THERE if servers else ():
        found.extend(_until_away(looks, patient))
    return found


def _until_away(looks: Looks, patient: Patient) -> Iterator[Finding]:
    for name, look in looks:
        findings = examined(name, look, patient)
        yield from findings
        if any(finding.level == "away" for finding in findings):
            return


def examined(name: str, look: Examination, patient: Patient) -> list[Finding]:
    """What one examination finds; an error in it is a finding."""
    found: list[Finding] = []
    try:
        found.extend(look(patient))
    except MandorError as error:
        found.append(Finding(name, _level(error), str(_without_hint(error)), error.hint))
    return found


def _level(error: MandorError) -> Level:
    return "away" if isinstance(error, StoreUnavailable | LedgerUnavailable | BrokerUnavailable) else "wrong"


def _without_hint(error: MandorError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message


# ---- this process: packages, settings, Celery's configuration, the policy


def packages(_: Patient) -> Iterator[Finding]:
    """Our packages are ours; which releases of the libraries this process has."""
    startup.check_packages()
    yield Finding("packages", "ok", ", ".join(f"{name} {release(name)}" for name in LIBRARIES))


def configuration(patient: Patient) -> Iterator[Finding]:
    """What a worker is refused for at its start, seen from here."""
    startup.check_environment(patient.settings)
    startup.check_configuration(patient.settings, patient.app.conf)
    yield Finding("configuration", "ok", "settings and Celery's configuration fit together")
    for name in unknown_names():
        yield Finding("configuration", "warning", f"no setting is called {name}", "correct or unset it")
    given, usual = patient.settings, Settings.model_fields["namespace"].default
    if given.namespace != usual and given.prefix == f"{usual}.":
        text = f"namespace {given.namespace} has the queues of {usual}: on a broker with that, each takes its messages"
        yield Finding("configuration", "warning", text, "unset MANDOR_QUEUE_PREFIX everywhere, or give it another")


def policy(patient: Patient) -> Iterator[Finding]:
    """The installation's policy can be read, and lets no attempt outlast the broker's patience."""
    given, found = patient.settings, policies.installation_policy(patient.settings)
    startup.check_time_limit(given, "an action", found.limits.timeout_s, found.stop_grace_s)
    for action, limits in found.per_action.items():
        startup.check_time_limit(given, action, limits.timeout_s or 0, found.stop_grace_s)
    yield Finding("policy", "ok", f"at most {found.max_steps} steps and {found.deadline_s:g} s for a run")


def home(patient: Patient) -> Iterator[Finding]:
    """Workspaces and the ledger file can be written."""
    folder = patient.settings.home.absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        mend = "make it writable for the workers' user, or set MANDOR_HOME"
        yield Finding("home", "wrong", f"{there} cannot be written to", mend)
    else:
        yield Finding("home", "ok", str(folder))


# ---- the ledger


def ledger(patient: Patient) -> Iterator[Finding]:
    """The database answers, and is the one this release needs."""
    patient.ledger.check_schema()
    named = patient.store.scripts.epoch
    yield Finding("ledger", "ok", f"the schema is this release's; the namespace's epoch is {named[:8]}")


def effects(patient: Patient) -> Iterator[Finding]:
    """The databases in which transactional actions have effects of their own."""
    count = patient.ledger.check_elsewhere()
    yield Finding("effects", "ok", f"databases of your own that are ready for effects: {count or 'none is named'}")


def decisions(patient: Patient) -> Iterator[Finding]:
    """A decision that waits for long was made, and its run has not heard of it."""
    old = patient.ledger.now_ms() - OLD_DECISION_S * 1000
    late = [
        one
        for one in patient.ledger.pending_decisions(100, namespace=patient.settings.namespace)
        if one.created_at < old
    ]
    if late:
        text = f"{len(late)} decisions were not carried out, the oldest about run {late[0].run_id}"
        yield Finding("decisions", "wrong", text, "is beat running, and a worker on the supervise queue?")
    else:
        yield Finding("decisions", "ok", "none waits")


def callbacks(patient: Patient) -> Iterator[Finding]:
    """Ends that are still to be told can be signed, and somebody posts them."""
    census, now = patient.ledger.census(patient.settings.namespace), patient.ledger.now_ms()
    late_s = (now - (census.oldest_callback or now)) / 1000
    waiting = "1 callback waits" if census.callbacks == 1 else f"{census.callbacks} callbacks wait"
    if not patient.settings.webhook_secrets.get_secret_value():
        text = "no secret is set: a submission that names a callback is refused"
        level: Level = "wrong" if census.callbacks else "ok"
        yield Finding("callbacks", level, f"{waiting}, and {text}" if census.callbacks else text, deliver.HINT)
    elif late_s > LATE_CALLBACK_S:
        text = f"{waiting}, the first has been due for {late_s:.0f} s"
        yield Finding("callbacks", "warning", text, "is beat running, and a worker on the deliver queue?")
    else:
        yield Finding("callbacks", "ok", waiting if census.callbacks else "none waits")


# ---- the state store


def server(patient: Patient) -> Iterator[Finding]:
    """The server keeps what it is given, and would after a crash."""
    store = patient.store
    startup.check_server(_Listening(store), patient.settings)
    about = store.admin.info("server")
    name = about.get("server_name", "redis")
    number = about.get("valkey_version") or about.get("redis_version", "?")
    yield Finding("server", "ok", f"{name} {number.strip()}, keeps what it is given")
    if store.admin.config("appendonly") == "no":
        mend = "set appendonly yes on the server: after a crash of it, every run since its last snapshot is lost"
        yield Finding("server", "warning", "it has no append-only file", mend)


class _Listening:
    """The server's admin for the start-up checks, without a say of one's own: a doctor is no process of the fleet."""

    def __init__(self, store: Store) -> None:
        self._admin = store.admin

    def config(self, name: str) -> str | None:
        return self._admin.config(name)

    def info(self, section: str) -> dict[str, str]:
        return self._admin.info(section)

    def agree(self, name: str, value: str, ttl_ms: int) -> str:
        del ttl_ms
        return self._admin.agreed(name) or value


def servers(patient: Patient) -> Iterator[Finding]:
    """So do servers for queues or results alone."""
    for name, url in startup.other_servers(patient.settings):
        startup.check_keeper(open_server(patient.settings, url), name)
        yield Finding("servers", "ok", f"the one of {name} keeps what it is given")


def memory(patient: Patient) -> Iterator[Finding]:
    """There is room for more."""
    about = patient.store.admin.info("memory")
    used, most = int(about.get("used_memory", 0)), int(about.get("maxmemory", 0) or 0)
    text = f"{used // 2**20} MiB used" + (f" of {most // 2**20}" if most else ", without a limit")
    if most and used > FULL * most:
        yield Finding("memory", "wrong", text, "a full server takes no new run: raise maxmemory")
    else:
        yield Finding("memory", "ok", text)


def clock(patient: Patient) -> Iterator[Finding]:
    """The store's clock decides; this host's stamps the ledger and the logs."""
    store = patient.store
    before = time.time()
    there = store.now_ms() / 1000
    skew = there - (before + time.time()) / 2
    if abs(skew) > SKEW_S:
        mend = "keep both clocks in step (NTP)"
        level: Level = "wrong" if abs(skew) > patient.settings.lease_s else "warning"
        yield Finding("clock", level, f"the server's clock is {skew:+.1f} s from this host's", mend)
    else:
        yield Finding("clock", "ok", f"the server's clock and this host's are {abs(skew):.1f} s apart")


def shards(patient: Patient) -> Iterator[Finding]:
    """The store is the one that the ledger remembers."""
    store = patient.store
    states = verdicts.judged(patient.ledger, store, patient.settings.namespace)
    lost = {shard: state for shard, state in states.items() if state != "moved"}
    if lost:
        said = verification.forgotten(lost)
        yield Finding("shards", "wrong", said.message, said.hint)
    elif states:
        text = f"{len(states)} of {store.shards} shards were last verified for another server, or before a restart"
        yield Finding("shards", "wrong", text, "run `mandor ledger verify`, or let the supervisors do it")
    else:
        yield Finding("shards", "ok", f"all {store.shards} belong to this server and this ledger")


def supervisors(patient: Patient) -> Iterator[Finding]:
    """Without passes nobody ends what died, and deadlines do not end anything."""
    ages = passes.ages_s(patient.store)
    fault = passes.late(ages, patient.settings.sweep_s)
    if fault is not None:
        yield Finding("supervisors", "wrong", fault.text, fault.mend)
    else:
        newest = max(age for age in ages.values() if age is not None)
        yield Finding("supervisors", "ok", f"every duty was looked at within {newest:.1f} s")


def drain(patient: Patient) -> Iterator[Finding]:
    """What the ledger does not know yet would be lost with the server."""
    store, most = patient.store, patient.settings.undrained_most
    waiting, now = max(store.stream.lengths()), store.now_ms()
    oldest_s = (now - (store.stream.oldest_at() or now)) / 1000
    text = f"the fullest shard has {waiting} transitions that are not in the ledger, the oldest for {oldest_s:.0f} s"
    if waiting > FULL * most or oldest_s > OLD_ENTRY_S:
        mend = "is the ledger away, or no worker on the supervise queue? At MANDOR_UNDRAINED_MOST no new run is taken"
        yield Finding("drain", "wrong", text, mend)
    else:
        yield Finding("drain", "ok", text)


# ---- the broker


def broker(patient: Patient) -> Iterator[Finding]:
    """The broker answers; how much lies in each queue."""
    depths = {name: _depth(patient, name) for name in names.QUEUES}
    waiting = ", ".join(f"{name} {depth}" for name, depth in depths.items())
    yield Finding("broker", "ok", f"messages ready: {waiting}")


def _depth(patient: Patient, name: str) -> int:
    queue = names.queue(patient.settings.prefix, name)
    try:
        return dispatch.queue_depth(patient.app, queue)
    except dispatch.broker_errors(patient.app) as error:
        raise BrokerUnavailable(f"the broker does not answer: {error}", hint="is it running?") from None


def consumers(patient: Patient) -> Iterator[Finding]:
    """Asked of the workers themselves. One that is busy, or frozen, may not answer: a sign, no proof."""
    consumed = dispatch.consumed_queues(patient.app, ANSWER_S)
    lonely = [name for name in names.QUEUES if name != "dlq" and _full(patient, name) not in consumed]
    if lonely:
        text = f"no worker answers that consumes {', '.join(lonely)}"
        yield Finding("consumers", "warning", text, "start one: `mandor up`, or the Procfile's lines")
    else:
        yield Finding("consumers", "ok", "every queue has a worker")


def _full(patient: Patient, name: str) -> str:
    return names.queue(patient.settings.prefix, name)


HERE: Final[Looks] = (
    ("packages", packages),
    ("configuration", configuration),
    ("policy", policy),
    ("home", home),
    ("ledger", ledger),
    ("effects", effects),
    ("decisions", decisions),
    ("callbacks", callbacks),
)
# those of one service each
THERE: Final[tuple[Looks, ...]] = (
    (
        ("server", server),
        ("memory", memory),
        ("clock", clock),
        ("shards", shards),
        ("supervisors", supervisors),
        ("drain", drain),
    ),
    (("servers", servers),),
    (("broker", broker), ("consumers", consumers)),
)
