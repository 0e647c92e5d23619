"""What is done to a broker that Celery uses, whoever's tasks it carries."""

from typing import Any


def forget_everything(app: Any) -> None:
    """FLUSHALL: state, messages and results are gone."""
    app.backend.client.flushall()


def give_back(app: Any) -> None:
    """What the broker's client does when the visibility timeout is over: every message in hand goes back to its queue.

    It is kombu's own code, of a connection with a timeout of no time at all.
    """
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.visibility_timeout = 0
        channel.qos.restore_visible(num=1000)
