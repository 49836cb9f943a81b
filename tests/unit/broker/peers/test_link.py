"""Links between processes of a cluster: requests and answers, losses, cuts and delays. Real sockets, one loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.controller.requests import VERSIONS
from kafkaprod.broker.peers.link import PeerLink
from kafkaprod.broker.peers.rules import LinkRules
from kafkaprod.broker.peers.server import PeerServer
from kafkaprod.clock import SystemClock
from kafkaprod.net.poller import Poller
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkaprod.protocol.schema import Request, Response
from tests.support.clock import Stopwatch

REQUEST = BrokerHeartbeatRequest(broker_id=1, broker_epoch=7)
ANSWER = BrokerHeartbeatResponse(is_fenced=False)


class Rig:
    """A server and a link in one loop."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.poller = Poller()
        self.rules = LinkRules()
        self.requests: list[Request] = []
        self.answers: list[Response | None] = []
        self.link = PeerLink(self.poller, SystemClock(), self.rules, "1", "controller", path)
        self.server: PeerServer | None = None

    def serve(self) -> None:
        self.server = PeerServer(self.poller, self.path, VERSIONS, self._on_request)

    def stop_serving(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None

    def ask(self, timeout_ms: int = 5_000) -> None:
        self.link.send(REQUEST, 0, self.answers.append, timeout_ms)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            for data, mask in self.poller.poll(5):
                data.on_ready(mask)
            self.link.on_time()

    def _on_request(self, request: Request, reply: Callable[[Response], None]) -> None:
        self.requests.append(request)
        reply(ANSWER)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(str(tmp_path / "s"))
    yield rig
    rig.link.close()
    rig.stop_serving()
    rig.poller.close()


def test_requests_are_answered_in_order(rig: Rig) -> None:
    rig.serve()
    for _ in range(3):
        rig.ask()
    rig.run_until(lambda: len(rig.answers) == 3)
    assert rig.answers == [ANSWER] * 3
    assert rig.requests == [REQUEST] * 3


def test_no_process_means_no_answer_at_once(rig: Rig) -> None:
    rig.ask()
    assert rig.answers == [None]


def test_a_lost_connection_is_made_again(rig: Rig) -> None:
    rig.serve()
    rig.ask()
    rig.run_until(lambda: len(rig.answers) == 1)
    rig.stop_serving()
    rig.run_until(lambda: rig.link.fileno() == -1)
    rig.serve()
    rig.ask()
    rig.run_until(lambda: len(rig.answers) == 2)
    assert rig.answers == [ANSWER, ANSWER]


def test_a_cut_on_the_way_out_loses_the_request(rig: Rig) -> None:
    rig.serve()
    rig.rules.replace([["1", "controller"]], {}, {})
    rig.ask(timeout_ms=20)
    rig.run_until(lambda: rig.answers == [None])
    assert rig.requests == []


def test_a_cut_on_the_way_back_loses_the_answer(rig: Rig) -> None:
    rig.serve()
    rig.rules.replace([["controller", "1"]], {}, {})
    rig.ask(timeout_ms=200)
    rig.run_until(lambda: rig.answers == [None])
    assert rig.requests == [REQUEST]


def test_a_delay_holds_messages_back(rig: Rig) -> None:
    rig.serve()
    rig.rules.replace([], {"1>controller": 30, "controller>1": 30}, {})
    waited = Stopwatch()
    rig.ask()
    rig.run_until(lambda: rig.answers == [ANSWER])
    assert waited.ms >= 55


@pytest.mark.parametrize("direction", ["1>controller", "controller>1"])
def test_a_rate_lets_bytes_pass_one_after_the_other(rig: Rig, direction: str) -> None:
    rig.serve()
    rig.ask()
    rig.run_until(lambda: rig.answers == [ANSWER])
    rig.rules.replace([], {}, {direction: 2_000})
    waited = Stopwatch()
    for _ in range(20):  # of 18 bytes or more each, 100 may pass at once
        rig.ask()
    rig.run_until(lambda: len(rig.answers) == 21)
    assert rig.answers == [ANSWER] * 21
    assert waited.ms >= 100


def test_a_link_without_a_rate_again_is_fast_again(rig: Rig) -> None:
    rig.serve()
    rig.ask()
    rig.run_until(lambda: rig.answers == [ANSWER])
    rig.rules.replace([], {}, {"1>controller": 10, "controller>1": 10})
    for _ in range(20):
        rig.ask()
    rig.link.on_time()
    rig.rules.replace([], {}, {})
    rig.run_until(lambda: len(rig.answers) == 21)


def test_a_server_that_ends_behind_a_slow_link_is_noticed(rig: Rig) -> None:
    rig.serve()
    rig.ask()
    rig.run_until(lambda: rig.answers == [ANSWER])
    rig.rules.replace([], {}, {"controller>1": 1})
    rig.ask(timeout_ms=100)
    rig.run_until(lambda: len(rig.requests) == 2)
    rig.stop_serving()
    rig.run_until(lambda: rig.answers == [ANSWER, None])


def test_rules_survive_the_way_through_json() -> None:
    rules = LinkRules({("1", "2"), ("2", "controller")}, {("1", "2"): 5}, {("2", "1"): 7})
    again = LinkRules()
    again.replace(**rules.to_json())
    assert again == rules
