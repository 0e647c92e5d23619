"""Whole programs that use Mandor. They are not installed with it."""
