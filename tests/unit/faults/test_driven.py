"""What runs are submitted with."""

from workers.faults.driven import Driven


def test_a_context_may_name_its_run() -> None:
    made = Driven("shop.checkout", context={"order": "try-{run}", "lines": [{"sku": "{run}", "count": 2}]})
    assert made.fields("7-s1-0") == {
        "planner": "shop.checkout",
        "context": {"order": "try-7-s1-0", "lines": [{"sku": "7-s1-0", "count": 2}]},
    }


def test_that_of_a_ready_plan_is_left_as_it_is() -> None:
    context = {"order": "{run}"}
    assert Driven(None, "the plan", context).fields("7-s1-0") == {"plan": "the plan", "context": context}


def test_each_run_of_the_kits_own_example_has_its_order() -> None:
    assert Driven().fields("7-s1-0")["context"] == {"order": "7-s1-0"}
