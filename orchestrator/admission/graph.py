"""What the order of steps decides: which results a step may name, and which steps may not write the same thing.

Steps need earlier steps only, so one walk in order finds all ancestors. They are kept as bits of integers (10,000
steps: at most 12 MB) and only where a reference or a shared name asks for them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from orchestrator.admission.params import issues_at
from orchestrator.admission.refusal import Kind, excerpt
from schemas.issues import Issue, dotted
from schemas.plan import ResolvedStep, ResultRef

RESULT_KEY = "$result"


def reference_keys(params: Mapping[str, Any], referable: frozenset[str]) -> frozenset[str]:
    """The referable fields where the plan puts a reference instead of a value."""
    if not referable:
        return frozenset()
    return frozenset(key for key in referable & params.keys() if is_reference(params[key]))


def is_reference(value: Any) -> bool:
    """Whether a referable field's value is meant as a reference: an object with the key `$result`."""
    return isinstance(value, dict) and RESULT_KEY in value


class Order:
    """Which step certainly ends before which other begins."""

    def __init__(self, steps: Sequence[ResolvedStep]) -> None:
        self._steps = steps
        self.index = {step.id: step.index for step in steps}

    @cached_property
    def _ancestors(self) -> list[int]:
        found: list[int] = []
        for step in self._steps:
            bits = 0
            for need in step.needs:
                position = self.index[need]
                bits |= found[position] | 1 << position
            found.append(bits)
        return found

    def precedes(self, earlier: int, later: int) -> bool:
        """Whether the step at `later` waits for the one at `earlier`, directly or through others."""
        step = self._steps[later]
        return self._steps[earlier].id in step.needs or bool(self._ancestors[later] >> earlier & 1)


def reference_issues(step: ResolvedStep, keys: frozenset[str], order: Order) -> Iterator[Issue]:
    """Malformed references, and those to steps this one does not wait for."""
    for key in sorted(keys):
        at = ("steps", step.index, "params", key)
        try:
            target = ResultRef.model_validate(step.params[key])
        except ValidationError as refusal:
            yield from issues_at(refusal, step.params[key], at)
        else:
            yield from _out_of_reach(target, step, at, order)


def _out_of_reach(target: ResultRef, step: ResolvedStep, at: tuple[str | int, ...], order: Order) -> Iterator[Issue]:
    position = order.index.get(target.result)
    if position is None:
        yield Issue(dotted((*at, RESULT_KEY)), Kind.REFERENCE, f"no step has the id {excerpt(target.result)}")
    elif position >= step.index or not order.precedes(position, step.index):
        message = f"the step does not wait for {excerpt(target.result)}; add it to needs"
        yield Issue(dotted((*at, RESULT_KEY)), Kind.REFERENCE, message)


def conflict_issues(names: Mapping[int, str], order: Order) -> Iterator[Issue]:
    """Steps that write what another step writes, with no order between the two. names: by index of the step."""
    writers: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(names):
        writers[names[index]].append(index)
    for name, indexes in writers.items():
        for earlier, later in pairwise(indexes):
            if not order.precedes(earlier, later):
                message = f"steps.{earlier} writes {excerpt(name)} too, and neither waits for the other"
                yield Issue(f"steps.{later}.params", Kind.CONFLICT, message)
