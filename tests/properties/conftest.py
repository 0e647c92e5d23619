"""How many examples a property gets: a hundred in passing, a thousand when everything is run."""

import pytest
from hypothesis import settings

EXAMPLES = 1000

settings.register_profile("thorough", max_examples=EXAMPLES, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """Called before the modules beside this one are imported, whose own settings build on the profile."""
    if config.getoption("--full"):
        settings.load_profile("thorough")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A thousand examples take more than the usual two minutes on a busy machine."""
    if settings().max_examples >= EXAMPLES:
        for item in items:
            if item.path.parent.name == "properties":
                item.add_marker(pytest.mark.timeout(1200))
