"""Measurements: each module is a program of its own, `python -m benchmarks.NAME [--quick] [--json]`."""
