"""`./dev bench faults`: the same harm done to the same work on several ways of doing it, and what came of it.

work          what a step does on every side
bare          a Celery chord, as a careful user has it
with_idemkit  the same with each task's body behind the package idemkit
with_relier   tasks of the package relier, joined by whoever sent them
with_mandor   a plan of Mandor's
chords        sending and reading the chords of the first two
caller        a process: submits to a side, looks, and does to its broker what is asked for
sides         who takes part, how each is started and set
outside       installing what is no dependency of ours, for this once
yard          an installation of a side, as scenarios use it
scenes        what is done; S1 and so on are the fault kit's names
verdicts      counting what came of it: pure
contest       all of it, in rounds; the table
"""
