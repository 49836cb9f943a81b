"""Sends the requests that the identity wants: producer ids, and those of transactions. Sender thread only."""

from __future__ import annotations

from functools import partial

from kafkaprod.engine.identity import MAX_WAIT_MS, Identity, IdentityRequest
from kafkaprod.engine.upkeep import Upkeep
from kafkaprod.errors import ConnectionLostError, UnsupportedVersionError
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.schema import Request


class IdentityRequests:
    """See the module docstring.

    Args:
        identity: Says what it wants, and takes the answers.
        pool: Sends the requests.
        upkeep: Knows when a node may be tried again, and logs what is refused for long.
        request_timeout_ms: How long to wait for an answer.
    """

    def __init__(self, identity: Identity, pool: NodePool, upkeep: Upkeep, request_timeout_ms: int) -> None:
        self._identity = identity
        self._pool = pool
        self._upkeep = upkeep
        self._request_timeout_ms = request_timeout_ms

    def send_next(self, now_ms: int) -> int:
        """Send the request that the identity wants; return how long nothing more will be due."""
        wanted = self._identity.wanted(now_ms)
        if wanted is None:
            return self._identity.delay_ms(now_ms)
        node_id = self._pool.least_loaded_node(now_ms) if wanted.node_id is None else wanted.node_id
        if node_id is None:
            return self._upkeep.shortest_delay(now_ms)
        if not self._pool.is_ready(node_id, now_ms):
            delay_ms = self._pool.ready_delay_ms(node_id, now_ms)
            if delay_ms and wanted.node_id is not None:  # the coordinator may have moved to another node
                error = ConnectionLostError(
                    f"{self._pool.members.name_of(node_id)} cannot be reached now", node=node_id
                )
                self._identity.on_unsendable(wanted, error, now_ms)
                return self._identity.delay_ms(now_ms)
            return delay_ms or MAX_WAIT_MS
        version = None
        if wanted.versions is not None:
            version = self._pool.api_version(node_id, wanted.request.api, *wanted.versions)
            if version is None:
                who, api = self._pool.members.name_of(node_id), type(wanted.request).__name__
                what = f"{who} supports no version of {api} in {wanted.versions}"
                self._identity.on_unsendable(wanted, UnsupportedVersionError(what, node=node_id), now_ms)
                return 0
        in_version = wanted.in_version
        try:
            request = wanted.request if in_version is None or version is None else in_version(version)
            self._pool.send(
                node_id,
                request,
                on_done=partial(self._on_done, wanted),
                now_ms=now_ms,
                timeout_ms=self._request_timeout_ms,
                version=version,
            )
        except ValueError as error:  # a value that the protocol cannot hold
            self._identity.on_unsendable(wanted, _unencodable(wanted.request, error, node_id), now_ms)
            return 0
        self._identity.on_sent(wanted)
        return MAX_WAIT_MS

    def _on_done(self, wanted: IdentityRequest, done: InFlightRequest, now_ms: int) -> None:
        identity = self._identity
        identity.on_response(wanted, done, now_ms)
        refusal = identity.last_refusal
        if refusal is not None:
            self._upkeep.outages.note(_name(wanted.request), refusal, now_ms)
        else:
            self._upkeep.outages.end(_name(wanted.request))


def _name(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")


def _unencodable(request: Request, cause: ValueError, node_id: int) -> UnsupportedVersionError:
    """Return the error of a request that no version of the protocol can hold: it fails, and nothing else does."""
    error = UnsupportedVersionError(f"{type(request).__name__} cannot be encoded: {cause}", node=node_id)
    error.__cause__ = cause
    return error
