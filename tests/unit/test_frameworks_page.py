"""Every program of docs/frameworks.md is run by `python -m tests.foreign.frameworks`, and none is missing there."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.foreign.frameworks import FRAMEWORKS, PAGE, Framework, Run, differences, original_of, program_of
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
        assert "install(" not in original.partition("\ndef ")[0]


def test_what_differs_is_seen() -> None:
    before = Run("", Counter({("orders", None, b"1", ()): 2}))
    after = Run("", Counter({("orders", None, b"1", ()): 1, ("orders", None, b"2", ("h",)): 1}))
    exact, by_count = Framework("", ()), Framework("", (), ids_differ=True)
    assert differences(exact, before, before) == []
    assert differences(exact, before, after) == [
        "1 missing: ('orders', None, b'1', ())",
        "1 too many: ('orders', None, b'2', ('h',))",
    ]
    assert differences(by_count, before, after) == ["1 missing: ('orders', ())", "1 too many: ('orders', ('h',))"]
