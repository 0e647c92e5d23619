"""A module fits a head, a function fits a screen."""

from tests.architecture.sources import ROOT, functions, modules

LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
ORDINARY_FUNCTION = 25


def test_no_module_is_longer_than_a_head_holds() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        (path.name, name, lines) for path in modules() for name, lines in functions(path) if lines > LONGEST_FUNCTION
    ]
    assert long == []


def test_nine_functions_in_ten_are_short() -> None:
    lengths = [lines for path in modules() for _, lines in functions(path)]
    short = sum(lines <= ORDINARY_FUNCTION for lines in lengths)
    assert short >= 0.9 * len(lengths)
