"""The control plane: it takes submissions, admits plans, sends steps out and watches over runs.

Workers are reached by the names of their tasks only; nothing here imports them.
"""
