"""Who has no right learns and changes nothing in a cluster, beside one without secrets.

A quarter of the APIs here, the others at night; all combinations of names: `python -m tests.campaigns.rights`. What a
broker alone refuses and shows: `tests/unit/broker/cluster/test_rights_of_others.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.rights import APIS, beside_twin, check, cluster_of_three


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in (1, 2, 3))])
def test_who_has_no_right_learns_and_changes_nothing(part: int) -> None:
    check(beside_twin(cluster_of_three, 3, APIS[part::4], 2))
