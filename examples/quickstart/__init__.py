"""The README's first example."""
