"""What is done about a state store that forgot, or is another server.

verdicts      which shards are not the ones the ledger remembers, and which runs they lost
verification  the same question when an installation is set up, and after a server came back
restore       judged, waited for, built again, opened: what a supervisor does about it
remembered    what is known of a run that is to be built again
rebuild       what such a run is taken to be: pure
adoption      what an older release did not note of runs that are under way
"""
