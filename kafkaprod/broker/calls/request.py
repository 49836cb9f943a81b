"""What the router gives a handler, and what a handler gives back.

def handle(broker: Broker, request: ClientRequest[ProduceRequest]) -> Outcome

a Response       sent now
NO_RESPONSE      the request has none (produce with acks=0)
a Deferred       its outcome comes later; the connection takes no other request meanwhile
raise CloseConnectionError   the connection is closed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.errors import IllegalStateError, KafkaError
from kafkaprod.protocol.schema import Request, Response

ANONYMOUS = "ANONYMOUS"

RequestT_co = TypeVar("RequestT_co", bound=Request, covariant=True)


@dataclass(frozen=True, slots=True)
class ClientRequest(Generic[RequestT_co]):
    """A decoded request and who sent it.

    Attributes:
        body: The message; views in it belong to this request alone and may be written to.
        version: The version of the API, within the advertised range.
        client_id: The client's own name; empty if it sends none.
        client_host: Its address.
        login: The login of its connection; None where no login is needed.
        endpoint: The endpoint of the listener it came through; None for the broker's first one.
        is_peer: It came from another process of the cluster, over the cluster's own sockets.
    """

    body: RequestT_co
    version: int
    client_id: str
    client_host: str
    login: Login | None = None
    endpoint: Endpoint | None = None
    is_peer: bool = False

    @property
    def principal(self) -> str:
        """Who sent it, as ACLs name clients."""
        user = None if self.login is None else self.login.user
        return f"User:{ANONYMOUS if user is None else user}"

    @property
    def is_by_token(self) -> bool:
        """Whether the client logged in with a delegation token."""
        return self.login is not None and self.login.is_by_token


class CloseConnectionError(KafkaError):
    """The broker answers this request by closing the connection; the message goes to the log."""


class NoResponse(Enum):
    """The type of NO_RESPONSE."""

    NO_RESPONSE = "no response"


NO_RESPONSE: Final = NoResponse.NO_RESPONSE


class LastResponse(NamedTuple):
    """A response after which the connection is closed. It is delayed, to slow down guessing of passwords."""

    response: Response


Ready = Response | FileResponse | LastResponse | NoResponse | CloseConnectionError
"""What becomes of a request in the end."""


class Deferred:
    """A response that comes later. Not thread-safe: the thread that runs the handler also completes it.

    Attributes:
        on_abandon: Called if the client goes before the completion; set it to release what waits.
    """

    __slots__ = ("_outcome", "_receiver", "on_abandon")

    def __init__(self) -> None:
        self.on_abandon: Callable[[], None] | None = None
        self._outcome: Ready | None = None
        self._receiver: Callable[[Ready], None] | None = None

    @property
    def is_complete(self) -> bool:
        """The outcome is there."""
        return self._outcome is not None

    def abandon(self) -> None:
        """Release what waits, unless the outcome is there: the client is gone. Its receiver gets no outcome."""
        if self._outcome is None:
            on_abandon, self.on_abandon, self._receiver = self.on_abandon, None, None
            if on_abandon is not None:
                on_abandon()

    def complete(self, outcome: Ready) -> None:
        """Give the outcome.

        Raises:
            IllegalStateError: It was given before.
        """
        if self._outcome is not None:
            raise IllegalStateError(f"request completed twice: {self._outcome} and {outcome}")
        self._outcome = outcome
        # Drop both: they refer to the request and back to here, and a large request must not wait for the
        # collector of cycles.
        receiver, self._receiver, self.on_abandon = self._receiver, None, None
        if receiver is not None:
            receiver(outcome)

    def then(self, receiver: Callable[[Ready], None]) -> None:
        """Set what is called with the outcome; called now if it is there. Once."""
        if self._outcome is None:
            self._receiver = receiver
        else:
            self.on_abandon = None
            receiver(self._outcome)


Outcome = Response | FileResponse | LastResponse | NoResponse | Deferred


class Lane(Enum):
    """Where a handler runs.

    The data plane runs in the event loop: a hand-over between threads costs as much as a small request (measured: a
    round trip of 80-120 us in the loop, 130-180 us and a tail of 2 ms over a thread). The control plane has one thread
    of its own, so that its slow disk operations do not stop the data, and its state needs no lock.
    """

    DATA = "event loop"
    CONTROL = "control thread"
