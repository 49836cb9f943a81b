"""The layout keeps what it promises; `python -m tests.architecture` prints the figures."""

from __future__ import annotations

from tests.architecture import counts

LONG_CLASSES = {
    "kafkaprod/_core/queues/blocks.pyx:Block": 351,
    "kafkaprod/_core/requests/drain.pyx:Drain": 357,
    "kafkaprod/_core/queues/accumulator.pyx:Accumulator": 361,
}
"""Classes that are longer than the limit, and how long they may be."""


def test_the_package_has_few_rooms() -> None:
    assert 20 < len(counts.rooms()) <= counts.MOST_ROOMS


def test_no_arrow_goes_up() -> None:
    assert counts.arrows_up() == set()


def test_no_class_is_long() -> None:
    lengths = dict(counts.long_classes(counts.CLASS_LINES))
    assert set(lengths) == set(LONG_CLASSES)
    assert [name for name, length in lengths.items() if length > LONG_CLASSES[name]] == []


def test_compiled_classes_are_measured() -> None:
    source = "cdef class A:\n    cdef int a\n\n    def b(self):\n        pass\n\n\n# why\ncdef class B(A):\n    pass\n"
    assert counts.compiled_class_lengths(source) == [("A", 5), ("B", 2)]
    assert any("accumulator.pyx" in name for name, _ in counts.long_classes(50))


def test_no_imports_are_circular() -> None:
    assert counts.circles(counts.imports()) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"a"}}
    assert counts.circles(graph) == [["b", "c"]]
