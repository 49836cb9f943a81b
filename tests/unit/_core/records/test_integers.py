"""Integers of callers: the number that was checked is the one that is used."""

import pytest

from kafkaprod._core.records.integers import checked_integer
from kafkaprod.errors import InvalidRecordError


class Liar:
    """Answers __index__ with each of the given numbers in turn, then with the last one; __int__ with -3."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __index__(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __int__(self):
        return -3

    __trunc__ = __int__


class LyingInt(int):
    """An int whose methods claim that it is within any bounds, and convert to -3."""

    def __index__(self):
        return -3

    __int__ = __trunc__ = __index__

    def __lt__(self, other):
        return True

    __le__ = __gt__ = __ge__ = __eq__ = __lt__

    def __hash__(self):
        return 0


@pytest.mark.parametrize(
    ("number", "expected"), [(5, 5), (True, 1), (Liar(4, -3), 4), (LyingInt(7), 7), (0, 0), (2**40, 2**40)]
)
def test_number_is_converted_once_to_an_exact_int(number, expected):
    converted = checked_integer(number, "n", 0, 2**40)
    assert (type(converted), converted) == (int, expected)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (-1, "n=-1 is outside 0..9"),
        (10, "n=10 is outside 0..9"),
        (LyingInt(10), "n=10 is outside 0..9"),
        (LyingInt(-1), "n=-1 is outside 0..9"),
        (2**64, "n=18446744073709551616 is outside 0..9"),
        pytest.param(10**5000, "n of 16610 bits is outside 0..9", id="huge"),
        pytest.param(-(10**5000), "n of 16610 bits is outside 0..9", id="hugely negative"),
        ("1", "n must be int or None, not str"),
        (1.0, "n must be int or None, not float"),
    ],
)
def test_other_numbers_and_types_are_refused_by_name(number, message):
    with pytest.raises(InvalidRecordError, match=message) as caught:
        checked_integer(number, "n", 0, 9)
    assert isinstance(caught.value, TypeError) == (not isinstance(number, int))
