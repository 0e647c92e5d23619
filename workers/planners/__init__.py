"""Planners: what turns a goal into a planner's answer, which the door then judges like anybody else's.

python.py    functions declared with @planner
static.py    plans that came with the submission, ready
llm/         the planner `llm`, a function that asks a model
"""

from workers.planners.base import Answer, PlannerInputInvalid
from workers.planners.python import call_planner
from workers.planners.static import ready_plan

__all__ = ["Answer", "PlannerInputInvalid", "call_planner", "ready_plan"]
