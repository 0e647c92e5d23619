"""Figures: one value a round, told as their median and the spread from the lowest to the highest."""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Figure:
    """values: one of each round. means: how to read it, where the name does not say."""

    name: str
    unit: str
    values: Sequence[float]
    means: str = ""

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


class Outcome(Protocol):
    """What one contest came to, whatever was measured."""

    @property
    def contest(self) -> str:
        """Its name."""

    def fields(self) -> dict[str, Any]:
        """For programs."""

    def lines(self) -> Iterator[str]:
        """For people."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a contest for figures."""

    contest: str
    title: str
    figures: Sequence[Figure]

    def fields(self) -> dict[str, Any]:
        """`ratio_to_bare` is a number, `ratio_to_bare_spread` the lowest and the highest of its rounds."""
        fields: dict[str, Any] = {"title": self.title, "rounds": len(self.figures[0].values)}
        for figure in self.figures:
            fields[figure.name] = _short(figure.median)
            fields[f"{figure.name}_spread"] = [_short(value) for value in figure.spread]
        return fields

    def lines(self) -> Iterator[str]:
        """A title, then a line for each figure."""
        yield f"{self.title}, median of {len(self.figures[0].values)} rounds (lowest to highest)"
        for figure in self.figures:
            yield _line(f"{self.contest}.{figure.name}", figure)


def as_json(outcomes: Sequence[Outcome], quick: bool) -> dict[str, Any]:
    """`fanout.ratio_to_bare` is a number at that path."""
    return {"machine": machine(), "quick": quick, **{outcome.contest: outcome.fields() for outcome in outcomes}}


def as_text(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A block for each contest."""
    about = machine()
    yield f"{about['cpus']} CPUs, load {about['load']:.1f} at the end, Python {about['python']}, {about['system']}"
    for outcome in outcomes:
        yield ""
        yield from outcome.lines()


def _line(name: str, figure: Figure) -> str:
    low, high = figure.spread
    return f"  {name:<24}{figure.median:8.3f} {figure.unit:<3} ({low:.3f} to {high:.3f})  {figure.means}".rstrip()


def machine() -> dict[str, Any]:
    """Where this was measured, without a name."""
    return {
        "cpus": os.cpu_count() or 1,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _short(value: float) -> float:
    return round(value, 4)
