"""API key -> handler: what is announced, where it runs, and what happens when it fails.

A handler is a module of `handlers` with the names of `Handler`; it is found by them. What ApiVersions announces is
computed from the table of handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, Protocol, cast

from kafkaprod.broker import handlers
from kafkaprod.broker.calls.request import ClientRequest, CloseConnectionError, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import Coordinator
from kafkaprod.broker.handlers import refusals
from kafkaprod.broker.handlers.authorization import RefuseRequest, Special, authorized_call
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import version_ranges
from kafkaprod.protocol.schema import Request, Response

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """The names of a handler's module. The request's type is the module's own.

    Five more are there where they are needed:

        COORDINATED_BY = GROUPS     the coordinator that answers; others refuse, and answers wait for its log's replicas
        NEEDS_LEVEL = "group.version"    the feature without which the answer is UNSUPPORTED_VERSION
        PEERS_ONLY = True           only other processes of the cluster may ask; clients do not learn of it
        def authorize(authorizer, call, deny)    the ACL rule, if the tables of `cluster.authorization` cannot say it
        def refuse(request, error_code)    the response in which every part has failed, if `refusals` cannot derive it
    """

    API: ApiKey
    LANE: Lane
    MAX_VERSION: int

    @property
    def handle(self) -> Callable[[Broker, Any], Outcome]:
        """Handle a request."""
        ...


def _discover() -> dict[ApiKey, Handler]:
    """Import the modules of `handlers` and return those with an API; others there are what handlers share."""
    found: dict[ApiKey, Handler] = {}
    for name in sorted(module.name for module in iter_modules(handlers.__path__)):
        module = import_module(f"{handlers.__name__}.{name}")
        if hasattr(module, "API"):
            assert module.API not in found, f"two handlers of {module.API.name}"
            found[module.API] = cast(Handler, module)
    return found


HANDLERS: Final[Mapping[ApiKey, Handler]] = _discover()

COORDINATORS: Final[Mapping[ApiKey, Coordinator]] = {
    api: handler.COORDINATED_BY for api, handler in HANDLERS.items() if hasattr(handler, "COORDINATED_BY")
}
"""The APIs that a coordinator answers, and which one."""

LEVELS: Final[Mapping[ApiKey, str]] = {
    api: handler.NEEDS_LEVEL for api, handler in HANDLERS.items() if hasattr(handler, "NEEDS_LEVEL")
}
"""The APIs that need a level of a feature above 0, and of which one. They stay announced without it, as in Kafka."""

SPECIAL_RULES: Final[Mapping[ApiKey, Special]] = {
    api: handler.authorize for api, handler in HANDLERS.items() if hasattr(handler, "authorize")
}
"""The APIs whose ACL rule does not fit into a table."""

PEER_APIS: Final = frozenset(api for api, handler in HANDLERS.items() if hasattr(handler, "PEERS_ONLY"))
"""The APIs that only processes of the same cluster use."""

REFUSALS: Final[Mapping[ApiKey, RefuseRequest]] = {
    api: getattr(handler, "refuse", refusals.refuse) for api, handler in HANDLERS.items()
}
"""How each API answers that every part of a request has failed."""

METRICS_APIS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""The APIs of metrics that clients push."""

LOGIN_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
BEFORE_LOGIN: Final = LOGIN_APIS | {ApiKey.API_VERSIONS}
"""The APIs a client may use before it has logged in."""


def announced_versions(
    *, takes_metrics: bool = False, max_versions: Mapping[ApiKey, int] | None = None
) -> dict[ApiKey, tuple[int, int]]:
    """Return what ApiVersions answers: from the first declared version to the highest the handler understands.

    The APIs of the login are announced by every listener, as in Kafka: clients that guess the version by what is
    announced take a broker without them for one of 2015. Those of client metrics are where they are taken. Produce is
    announced from 0, though 0 to 2 close the connection: librdkafka before 2.6 turns compression off where it does
    not find version 0 (KAFKA-18659).

    Args:
        takes_metrics: Clients may push metrics.
        max_versions: The highest announced versions of some APIs.

    Raises:
        ConfigError: A version of `max_versions` is below the lowest there is.
    """
    handled = HANDLERS.keys() - PEER_APIS
    if not takes_metrics:
        handled -= METRICS_APIS
    versions = version_ranges(handled, {api: handler.MAX_VERSION for api, handler in HANDLERS.items()})
    for api, version in (max_versions or {}).items():
        if api in versions:
            low, high = versions[api]
            if version < low:
                raise ConfigError(f"max_versions: {api.name} begins with version {low}, not {version}")
            versions[api] = (low, min(version, high))
    versions[ApiKey.PRODUCE] = (0, versions[ApiKey.PRODUCE][1])
    versions[ApiKey.SASL_HANDSHAKE] = (1, 1)
    return versions


def peer_versions() -> dict[ApiKey, tuple[int, int]]:
    """Return what is announced to the other processes of the cluster."""
    handled = HANDLERS.keys() - LOGIN_APIS
    return version_ranges(handled, {api: handler.MAX_VERSION for api, handler in HANDLERS.items()})


def coordinator_of(handler: Handler, body: Request) -> Coordinator | None:
    """Return the coordinator that a request is for, None if any broker answers."""
    coordinator = COORDINATORS.get(handler.API)
    if coordinator is None or (coordinator.only_with and getattr(body, coordinator.only_with) is None):
        return None
    return coordinator


def refuse(request: ClientRequest[Any], error_code: int) -> Response:
    """Return the response in which every part of the request has failed."""
    return REFUSALS[request.body.api](request, error_code)


def call(handler: Handler, broker: Broker, request: ClientRequest[Request]) -> Outcome:
    """Run a handler; an exception that it does not handle is answered with UNKNOWN_SERVER_ERROR.

    Raises:
        CloseConnectionError: The handler wants the connection closed.
    """
    coordinator = coordinator_of(handler, request.body)
    if coordinator is not None:
        error_code = broker.standing.refusal(coordinator)
        if error_code is not ErrorCode.NONE:
            return refuse(request, error_code)
    feature = LEVELS.get(handler.API)
    if feature is not None and not broker.level_of(feature):
        return refuse(request, ErrorCode.UNSUPPORTED_VERSION)
    try:
        if request.is_peer or broker.acls.is_open:
            return handler.handle(broker, request)
        special = SPECIAL_RULES.get(handler.API)
        return authorized_call(broker, request, lambda other: handler.handle(broker, other), refuse, special)
    except CloseConnectionError:
        raise
    except Exception:
        logger.exception("%s version %d failed", handler.API.name, request.version)
        return refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
