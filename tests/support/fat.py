"""An action for soaks, loaded through MANDOR_ACTIONS: it fails with much in its hands."""

from tests.support.business import Value
from workers import Context, PermanentError, action

HELD_BYTES = 1_000_000


@action("test.fat", effect="pure", attempts=1)
def fat(params: Value, ctx: Context) -> Value:
    """Fail for good, a megabyte deep."""
    held = b"x" * HELD_BYTES  # zeros would take no memory until somebody writes to them
    raise PermanentError(f"with {len(held)} bytes in hand")
