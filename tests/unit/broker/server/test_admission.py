"""Places for connections follow the options of now."""

from __future__ import annotations

from kafkaprod.broker.config import Limits
from kafkaprod.broker.server.admission import Admission


def test_a_limit_that_clients_change_counts_at_once() -> None:
    limits = [Limits(max_connections=1)]
    admission = Admission(lambda: limits[0], has_login=False)
    assert admission.check("a", 0).refusal is None
    limits[0] = Limits(max_connections=0)
    assert admission.check("a", 0).refusal == "max_connections=0"
    limits[0] = Limits(max_connections_per_ip=0)
    assert admission.check("a", 0).refusal == "max_connections_per_ip=0"
