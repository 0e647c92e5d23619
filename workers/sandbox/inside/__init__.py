"""What runs in a sandbox before the command: plain Python, the standard library alone, and nothing of ours beside it.

A sandbox sees this folder and no other of the installation, so modules here import each other and nobody else.
"""
