"""No room has more lines of code than its budget, which a commit raises on purpose."""

from __future__ import annotations

from tests.checking import weight

# What a budget may have above the lines there are, so that small changes do not touch it.
MOST_LEFT = 0.05
MOST_LEFT_OF_SMALL = 60


def test_no_room_has_more_lines_than_its_budget() -> None:
    assert weight.over() == {}, "raise the number in tests/checking/weight.py, if the lines are worth it"


def test_a_budget_is_near_the_lines_there_are() -> None:
    counts = weight.count()
    left = {name: budget - counts.get(name, 0) for name, budget in weight.BUDGETS.items()}
    assert {
        name: lines
        for name, lines in left.items()
        if lines > max(MOST_LEFT * weight.BUDGETS[name], MOST_LEFT_OF_SMALL) or name not in counts
    } == {}, "lower the number in tests/checking/weight.py: the room has become smaller"


def test_lines_of_code_are_those_that_do_something() -> None:
    python = (
        '"""Doc.\n\nMore."""\n\nx = """a\nb"""  # c\n\n# d\ndef f():\n    "Doc."\n    return (\n        1,\n    )\n'
    )
    assert weight.lines_of_python(python) == 6
    cython = (
        '"""Doc.\n\nMore."""\ncdef int f() noexcept nogil:\n    # c\n    return 1\n\n#define X 1\n/* a\nb */\n// c\n'
    )
    assert weight.lines_of_cython(cython) == 3


def test_rooms_of_large_rooms_count_by_themselves() -> None:
    assert weight.room(weight.PACKAGE / "errors.py") == weight.NO_ROOM
    assert weight.room(weight.PACKAGE / "_core" / "queues" / "batch.pyx") == "_core"
    assert weight.room(weight.PACKAGE / "broker" / "storage" / "log" / "log_dir.py") == "broker/storage"
