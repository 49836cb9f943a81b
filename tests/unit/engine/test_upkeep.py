from __future__ import annotations

import pytest

from tests.support.producer.sender_rig import TOPIC, Rig


@pytest.mark.parametrize(("is_aware", "preferred"), [(True, {2}), (False, None)])
def test_leaders_in_the_clients_rack_are_preferred_only_if_wanted(is_aware: bool, preferred: set[int] | None) -> None:
    rig = Rig(topics={TOPIC: (1, 2)}, client_rack="r2", partitioner_rack_aware=is_aware)
    assert rig.drain.preferred_nodes == preferred
