"""What others bring, a plug-in's check and a planner's provider: a real worker is ready, or not, within its bound."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.local.address import free_port
from tests.support.environment import ROOT
from tests.support.models import KEY, Refuses, Says, model_server
from tests.support.scraping import failing, probed, turning, turns
from tests.support.servers import running_server
from tests.support.system import System, running_system

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
# the bounds of docs/health.md under these settings
EVERY_S = 1.0
MODEL_S = 6 * EVERY_S
PLUGIN = """
from pathlib import Path

MARK = Path(__file__).with_name("empty")


def vectors() -> str | None:
    return "the index is empty" if MARK.exists() else None
"""
POINTS = "[mandor.health]\nvectors = shop_health:vectors\n"


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pip would have put it on the path."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "shop_health.py").write_text(PLUGIN)
    about = folder / "shop-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.fixture(scope="module")
def provider() -> int:
    """The port of a model's provider, where nobody listens yet."""
    return free_port()


@pytest.fixture(scope="module")
def system(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("others")
    with (
        running_server(folder / "server", server_kind) as server,
        running_system(server.url, folder, health_every_s=EVERY_S) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def url(system: System, distribution: Path, provider: int) -> str:
    """Of a planner's worker."""
    model = {"PROVIDER": "openai", "MODEL": "m", "BASE_URL": f"http://127.0.0.1:{provider}/v1", "API_KEY": KEY}
    env = {f"MANDOR_LLM_{name}": value for name, value in model.items()} | {"PYTHONPATH": f"{ROOT}:{distribution}"}
    system.processes.worker("planner", queues="plan", concurrency=1, env=env)
    line = json.loads(system.processes.wait_for_line("health.served", name="planner"))
    return str(line["url"])


def test_a_provider_that_comes_and_goes(url: str, provider: int) -> None:
    turns(url, "/readyz", {"model"}, MODEL_S)
    with ExitStack() as stack:
        with turning(url, "/readyz", set(), MODEL_S):
            stub = stack.enter_context(model_server("openai", Says(), port=provider))
        with turning(url, "/readyz", {"model"}, MODEL_S):
            stub.listing = Refuses(401)
        (said,) = probed(url, "/readyz")[1]["failing"]
        assert "MANDOR_LLM_API_KEY" in said["text"] + said["mend"]
        with turning(url, "/readyz", set(), MODEL_S):
            stub.listing = Says()
        with turning(url, "/readyz", {"model"}, MODEL_S):
            stack.close()


def test_what_a_plugin_says(url: str, distribution: Path, provider: int) -> None:
    mark = distribution / "empty"
    with model_server("openai", Says(), port=provider):
        turns(url, "/readyz", set(), MODEL_S)
        with turning(url, "/readyz", {"vectors"}, EVERY_S):
            mark.touch()
        (said,) = probed(url, "/readyz")[1]["failing"]
        assert said["text"] == "the index is empty"
        assert failing(url, "/livez") == set()
        with turning(url, "/readyz", set(), EVERY_S):
            mark.unlink()
