"""An index for counting the letters that nobody has dealt with, which is done at each scrape.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("letters_by_status", "dead_letters", ["status", "kind"], unique=False)
