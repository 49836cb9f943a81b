"""Places for connections follow the options of now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from kafkaprod.broker.config import BrokerConfig, Limits
from kafkaprod.broker.server.admission import Admission, AdmissionDecision
from kafkaprod.broker.server.session import Session, SessionStage


def test_a_limit_that_clients_change_counts_at_once() -> None:
    limits = [Limits(max_connections=1)]
    admission = Admission(lambda: BrokerConfig(data_dir="", limits=limits[0]), has_login=False)
    assert admission.check("a", 0).refusal is None
    limits[0] = Limits(max_connections=0)
    assert admission.check("a", 0).refusal == "max_connections=0"
    limits[0] = Limits(max_connections_per_ip=0)
    assert admission.check("a", 0).refusal == "max_connections_per_ip=0"


class FakeSession:
    """What the places need of a connection."""

    host, stage, opened_ms, is_stranger = "a", SessionStage.IDLE, 0, True

    def __init__(self, number: int, listener: str) -> None:
        self.number, self.listener = number, listener

    def fileno(self) -> int:
        return self.number


def test_a_full_listener_loses_its_own_first_stranger_only() -> None:
    """So a flood of those that never log in keeps out none who does, whatever listener it comes to."""
    config = BrokerConfig(data_dir="", options={"listener.name.outer.max.connections": "2"})
    admission = Admission(lambda: config, has_login=True)
    sessions = [cast(Session, FakeSession(number, name)) for number, name in enumerate(["INNER", "OUTER", "OUTER"])]
    for session in sessions:
        assert admission.check("a", 0, session.listener) == AdmissionDecision()
        admission.add(session)
    assert admission.check("a", 0, "OUTER") == AdmissionDecision(victim=sessions[1])
    config = replace(config, limits=Limits(max_connections_per_ip=3))
    assert admission.check("a", 0, "OUTER").refusal == "max_connections_per_ip=3"
    assert admission.check("b", 0, "OUTER") == AdmissionDecision(victim=sessions[1])
    config = replace(config, limits=Limits())
    assert admission.check("a", 0, "INNER") == AdmissionDecision()
    for session in sessions[1:]:
        cast(Any, session).is_stranger = False
        admission.note_request(session)
    assert admission.check("a", 0, "OUTER").refusal == "listener.name.outer.max.connections=2"
    admission.remove(sessions[2])
    assert admission.check("a", 0, "OUTER") == AdmissionDecision()
