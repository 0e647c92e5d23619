"""Two thousand runs of every shape and class in one storm of faults, by the fault kit's own means.

actions    what the runs' steps do, beside the kit's own example; loaded by workers
shapes     what the runs look like, and how each may end
forecast   all that is drawn: runs, cancellations, orders, and which trouble comes when. Pure
troubles   what is done to processes, server and messages
weather    the storm under way: runs are fed, troubles strike, who froze is woken, until every run has ended; then one
           worker is killed and one frozen while nothing else goes on, and every slot has to take work again
reclaims   how long claims stood that nobody held any more. Pure
pauses     how long runs stood still. Pure
world      what is found outside afterwards

    python -m tests.support.storm --seed 4711 --runs 2000
"""
