"""A plan of more steps than Lua passes to one command."""

from tests.support.stores import Scene, new_step

MANY = 4_200  # of two words each; a command has 8,000 at most


def test_a_plan_of_many_steps_is_admitted_whole(scene: Scene) -> None:
    """Each needs the one before it: as many texts, needs and dependants as there are steps."""
    steps = [new_step("s0", 0), *(new_step(f"s{i}", i, f"s{i - 1}") for i in range(1, MANY))]
    scene.accept().admit(*steps)
    assert not scene.store.admin.is_in_pieces(scene.ref)
    scene.store.runs.cancel(scene.ref, 1)
    assert scene.store.views.run(scene.ref).counts == {"skipped": MANY}  # type: ignore[union-attr]
