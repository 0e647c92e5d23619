"""What the event loop tells at the ends of a worker's life, with Celery's own pool."""

from types import SimpleNamespace

from celery.concurrency.prefork import TaskPool

from orchestrator import pulse
from orchestrator.healing.progress import Pool, Progress


def test_a_pool_that_is_gone_is_nothing_to_tell_of() -> None:
    """Celery goes on with its timers while the last of a pool is awaited."""
    progress = Progress(60.0, 0)
    progress.tick(Pool((11,)))
    pulse.tell(SimpleNamespace(pool=TaskPool(1)), progress)
    assert progress.pool == Pool((11,))
