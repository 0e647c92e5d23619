"""A worker dies between its transaction in a database of its own and the store's commit."""

from typing import Any

from sqlalchemy import select

from orchestrator.ledger import upgrade_effects
from tests.support.ledgers import Places
from tests.support.shop import open_shop, sales
from tests.support.system import ACTIONS, step
from tests.support.waiting import eventually


def test_a_sale_is_made_once_and_taken_back_once(places: Places, new_system: Any) -> None:
    url = places.unmade()
    upgrade_effects(url)
    shop = open_shop(url)
    system = new_system(effects_urls=url, actions=f"{ACTIONS},tests.support.shop")
    env = {"SHOP_URL": url}
    system.start_control()
    system.start_steps("first", concurrency=1, env=env)
    run_id = system.submit(step("shop.sell", "a", value="box", linger_s=600), step("test.flaky", "b", failures=9))
    eventually(lambda: system.effects(run_id=run_id, what="noted"), what="the sale")
    with shop.connect() as connection:
        assert connection.execute(select(sales.c.what)).scalars().all() == ["box"]
    system.processes.kill("first")
    eventually(lambda: system.view(run_id).steps[0].status == "completed", what="the sale found")
    assert system.view(run_id).steps[0].result == {"value": "box"}
    system.start_steps("second", concurrency=1, env=env)
    assert system.wait(run_id).status == "compensated"
    assert len(system.effects(run_id=run_id, what="noted")) == 1
    with shop.connect() as connection:
        assert connection.execute(select(sales.c.what)).scalars().all() == []
    shop.dispose()
