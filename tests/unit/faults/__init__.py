"""Tests of the data plane that need no server."""
