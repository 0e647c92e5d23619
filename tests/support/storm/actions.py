"""What the storm's runs do, beside the fault kit's example: a step that fails at first, one that may fail for good, and
a planner for every shape."""

from pydantic import BaseModel

from tests.support.storm import shapes
from workers import Context, ExecutionPlan, PermanentError, PlanContext, action, planner, step
from workers.faults import example


class Ending(BaseModel):
    """The last step of an order. fails: for good."""

    order: str
    fails: bool = False


class Wish(BaseModel):
    """What a planner is asked for."""

    order: str
    shape: str


@action("storm.insist", effect="keyed")
def insist(params: example.Charge, ctx: Context) -> example.Done:
    """Take money from somebody whose first answer is lost."""
    done = example.charge(params, ctx)
    if ctx.attempt == 1:
        raise ConnectionError("the answer did not come")
    return done


insist.compensation(example.refund)


@action("storm.end", effect="pure")
def end(params: Ending, ctx: Context) -> example.Done:
    """Close an order, or find that it is not to be had."""
    ctx.check()
    if params.fails:
        raise PermanentError("this order is not to be had")
    return example.Done(where=params.order)


@planner(shapes.PLANNER)
def plan(wish: Wish, ctx: PlanContext) -> ExecutionPlan:
    """A plan of the wished shape."""
    return ctx.plan(
        *(
            step(one["action"], one["params"], id=one["id"], needs=one["needs"])
            for one in shapes.steps(wish.shape, wish.order)
        )
    )
