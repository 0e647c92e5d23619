"""The scenarios by name, each in a line: what is done. Nothing else, so that they can be listed in no time."""

from typing import Final

TITLES: Final[dict[str, str]] = {
    "S1": "a child is killed after its effect, before the commit",
    "S2": "the same in every slot at once, with more steps waiting",
    "S3": "a whole worker is killed",
    "S4": "steps outlast lease and visibility timeout",
    "S5": "a worker is frozen past its leases and woken, once while runs go on and once after their end",
    "S6": "the state store forgets everything",
    "S7": "the server is away for 20 s, then restarted three times",
    "S8": "every message comes 50 times, and so does the submission",
    "S9": "a step holds the interpreter for ever, another never returns",
    "S10": "a step fails while those beside it commit",
    "S11": "two operators replay a dead letter at once",
    "S12": "a process is killed before, amid and after each publish, of bells and callbacks, too",
}
