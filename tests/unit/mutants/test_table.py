"""The planted bugs can be planted: the text of each occurs once, and its tests exist."""

import pytest

from tests.mutants.table import MUTANTS, Mutant
from tests.support.builds.tree_copy import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_has_its_place_and_its_tests(mutant: Mutant) -> None:
    text = (ROOT / "kafkaprod" / mutant.path).read_text()
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert all((ROOT / test).exists() for test in mutant.tests)
