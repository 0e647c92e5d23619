"""Every setting of an installation: one model, prefix MANDOR_, each default with its reason."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from orchestrator.deliveries import guard, signature
from orchestrator.errors import ConfigError
from orchestrator.home import embedded_url
from schemas.policy import PROTECTED_NAMES, Rung

PREFIX = "MANDOR_"
Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]
Count = Annotated[int, Field(ge=1, le=2**31)]  # no more than a policy can hold


class HomeSource(PydanticBaseSettingsSource):
    """The server that the home folder has of its own, for whoever names none."""

    def __call__(self) -> dict[str, Any]:
        """redis_url and embedded, or nothing."""
        given = self.current_state
        if "redis_url" in given:
            return {}
        url = embedded_url(Path(given.get("home") or Settings.model_fields["home"].default))
        return {} if url is None else {"redis_url": url, "embedded": not given.get("broker_url")}

    def get_field_value(self, _: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Asked by nobody: the source answers for all fields at once."""
        return None, field_name, False


class Settings(BaseSettings):
    """What an operator may set. Names of the environment are MANDOR_ and the field's name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    # where things are
    home: Path = Field(Path(".mandor"), description="folder of the ledger file, workspaces and the embedded server")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="state store; also broker and results by default; unset: the home's own server, if it has one",
    )
    broker_url: str = Field("", description="Celery's broker; empty: the state store's server")
    result_url: str = Field("", description="Celery's results; empty: the state store's server")
    ledger_url: str = Field(
        "", description="the ledger's database, SQLite or PostgreSQL; empty: a file in the home folder"
    )
    effects_urls: str = Field("", description="databases of transactional actions' own effects, separated by blanks")
    namespace: str = Field("mandor", pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$", description="first part of every key")
    queue_prefix: str = Field(
        "", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="first part of every queue; empty: the namespace and a dot"
    )
    shards: int = Field(16, ge=1, le=256, description="hash slots the runs are spread over; fixed once")
    embedded: bool = Field(False, description="the server is our own: control listens on Celery's default queue too")

    # what workers load
    actions: str = Field("", description="modules that declare actions and planners, separated by commas")
    policy_file: Path | None = Field(None, description="JSON file that narrows the installation's policy")

    # leases: a worker renews three times before it is given up; four sweeps fit into one lease
    lease_s: Seconds = Field(15.0, description="how long a claim is believed in without a renewal")
    sweep_s: Seconds = Field(2.0, description="from one look of each supervisor to its next")

    # limits of one step and one run; policy may narrow them
    attempts: int = Field(3, ge=1, le=100, description="tries of a step in all, unless its action says otherwise")
    backoff_s: Seconds = Field(1.0, description="longest random wait before the second try; doubles with each try")
    backoff_max_s: Seconds = Field(60.0, description="where that wait stops growing")
    timeout_s: Seconds = Field(60.0, description="time limit of one attempt, unless its action says otherwise")
    stop_grace_s: Seconds = Field(10.0, description="from asking an attempt to stop until its process is killed")
    deadline_s: Seconds = Field(3600.0, description="time limit of a run, from its acceptance")
    wait_s: Seconds = Field(86_400.0, description="how long a run waits for a person, at most")
    max_steps: int = Field(1000, ge=1, le=10_000, description="most steps of a plan")
    max_parallel: int = Field(100, ge=1, le=10_000, description="most steps of one run that are sent or run at a time")
    plan_bytes: Count = Field(1024 * 1024, description="largest planner's answer")
    goal_bytes: Count = Field(256 * 1024, description="goal and context of a submission together")
    result_bytes: Count = Field(256 * 1024, description="largest result of a step")
    inputs_bytes: Count = Field(1024 * 1024, description="largest sum of results that one step refers to")
    file_bytes: Count = Field(1024 * 1024, description="largest file that a step of create_file writes")
    workspace_bytes: Count = Field(256 * 1024 * 1024, description="sizes of a run's files together, at most")
    workspace_files: Count = Field(10_000, description="files and folders of a run, at most")
    protected_names: str = Field(
        ",".join(sorted(PROTECTED_NAMES)),
        pattern=r"^([^/,\x00]{1,255}(,[^/,\x00]{1,255})*)?\z",
        description="names that no part of a written path may have, separated by commas",
    )
    record_bytes: Count = Field(1024 * 1024, description="largest record that a step of mutate_record leaves")
    record_keys: Count = Field(10_000, description="keys of a record at all depths together, at most")
    record_depth: Count = Field(32, description="objects and lists of a record within one another, at most")

    # commands of run_command; policy may narrow them
    min_rung: Rung = Field(
        Rung.NAMESPACES, description="weakest sandbox for commands; `rlimits` is none: see sandbox.md"
    )
    command_time_s: Seconds = Field(30.0, description="how long a command may run, whatever its step says")
    command_cpu_s: Count = Field(30, description="processor time of each process of a command, its threads together")
    command_memory_bytes: Count = Field(
        512 * 1024 * 1024, description="address space of each process of a command, and memory of all together"
    )
    command_processes: Count = Field(64, description="processes and threads of a command at a time")
    command_output_bytes: Count = Field(64 * 1024 * 1024, description="output of a command; beyond it, it is ended")
    command_file_bytes: Count = Field(256 * 1024 * 1024, description="largest file that a command writes")
    sandbox_uid: int = Field(65_534, ge=1, le=2**31, description="user of commands, where a worker is root")

    # files of runs; policy may narrow them
    workspace_keep_s: float = Field(
        86_400.0, ge=0, le=30 * 86_400, description="how long a workspace stays when its run has ended"
    )
    artifact_bytes: int = Field(
        64 * 1024 * 1024, ge=0, le=2**31, description="most bytes of a run's files that policy keeps, each time it ends"
    )
    workspace_sweep_s: Seconds = Field(10.0, description="from one look for workspaces to let go to the next")

    planner_timeout_s: Seconds = Field(110.0, description="time limit of planning a run once, repairs included")
    planner_attempts: int = Field(3, ge=1, le=100, description="tries of planning a run in all")

    # the model behind the planner `llm` and the action `model.ask`; read by workers only
    llm_provider: Literal["", "openai", "anthropic"] = Field("", description="whose API; empty: no model is used")
    llm_model: str = Field("", max_length=200, description="the model's name, as its provider spells it")
    llm_base_url: str = Field("", pattern=r"^(https?://\S+)?$", description="API address; empty: the provider's own")
    llm_api_key: SecretStr = Field(
        SecretStr(""), description="never logged nor stored; a server of one's own needs none"
    )
    llm_structured: bool = Field(True, description="hold answers to a JSON schema; false for servers that refuse one")
    # a plan of a thousand short steps needs more, one of fifty much less; a cut answer is refused
    llm_max_tokens: int = Field(8192, ge=1, le=1_000_000, description="room for one answer")
    # below planner_timeout_s, so that a silent model is told as such and not as a planner that ran out of time
    llm_timeout_s: Seconds = Field(100.0, description="one request to the model")

    # callbacks: nine attempts, the first at once, are spread over most of a day; a receiver may be down overnight
    webhook_secrets: SecretStr = Field(
        SecretStr(""), description="what callbacks are signed with: one secret, or the new and the old one; empty: none"
    )
    webhook_allowed: str = Field("", description="hosts and networks that callbacks may go to besides the internet")
    webhook_attempts: int = Field(9, ge=1, le=100, description="tries of a callback in all")
    webhook_backoff_s: Seconds = Field(10.0, description="before the second try; four times as long before each other")
    webhook_backoff_max_s: Seconds = Field(28_800.0, description="where that stops growing; most of Retry-After, too")
    # a receiver answers first and works afterwards; who is slower keeps a child from other callbacks
    webhook_timeout_s: Seconds = Field(15.0, description="one try, from the look for the host to the answer")

    # a message is presumed lost after this long without a claim; doubles with each check
    dispatch_check_s: Seconds = Field(10.0, description="when a message that nobody claimed is looked for first")
    dispatch_deadline_s: Seconds = Field(600.0, description="how long a step waits for its action, or for the ledger")
    visibility_timeout_s: Seconds = Field(3600.0, description="when the broker gives an unacknowledged message back")
    term_grace_s: Seconds = Field(20.0, description="what a worker has between SIGTERM and the end")
    finished_ttl_s: Seconds = Field(86_400.0, description="how long Redis keeps a finished run")
    ledger_runs_d: int = Field(90, ge=1, le=36_500, description="days that the ledger keeps a finished run")
    ledger_letters_d: int = Field(90, ge=1, le=36_500, description="days that the ledger keeps a dead letter")
    prune_s: Seconds = Field(60.0, description="from one look for what is too old to keep to the next")
    store_timeout_s: Seconds = Field(5.0, description="one Redis call, connecting included; a call is tried four times")
    audit_s: Seconds = Field(600.0, description="from one look for each open run to the next")
    restore: bool = Field(True, description="build again what the state store forgot, without being asked")
    undrained_most: Count = Field(100_000, description="transitions of a shard that wait for the ledger, at most")

    flower_address: str = Field("127.0.0.1", min_length=1, description="address that Flower listens on")
    flower_port: int = Field(5555, ge=1, le=65_535, description="port that Flower listens on")
    flower_public: bool = Field(False, description="Flower may be reached from elsewhere: something encrypts before it")

    # counters of workers, gauges of the exporter, health of both; for machines, which are asked for no password
    metrics: bool = Field(True, description="workers count what they do")
    health_address: str = Field("127.0.0.1", min_length=1, description="address of health and metrics")
    exporter_port: int = Field(9630, ge=0, le=65_535, description="port of the exporter; 0: any that is free")
    supervise_port: int = Field(9631, ge=0, le=65_535, description="port of workers on `supervise`; 0: none")
    control_port: int = Field(9632, ge=0, le=65_535, description="port of workers on `control`; 0: none")
    planner_port: int = Field(9633, ge=0, le=65_535, description="port of workers on `plan`; 0: none")
    deliver_port: int = Field(9635, ge=0, le=65_535, description="port of workers on `deliver`; 0: none")
    steps_port: int = Field(9634, ge=0, le=65_535, description="port of all other workers; 0: none")
    health_every_s: Seconds = Field(10.0, description="from one look at the services to the next")
    # an event loop that stands still, or a child that takes no work: a minute is longer than any honest pause
    wedged_s: Seconds = Field(60.0, description="how long a worker may stand still with work to do")
    memory_mib: int = Field(0, ge=0, le=1 << 24, description="most memory of one process of a worker; 0: any")

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="least level that is logged")
    log_format: Literal["auto", "json", "human"] = Field("auto", description="auto: human on a terminal, else JSON")
    log_redact: str = Field("", description="more key names whose values are never logged, separated by commas")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then what the home folder says."""
        return init_settings, env_settings, HomeSource(settings_cls)

    @property
    def prefix(self) -> str:
        """The first part of every queue."""
        return self.queue_prefix or f"{self.namespace}."

    @property
    def broker(self) -> str:
        return self.broker_url or self.redis_url

    @property
    def results(self) -> str:
        return self.result_url or self.redis_url

    @property
    def ledger(self) -> str:
        return self.ledger_url or f"sqlite:///{self.home.absolute() / 'ledger.db'}"

    @field_validator("webhook_secrets")
    @classmethod
    def _secrets_can_sign(cls, given: SecretStr) -> SecretStr:
        signature.read_keys(given.get_secret_value())
        return given

    @field_validator("webhook_allowed")
    @classmethod
    def _allowed_can_be_read(cls, given: str) -> str:
        guard.read_allowed(given)
        return given

    @model_validator(mode="after")
    def relations(self) -> Self:
        """Settings that only make sense together."""
        broken = tuple(_broken(self))
        if broken:
            raise RelationsBroken(broken)
        return self


@dataclass(frozen=True, slots=True)
class Broken:
    """Two settings that do not fit each other. other: one name or several, as told to people."""

    field: str
    other: str
    why: str

    def __str__(self) -> str:
        return f"{env_name(self.field)} does not fit {self.other}: {self.why}"


class RelationsBroken(ValueError):
    """Every relation that does not hold, in `broken`."""

    def __init__(self, broken: tuple[Broken, ...]) -> None:
        super().__init__("; ".join(map(str, broken)))
        self.broken = broken


def _broken(given: Settings) -> Iterator[Broken]:
    attempt_s = max(given.timeout_s, given.planner_timeout_s) + given.stop_grace_s
    rules = (
        ("sweep_s", 4 * given.sweep_s <= given.lease_s, ("lease_s",), "four sweeps must fit into one lease"),
        ("backoff_s", given.backoff_s <= given.backoff_max_s, ("backoff_max_s",), "the first wait exceeds the longest"),
        (
            "visibility_timeout_s",
            given.visibility_timeout_s > attempt_s,
            ("timeout_s", "planner_timeout_s", "stop_grace_s"),
            "the broker would give a message back while its step still runs",
        ),
        (
            "finished_ttl_s",
            given.finished_ttl_s < given.ledger_runs_d * 86_400,
            ("ledger_runs_d",),
            "the ledger would forget a run that Redis still has",
        ),
        (
            "workspace_keep_s",
            given.workspace_keep_s <= given.ledger_runs_d * 86_400,
            ("ledger_runs_d",),
            "files would outlast what is known of their run",
        ),
        (
            "webhook_backoff_s",
            given.webhook_backoff_s <= given.webhook_backoff_max_s,
            ("webhook_backoff_max_s",),
            "the first wait exceeds the longest",
        ),
        ("timeout_s", given.timeout_s < given.deadline_s, ("deadline_s",), "one attempt may not outlast its run"),
    )
    for field, holds, others, why in rules:
        if not holds:
            yield Broken(field, ", ".join(map(env_name, others)), why)


def env_name(field: str) -> str:
    """The environment variable of a settings field."""
    return PREFIX + field.upper()


def is_named(field: str) -> bool:
    """Whether the environment says something about this field."""
    return any(name.upper() == env_name(field) for name in os.environ)


def unknown_names() -> list[str]:
    """MANDOR_* variables that no setting reads: a typing error would otherwise change nothing, silently."""
    known = {env_name(field) for field in Settings.model_fields}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def read_settings() -> Settings:
    """The settings of the environment. ConfigError names the first variable that is wrong."""
    found = read_or_problems()
    if isinstance(found, Settings):
        return found
    raise found[0]


def read_or_problems() -> Settings | list[ConfigError]:
    """The settings of the environment, or all that is wrong with them."""
    try:
        return Settings()
    except ValidationError as wrong:
        return [problem for error in wrong.errors() for problem in _problems(error)]


def _problems(error: ErrorDetails) -> Iterator[ConfigError]:
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, RelationsBroken):
        for broken in cause.broken:
            yield ConfigError(str(broken), path=env_name(broken.field), hint=f"raise or lower one: {_now(broken)}")
        return
    path = env_name(str(error["loc"][0])) if error["loc"] else None
    hint = f"set {path} anew or unset it" if path else "see `mandor config check`"
    yield ConfigError(error["msg"].removeprefix("Value error, "), path=path, hint=hint)


def _now(broken: Broken) -> str:
    names = (env_name(broken.field), *broken.other.split(", "))
    return ", ".join(f"{name}={os.environ.get(name) or format(_default(name), 'g')}" for name in names)


def _default(name: str) -> Any:
    return Settings.model_fields[name.removeprefix(PREFIX).lower()].default


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return read_settings()
