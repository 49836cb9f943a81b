"""Every program of docs/frameworks.md is run by `python -m tests.foreign.frameworks`, and none is missing there."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.foreign.frameworks import (
    FRAMEWORKS,
    PAGE,
    Arrived,
    Framework,
    Run,
    differences,
    original_of,
    program_of,
)
from tests.pages.documentation import blocks


def test_each_program_belongs_to_one_framework() -> None:
    programs = [block.text for block in blocks(PAGE)]
    assert sorted(programs) == sorted(program_of(framework) for framework in FRAMEWORKS.values())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_program_compiles_with_and_without_kafkaprod(name: str) -> None:
    program = program_of(FRAMEWORKS[name])
    compile(program, name, "exec")
    original = original_of(program)
    if original is not None:
        compile(original, name, "exec")
        assert "kafkaprod" not in original


def test_what_differs_is_seen() -> None:
    one = Arrived("orders", None, None, b"1", ())
    before = Run("", Counter({one: 2}))
    after = Run("", Counter({one: 1, Arrived("orders", 2, b"k", b"2", (("h", b"v"),)): 1}))
    exact, by_count = Framework("", ()), Framework("", (), ids_differ=True)
    assert differences(exact, before, before) == []
    assert differences(exact, before, after) == [
        f"1 missing: {one}",
        "1 too many: Arrived(topic='orders', partition=2, key=b'k', value=b'2', headers=(('h', b'v'),))",
    ]
    assert differences(by_count, before, after) == ["1 missing: ('orders', ())", "1 too many: ('orders', ('h',))"]


def test_what_must_arrive_is_compared_where_there_is_no_other_run() -> None:
    after = Run("", Counter({Arrived("orders", 2, b"k", b"1", ()): 2}))
    assert differences(Framework("", ()), None, after) == []
    assert differences(Framework("", (), expected=Counter({(b"k", b"1"): 2})), None, after) == []
    assert differences(Framework("", (), expected=Counter({(b"k", b"2"): 2})), None, after) == [
        "2 missing: (b'k', b'2')",
        "2 too many: (b'k', b'1')",
    ]
