"""The tutorial declares actions and planners; each test does so in a registry of its own."""

import pytest

import workers
from workers import registry as declared
from workers.registry import Registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """What `from workers import action, planner` declares into, for the time of one test."""
    fresh = Registry()
    monkeypatch.setattr(workers, "action", fresh.action)
    monkeypatch.setattr(workers, "planner", fresh.planner)
    monkeypatch.setattr(declared, "catalogue", fresh.catalogue)
    return fresh
