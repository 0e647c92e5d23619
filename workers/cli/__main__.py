"""`python -m workers.cli` is `mandor`, for places where the script is not on the path."""

from workers.cli import main

main()
