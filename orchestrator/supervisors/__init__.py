"""Supervisors: each finds one kind of thing that stopped and moves it on. Any number may run at once."""
