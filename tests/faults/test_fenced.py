"""Behind a fence, since it could hurt the machine if it failed: hostile plans by whole workers."""

import pytest

from schemas.policy import Rung
from tests.support.fence import pass_in_a_fence
from tests.support.sandboxes import NEEDS_ROOT, skip_without


@pytest.mark.full
@NEEDS_ROOT
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rung", [Rung.BUBBLEWRAP, Rung.NAMESPACES])
@pytest.mark.parametrize("user", ["root", "stranger"])
def test_hostile_plans_do_no_harm_by_whole_workers(user: str, rung: Rung, server_kind: str) -> None:
    skip_without(rung)
    pass_in_a_fence("--full", "--server", server_kind, "-k", f"{user}-{rung}", "tests/fenced/hostile_plans.py")
