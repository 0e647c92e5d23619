"""Errors keep all they say on their way from one process to another."""

import pickle

import pytest
from celery import Celery
from celery.backends.base import Backend

from orchestrator import errors
from orchestrator.errors import MandorError, StoreUnavailable, SubmissionConflict
from workers.outcomes import PermanentError, ProviderError
from workers.workspace import PathRefused

TREE = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, MandorError)]
SPECIAL = (PathRefused("no"), ProviderError("busy", hint="later", retry_after_s=3.0))


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend(Celery("errors", set_as_current=False), serializer="json")


def through_results(backend: Backend, error: Exception) -> BaseException:
    """As the client of a task sees it."""
    found = backend.exception_to_python(backend.decode(backend.encode(backend.prepare_exception(error))))
    assert isinstance(found, BaseException)
    return found


@pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("more", [{}, {"hint": "do this"}, {"path": "field", "hint": "do this"}], ids=len)
def test_nothing_is_lost_in_the_result_store(backend: Backend, cls: type[MandorError], more: dict[str, str]) -> None:
    error = cls("what is wrong", **more)
    found = through_results(backend, error)
    assert type(found) is cls
    assert found.as_json() == error.as_json()
    assert str(found) == str(error)


@pytest.mark.parametrize("hint", [None, "is it running?"])
def test_what_is_said_later_is_not_lost_either(backend: Backend, hint: str | None) -> None:
    error = StoreUnavailable("gone", hint=hint)
    error.also("it is kept")
    found = through_results(backend, error)
    assert isinstance(found, StoreUnavailable)
    assert found.hint == error.hint == ("is it running?; it is kept" if hint else "it is kept")


@pytest.mark.parametrize("error", [SubmissionConflict("m", path="p", hint="h"), PermanentError("m"), *SPECIAL], ids=str)
def test_nothing_is_lost_between_a_child_and_its_parent(error: MandorError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert vars(found) == vars(error)


def test_a_stranger_s_exception_says_what_to_do(backend: Backend) -> None:
    """Without our code Celery makes up a class, and all that it can show are the arguments."""
    stored = backend.prepare_exception(SubmissionConflict("taken", path="request_id", hint="send another one"))
    stranger = backend.exception_to_python({**stored, "exc_module": "not.there"})
    assert "taken" in str(stranger)
    assert "send another one" in str(stranger)
