"""The fault kit: real processes, interrupted on purpose, and what came of it held against what is promised.

witness       a program: keeps the log of effects, outside every worker
log           telling the witness, and reading what it has
orders        what is to happen to which step, and where; written here, found by workers
deeds         carrying them out, in the process that was ordered
inside        in every worker: tells the witness what actions do, and carries orders out
example       actions of every effect class, and a planner: what is driven unless the user names something
driven        what is driven, and who looks at the world outside
installation  what is thrown away afterwards: home, server, settings
hands         its processes
ground        all of it as scenarios use it, whoever does the work: orders, waiting
floor         Mandor's: submissions, store, ledger
broker        what can be done to it besides: forget, give back
trouble       messages of Mandor's that come once more
scene         one scenario under way: its runs, and what was done to them
scenes        S1 to S12, one function each
facts         what is known of a run when all is over
invariants    what must hold of it: pure, over facts
report        verdicts, the certificate; text, JSON, JUnit
kit           all of them, one after the other
"""
