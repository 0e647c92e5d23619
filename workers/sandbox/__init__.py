"""Sandboxes for commands, from the strongest to none. Read in this order:

jobs         what is to run, under which limits, and how it ended: data
host         what this machine and this worker's user offer: programs, folders, whom commands run as
rungs        how a sandbox of each kind is started, as an argv and an order
running      start one, watch it, drain its output, end all of it
ladder       which rungs work here, found by starting each; the strongest that policy takes
inside/      what runs within, before the command
"""
