"""The layout keeps what it promises; `python -m tests.architecture` prints the figures."""

from __future__ import annotations

from tests.architecture import counts


def test_the_package_has_few_rooms() -> None:
    assert 20 < len(counts.rooms()) <= counts.MOST_ROOMS


def test_no_arrow_goes_up() -> None:
    assert counts.arrows_up() == set()


def test_no_imports_are_circular() -> None:
    assert counts.circles(counts.imports()) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"a"}}
    assert counts.circles(graph) == [["b", "c"]]
