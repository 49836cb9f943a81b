"""A request's way to its handler and back, as `broker.server.dispatcher` makes it: lanes, and the replicas' gate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from kafkaprod.broker.calls.request import ClientRequest, CloseConnectionError, Deferred, Lane, Outcome, Ready
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.router import HANDLERS, Handler, call, coordinator_of, refuse

Receiver = Callable[[Ready], None]


class Exchange:
    """One request on its way.

    Args:
        broker: Handles it: a `serving.HandlerBroker`.
        request: The request.
        receiver: Takes what becomes of it, now or later; not at all once it is given up.

    Attributes:
        is_over: It has its outcome, or the client is gone.
    """

    def __init__(self, broker: Any, request: ClientRequest[Any], receiver: Receiver) -> None:
        self.request = request
        self.is_over = False
        self._broker = broker
        self._receiver = receiver
        self._deferred: Deferred | None = None

    def begin(self) -> None:
        """Hand the request to its handler, on the handler's thread."""
        handler = HANDLERS[self.request.body.api]
        if handler.LANE is Lane.DATA:
            self._handle(handler, self._finish)
        else:
            back = self._broker.from_control
            self._broker.run_control(lambda: self._handle(handler, lambda ready: back(lambda: self._finish(ready))))

    def abandon(self) -> None:
        """Release what waits: the client is gone."""
        self.is_over = True
        if self._deferred is not None:
            self._deferred.abandon()

    def _handle(self, handler: Handler, receiver: Receiver) -> None:
        coordinator = coordinator_of(handler, self.request.body)
        if coordinator is not None:
            receiver = self._broker.standing.after_replicas(coordinator, partial(refuse, self.request), receiver)
        try:
            outcome: Outcome = call(handler, cast(Broker, self._broker), self.request)
        except CloseConnectionError as error:
            receiver(error)
            return
        if isinstance(outcome, Deferred):
            self._deferred = outcome
            outcome.then(receiver)
        else:
            receiver(outcome)

    def _finish(self, ready: Ready) -> None:
        if not self.is_over:
            self.is_over = True
            self._receiver(ready)
