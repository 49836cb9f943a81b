"""A broker whose handlers are called directly: no socket, no thread, and a clock turned by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.broker.calls.request import ClientRequest, Deferred, NoResponse, Ready
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.own_topics import OwnTopics
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.coordinator.member import GroupConfig
from kafkaprod.broker.server.router import HANDLERS, announced_versions, call
from kafkaprod.broker.storage.log.group_commit import never
from kafkaprod.protocol.schema import Request, Response
from tests.support.clock import ManualClock

ResponseT = TypeVar("ResponseT", bound=Response)


class BrokerWithoutSockets:
    """Handlers, and what they work on. Blocking work is done at once."""

    def __init__(self, data_dir: Path, **options: Any) -> None:
        self.clock = ManualClock()
        self.user: str | None = None  # who is logged in
        self.login: Login | None = None  # in place of a login of that user
        self.purgatory = Purgatory(wakeup=lambda: None)
        options.setdefault("flush_policy", never())
        options.setdefault("groups", GroupConfig(initial_rebalance_delay_ms=0))
        config = BrokerConfig(data_dir=str(data_dir / "data"), **options)
        self.broker = Broker(
            config, self.clock, self.purgatory, self._run_blocking, self._run_blocking, self._run_blocking
        )
        self.broker.api_versions = announced_versions()

    @property
    def own_topics(self) -> OwnTopics:
        """The topics, as the broker itself makes them."""
        assert isinstance(self.broker.topics, OwnTopics)
        return self.broker.topics

    def begin(self, request: Request, version: int, *, client_id: str = "client") -> list[Ready]:
        """Handle a request; the list holds the outcome once there is one."""
        received: list[Ready] = []
        login = self.login
        if login is None:
            login = Login(self.broker.credentials)
            login.user = self.user
        outcome = call(
            HANDLERS[request.api], self.broker, ClientRequest(request, version, client_id, "127.0.0.1", login)
        )
        if isinstance(outcome, Deferred):
            outcome.then(received.append)
        else:
            received.append(outcome)
        return received

    def ask(self, request: Request, response_class: type[ResponseT], version: int) -> ResponseT:
        """Handle a request that is answered at once, and check that the answer can be sent."""
        (outcome,) = self.begin(request, version)
        response = outcome.response if isinstance(outcome, FileResponse) else outcome
        assert isinstance(response, response_class)
        response.encode(version)
        return response

    def has_no_answer(self, request: Request, version: int) -> bool:
        """Handle a request; whether it is one without an answer."""
        return self.begin(request, version) == [NoResponse.NO_RESPONSE]

    def advance(self, ms: int) -> None:
        """Let time pass for all that waits."""
        now_ms = self.clock.advance(ms)
        self.purgatory.run(now_ms)
        self.broker.groups.on_time(now_ms)
        self.broker.transactions.on_time(now_ms, self.clock.wall_ms())
        self.broker.transactions.next_deadline_ms(now_ms)

    def _run_blocking(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        work()
        if then is not None:
            then()
