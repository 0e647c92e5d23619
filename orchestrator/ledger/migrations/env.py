"""Run by Alembic: migrate over the connection, and in the transaction, that `migrations.run` brought."""

from alembic import context

from orchestrator.ledger.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
