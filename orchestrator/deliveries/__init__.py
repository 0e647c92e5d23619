"""Callbacks: the end of a run, posted to the URL its submission named. docs/callbacks.md says what is promised."""
