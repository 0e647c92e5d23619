"""A plan's graph: in lines for a terminal, in Mermaid for a page. Pure; ids and action names need no escaping."""

from collections.abc import Callable, Iterator, Sequence

from orchestrator.admission import AdmittedStep


def waves(steps: Sequence[AdmittedStep]) -> list[list[AdmittedStep]]:
    """The steps by how many others must end, one behind the other, before they may start."""
    depth: dict[str, int] = {}
    found: list[list[AdmittedStep]] = []
    for step in steps:
        depth[step.id] = 1 + max((depth[need] for need in step.needs), default=-1)
        if depth[step.id] == len(found):
            found.append([])
        found[depth[step.id]].append(step)
    return found


def edges(steps: Sequence[AdmittedStep]) -> list[tuple[str, str]]:
    """Each need: from the step that is waited for to the one that waits."""
    return [(need, step.id) for step in steps for need in step.needs]


def text_lines(steps: Sequence[AdmittedStep]) -> Iterator[str]:
    """A line a step, in waves: those that could start together stand together."""
    id_width = max(len(step.id) for step in steps)
    action_width = max(len(step.action) for step in steps)
    for number, wave in enumerate(waves(steps), 1):
        for place, step in enumerate(wave):
            head = f"{number:>4}" if place == 0 else " " * 4
            after = f"  after {', '.join(step.needs)}" if step.needs else ""
            yield f"{head}  {step.id:<{id_width}}  {step.action:<{action_width}}{after}".rstrip()


def label(step: AdmittedStep) -> str:
    """What stands in a step's node."""
    return f"{step.id}<br/>{step.action}"


def mermaid_lines(steps: Sequence[AdmittedStep], labelled: Callable[[AdmittedStep], str] = label) -> Iterator[str]:
    """A flowchart. Nodes are named by index: words such as `end` mean something else in Mermaid."""
    node = {step.id: f"n{step.index}" for step in steps}
    yield "flowchart TD"
    for step in steps:
        yield f'    {node[step.id]}["{labelled(step)}"]'
    for earlier, later in edges(steps):
        yield f"    {node[earlier]} --> {node[later]}"
