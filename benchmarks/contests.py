"""What is timed. Those compared take turns, A B A B, so that a busy minute of the machine hurts all alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks import admission as door
from benchmarks import telemetry as telling
from benchmarks.figures import Figure, Result
from benchmarks.sandbox import sandbox
from benchmarks.search import search
from benchmarks.sides import Bare, Mandor
from benchmarks.site import BARE, OURS, Site

WARM: Final = 40
RUN_LENGTH: Final = 3  # steps of one of many small runs
FASTER: Final = "throughput; 1 is as fast, more is faster"
WHOLE: Final = "from the submission to the settled run"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done, and how often."""

    rounds: int
    width: int
    length: int
    runs: int
    followed: int
    few: int
    many: int
    judgements: int
    ended: tuple[int, int]
    commands: int


FULL: Final = Scale(
    rounds=5,
    width=2000,
    length=100,
    runs=100,
    followed=400,
    few=200,
    many=2000,
    judgements=60,
    ended=(1000, 100_000),
    commands=30,
)
QUICK: Final = Scale(
    rounds=3,
    width=500,
    length=50,
    runs=30,
    followed=150,
    few=100,
    many=1000,
    judgements=10,
    ended=(500, 10_000),
    commands=8,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose crew works, and at what; work answers seconds."""

    crew: str
    work: Callable[[], float]


@dataclass(frozen=True)
class Arena:
    """Where contests take place. say: gets a word after each round."""

    site: Site
    scale: Scale
    bare: Bare
    mandor: Mandor
    say: Callable[[str], None]

    def warm_up(self) -> None:
        """Every process has done everything once."""
        self._take(Turn(BARE, lambda: self.bare.fan_out(WARM)))
        self._take(Turn(OURS, lambda: self.mandor.fan_out(WARM).seconds))

    def rounds(self, *turns: Turn) -> list[list[float]]:
        """The seconds of each turn, one list for each, one value for each round."""
        taken: list[list[float]] = [[] for _ in turns]
        for number in range(self.scale.rounds):
            for times, turn in zip(taken, turns, strict=True):
                times.append(self._take(turn))
            self.say(f"round {number + 1} of {self.scale.rounds}")
        return taken

    def _take(self, turn: Turn) -> float:
        with self.site.turn_of(turn.crew):
            return turn.work()


def fanout(arena: Arena) -> Result:
    """Independent steps, all ready at once."""
    width = arena.scale.width
    group, batch, ours = arena.rounds(
        Turn(BARE, lambda: arena.bare.fan_out(width)),
        Turn(BARE, lambda: arena.bare.batched_fan_out(width)),
        Turn(OURS, lambda: arena.mandor.fan_out(width).seconds),
    )
    figures = [
        Figure("ratio_to_bare", "", over(group, ours), FASTER),
        Figure("ratio_to_batched", "", over(batch, ours), "the same against Celery publishing in one batch"),
        Figure("bare_step_ms", "ms", each_ms(group, width)),
        Figure("batched_step_ms", "ms", each_ms(batch, width)),
        Figure("step_ms", "ms", each_ms(ours, width), WHOLE),
    ]
    return Result("fanout", f"fan-out of {width:,} steps", figures)


def sequence(arena: Arena) -> Result:
    """Each step waits for the one before it."""
    length = arena.scale.length
    bare, ours = arena.rounds(
        Turn(BARE, lambda: arena.bare.sequence(length)),
        Turn(OURS, lambda: arena.mandor.sequence(length).steps_s),
    )
    figures = [
        Figure("ratio_to_bare", "", over(ours, bare), "time of a hop; 1 is as fast, less is faster"),
        Figure("bare_hop_ms", "ms", each_ms(bare, length)),
        Figure("hop_ms", "ms", each_ms(ours, length), "from the first claim to the last commit"),
    ]
    return Result("sequence", f"sequence of {length:,} steps", figures)


def runs(arena: Arena) -> Result:
    """Many small runs at once, against as many sequences of bare tasks, which nobody accepts, plans or settles."""
    count = arena.scale.runs
    bare, ours = arena.rounds(
        Turn(BARE, lambda: arena.bare.sequences(count, RUN_LENGTH)),
        Turn(OURS, lambda: arena.mandor.sequences(count, RUN_LENGTH)),
    )
    figures = [
        Figure("ratio_to_bare", "", over(bare, ours), FASTER),
        Figure("bare_run_ms", "ms", each_ms(bare, count)),
        Figure("run_ms", "ms", each_ms(ours, count), WHOLE),
    ]
    return Result("runs", f"{count:,} runs of {RUN_LENGTH} steps", figures)


def growth(arena: Arena) -> Result:
    """What a step costs in a large run, against one in a small run."""
    few, many = arena.scale.few, arena.scale.many
    small, large = arena.rounds(
        Turn(OURS, lambda: arena.mandor.fan_out(few).steps_s),
        Turn(OURS, lambda: arena.mandor.fan_out(many).steps_s),
    )
    small_ms, large_ms = each_ms(small, few), each_ms(large, many)
    figures = [
        Figure("ratio", "", over(large_ms, small_ms), "cost of a step; 1 is no growth, less is better"),
        Figure("small_step_ms", "ms", small_ms),
        Figure("large_step_ms", "ms", large_ms),
    ]
    return Result("growth", f"runs of {few:,} and of {many:,} independent steps", figures)


def ledger(arena: Arena) -> Result:
    """Many small runs while the ledger follows, against the same while nothing is drained into it."""
    count = arena.scale.followed
    without, with_it = arena.rounds(
        Turn(OURS, lambda: arena.mandor.unfollowed(count, RUN_LENGTH)),
        Turn(OURS, lambda: arena.mandor.followed(count, RUN_LENGTH)),
    )
    left = [behind / count for behind in arena.mandor.following.left]
    figures = [
        Figure("ratio", "", over(without, with_it), "throughput; 1 is as fast as without the drain"),
        Figure("without_ms", "ms", each_ms(without, count), "a run, while nothing is drained"),
        Figure("with_ms", "ms", each_ms(with_it, count), "a run, while the ledger follows"),
        Figure("left", "", left, "transitions of a run that were not drained when the last run ended"),
    ]
    return Result("ledger", f"{count:,} runs of {RUN_LENGTH} steps, followed by the ledger", figures)


def admission(scale: Scale) -> Result:
    """What the door costs, beside a strict pydantic model alone. It needs no server."""
    found = door.measure(rounds=scale.judgements, calls=20)
    figures = [
        Figure("ratio", "", found.ratios, "time to judge a plan; less is better"),
        Figure("bare_ms", "ms", [found.bare_ms], "best of all rounds"),
        Figure("door_ms", "ms", [found.door_ms], "best of all rounds"),
    ]
    return Result("admission", f"a plan of {door.STEPS} steps at the door", figures)


def telemetry(scale: Scale) -> Result:
    """Our own fan-out with logs, counters and health, against the same without."""
    on, off = zip(*telling.measure(scale.rounds, scale.width), strict=True)
    clock = [[turn.seconds for turn in side] for side in (on, off)]
    used = [[turn.processor_s for turn in side] for side in (on, off)]
    figures = [
        Figure("ratio", "", over(clock[1], clock[0]), "throughput with telemetry over that without; 1 costs nothing"),
        Figure("step_ms", "ms", each_ms(clock[0], scale.width)),
        Figure("silent_step_ms", "ms", each_ms(clock[1], scale.width)),
        Figure("cpu_ms", "ms", each_ms(used[0], scale.width), "processor time of all processes for a step"),
        Figure("silent_cpu_ms", "ms", each_ms(used[1], scale.width)),
    ]
    return Result("telemetry", f"fan-out of {scale.width:,} steps, with and without telemetry", figures)


def over(these: list[float], those: list[float]) -> list[float]:
    """Ratios, round by round."""
    return [this / that for this, that in zip(these, those, strict=True)]


def each_ms(seconds: list[float], count: int) -> list[float]:
    """Milliseconds for each of `count` pieces."""
    return [1000 * one / count for one in seconds]


IN_ARENA: Final[dict[str, Callable[[Arena], Result]]] = {
    "fanout": fanout,
    "sequence": sequence,
    "runs": runs,
    "growth": growth,
    "ledger": ledger,
}
ALONE: Final[dict[str, Callable[[Scale], Result]]] = {
    "admission": admission,
    "sandbox": lambda scale: sandbox(scale.rounds, scale.commands),
    "search": lambda scale: search(scale.ended, scale.rounds),
    "telemetry": telemetry,
}
