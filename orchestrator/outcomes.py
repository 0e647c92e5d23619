"""What came of a decision about a run or a dead letter, in words.

An outcome is stored as a word, and behind a colon what it is about: `too_late:succeeded`. It may have been written by
another version: what nobody here knows is said as it is stored.
"""

from collections.abc import Mapping
from typing import Final

RUN: Final = {
    "ending": "it is ending",
    "waiting": "it was ending already ({about})",
    "paused": "paused: nothing more of it starts",
    "resumed": "it goes on",
    "retried": "started over, as generation {about}",
    "again": "the step may start",
    "noted": "noted: the step may start when its turn has come",
    "failed": "refused: the step has failed, and its run is ending",
    "committed": "the step counts as completed",
    "skipped": "the step counts as never done",
    "too_late": "too late: {about}",
    "other_generation": "dropped: the run has been started over meanwhile, it is generation {about} now",
    "not_due": "nothing to decide: {about}",
    "in_doubt": "step {about} is in doubt: say first what became of it, with `mandor run resolve`",
    "undo_in_doubt": "the undo of step {about} may have happened: look there, then say so in `mandor dlq drop`",
    "no_files": "the files that step {about} worked with have gone meanwhile: do it again with `--from {about}`, "
    "and with `--new-key {about}` besides where its effect is not had twice",
    "no_step": "the run has no step {about}",
    "submitted_again": "what it was to do was submitted again, for dead letter {about}",
    "kept": "step {about} is completed and kept: it needs no new key",
    "not_closed": "another attempt of the step has begun meanwhile: look again",
    "unknown": "the state store does not have it (any more)",
}
LETTER: Final = {
    "submitted": "submitted as run {about}",
    "retried": "run {run} was started over, as generation {about}",
    "undoing": "step {step} is undone again, in generation {about} of the run",
    "begun_before": "the undo of step {step} has been begun again already",
    "posted_again": "callback {about} is posted again",
    "posted_before": "nothing was changed: the callback is {about}, after what was done since this letter was written",
    "dropped": "dropped",
}


def of_run(outcome: str) -> str:
    """What came of a decision about a run."""
    return _said(RUN, outcome)


def of_letter(outcome: str, run_id: str | None, step_id: str | None) -> str:
    """What came of a decision about a letter. run_id, step_id: what the letter is about."""
    word, _, about = outcome.partition(":")
    if word == "refused":
        return f"it could not be done: {of_run(about)}"
    return _said(LETTER, outcome, run=run_id, step=step_id)


def _said(words: Mapping[str, str], outcome: str, **what: str | None) -> str:
    word, _, about = outcome.partition(":")
    return words[word].format(about=about, **what) if word in words else outcome  # which may hold braces: no template
