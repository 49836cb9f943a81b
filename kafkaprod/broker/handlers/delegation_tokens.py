"""What the handlers of delegation tokens share: who may request anything of them, and how the controller is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.controller.envelopes import opened, seal
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Response

IsShown = Callable[[Any], bool]


def may_request(request: ClientRequest[Any]) -> bool:
    """Return whether a client may have to do with tokens: it has a name, which is not that of a token's owner."""
    return request.login is not None and request.login.user is not None and not request.is_by_token


def ask_controller(
    broker: Broker,
    request: ClientRequest[Any],
    refuse: Callable[[ClientRequest[Any], int], Response],
    is_shown: IsShown,
) -> Outcome:
    """Have the controller decide; the answer waits for this broker's metadata.

    Args:
        broker: This broker.
        request: What the client has sent.
        refuse: Makes the answer if the controller gives none.
        is_shown: Whether this broker's metadata shows what an answer says.
    """
    sealed = seal(request.body, request.version, request.principal, request.client_host)

    def open_answer(answer: Response | None) -> Any:
        return opened(answer, request.body, request.version)

    def finish(answer: Response | None) -> Response:
        return open_answer(answer) or refuse(request, ErrorCode.REQUEST_TIMED_OUT)

    def is_visible(answer: Response | None) -> bool:
        response = open_answer(answer)
        return response is None or bool(response.error_code) or is_shown(response)

    return broker.standing.forward(sealed, finish, is_visible)


def shows_end(broker: Broker, request: ClientRequest[Any]) -> IsShown:
    """Return whether the metadata shows the end that an answer gives the token of a request."""
    token_id = broker.tokens.id_of(request.body.hmac)

    def is_shown(response: Any) -> bool:
        end_ms = None if token_id is None else broker.tokens.end_of(token_id)
        return end_ms in (None, response.expiry_timestamp_ms)

    return is_shown
