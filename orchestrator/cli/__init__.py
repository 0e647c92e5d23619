"""The command line, as far as it needs no user code; `workers.cli` adds the rest and is what `mandor` starts."""
