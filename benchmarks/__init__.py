"""Contests against Celery alone, for `./dev bench`. Not installed with the package.

site       a server and processes of its own, in a folder that goes away
bare       the other side: Celery without us, written to win
mandor     our side: the processes of the Procfile
contests   what is timed, and in which turns
figures    medians, spreads, and how they are shown

faults     the same harm done to several ways of doing the same work: a contest without a clock

admission  what the door costs beside pydantic alone; a program of its own too: python -m benchmarks.admission
"""
