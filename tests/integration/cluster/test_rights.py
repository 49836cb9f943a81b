"""Who has no right learns and changes nothing in a cluster, beside one without secrets.

All combinations of names: `python -m tests.campaigns.rights`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.rights import APIS, beside_twin, check, cluster_of_three


@pytest.mark.parametrize("part", range(4))
def test_who_has_no_right_learns_and_changes_nothing(part: int) -> None:
    check(beside_twin(cluster_of_three, 3, APIS[part::4], 2))
