"""Moves the ledger's schema to the revision this release is written for.

No alembic.ini and no logging configuration: everything Alembic needs is handed over here.
"""

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from orchestrator.ledger.engine import refuse_newer
from orchestrator.ledger.tables import REVISION, VERSION_TABLE

# Alembic's `context` and `op` are module-wide: two threads may not migrate at once.
_one_at_a_time = threading.Lock()


def run(connection: Connection) -> None:
    """Bring the schema to REVISION inside the caller's transaction; at REVISION already: nothing happens.

    LedgerMissing: the schema is of a later release.
    """
    refuse_newer(MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision())
    with _one_at_a_time:
        command.upgrade(alembic_config(connection), REVISION)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for our scripts, bound to an open connection."""
    config = Config()
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
