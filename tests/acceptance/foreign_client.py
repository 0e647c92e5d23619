"""A stranger's program: it knows Celery, two URLs and a task's name, and has none of our code.

Reads {"broker", "results", "calls": [send_task's arguments, …]} from standard input, sends all calls, then waits for
the answers and writes one JSON line for each: {"answer": …} or {"error": [type, text]}. Run it with `python -I`.
"""

import json
import sys
from typing import Any

from celery import Celery


def main() -> None:
    """Send, wait, print."""
    given = json.load(sys.stdin)
    app = Celery("stranger", broker=given["broker"], backend=given["results"])
    sent = [app.send_task("orchestrator.submit", **call) for call in given["calls"]]
    for result in sent:
        sys.stdout.write(json.dumps(outcome(result)) + "\n")
    assert "orchestrator" not in sys.modules


def outcome(result: Any) -> dict[str, Any]:
    """What became of one call."""
    try:
        return {"answer": result.get(timeout=60)}
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
        return {"error": [type(error).__name__, str(error)]}


if __name__ == "__main__":
    main()
