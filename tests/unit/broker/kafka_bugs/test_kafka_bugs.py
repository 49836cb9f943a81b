"""Each bug of the tables stays mended, and its case notices when the rule that mends it is switched off."""

from __future__ import annotations

import pytest

from tests.unit.broker.kafka_bugs.cases import Case
from tests.unit.broker.kafka_bugs.table import CASES


def _name(case: Case) -> str:
    return case.bug


def test_every_bug_is_there_once() -> None:
    assert len({case.bug for case in CASES}) == len(CASES) == 44


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_the_rule_holds(case: Case) -> None:
    case.scenario()


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_without_its_rule_a_case_fails(case: Case) -> None:
    with case.off(), pytest.raises(AssertionError):
        case.scenario()
