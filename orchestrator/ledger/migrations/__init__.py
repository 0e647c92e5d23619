"""Moves the ledger's schema to the revision this release is written for.

No alembic.ini and no logging configuration: everything Alembic needs is handed over here.
"""

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from orchestrator.ledger.tables import REVISION

# Alembic's `context` and `op` are module-wide: two threads may not migrate at once.
_one_at_a_time = threading.Lock()


def run(connection: Connection) -> None:
    """Bring the schema to REVISION inside the caller's transaction; at REVISION already: nothing happens."""
    with _one_at_a_time:
        command.upgrade(alembic_config(connection), REVISION)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for our scripts, bound to an open connection."""
    config = Config()
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
