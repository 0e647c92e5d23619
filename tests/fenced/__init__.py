import pytest

PARTS = ("commands", "deaths", "files", "fleet", "records", "runs")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in PARTS))  # as in a file of tests
