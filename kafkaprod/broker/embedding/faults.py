"""Scripted faults: what the broker does wrong on purpose, by API key, for tests.

    faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    faults.on(ApiKey.FETCH, delay(200), rate=0.1, seed=7)

    reply_with(error)      not handled; every part of the request is answered with the error
    move_leader()          the leader epoch of the request's partitions grows; NOT_LEADER_OR_FOLLOWER (produce, fetch),
                           with the new leader in versions that have a place for it (KIP-951)
    close()                not handled; the connection is closed
    drop_reply()           handled; the answer never comes, the connection stays open
    close_after_handling() handled; the connection is closed instead of answered
    half_frame()           handled; half of the answer is sent, then the connection is closed
    delay(ms)              handled; the answer is sent later
    throttle(ms)           handled; the answer has the time, and the connection is not read until then

Rules are tried in the order they were given; the first that fires wins. APIs and errors may be given as text, "PRODUCE"
say. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafkaprod.broker.calls.faults import Fault, FaultKind
from kafkaprod.broker.embedding import arguments
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.structs import INT32_MAX


def reply_with(error_code: int | str) -> Fault:
    """Answer every part of the request with an error; nothing is done.

    Args:
        error_code: A member of ErrorCode, its number or its name.

    Raises:
        ConfigError: It is another value.
    """
    return Fault(FaultKind.REPLY_WITH, arguments.error_code(error_code))


def move_leader() -> Fault:
    """Raise the leader epoch of the request's partitions and answer NOT_LEADER_OR_FOLLOWER: for PRODUCE, FETCH."""
    return Fault(FaultKind.MOVE_LEADER)


def close() -> Fault:
    """Close the connection instead of handling the request."""
    return Fault(FaultKind.CLOSE)


def drop_reply() -> Fault:
    """Handle the request and never answer."""
    return Fault(FaultKind.DROP_REPLY)


def close_after_handling() -> Fault:
    """Handle the request and close the connection instead of answering."""
    return Fault(FaultKind.CLOSE_AFTER_HANDLING)


def half_frame() -> Fault:
    """Handle the request, send half of the answer, close the connection."""
    return Fault(FaultKind.HALF_FRAME)


def delay(ms: int) -> Fault:
    """Answer `ms` later.

    Raises:
        ConfigError: `ms` is not a whole number of milliseconds.
    """
    return Fault(FaultKind.DELAY, arguments.milliseconds("delay", ms, high=INT32_MAX))


def throttle(ms: int) -> Fault:
    """Ask the client to pause for `ms`, and do not read from it for this time (KIP-219).

    Raises:
        ConfigError: `ms` is not a whole number of milliseconds.
    """
    return Fault(FaultKind.THROTTLE, arguments.milliseconds("throttle", ms, high=INT32_MAX))


class FaultScript(Protocol):
    """Where the faults of an embedded broker are scripted."""

    def on(
        self, api: ApiKey | str, fault: Fault, *, times: int | None = None, rate: float = 1.0, seed: int | None = None
    ) -> None:
        """Let requests of an API fail.

        Args:
            api: Which requests.
            fault: What happens to them.
            times: How many at most; None for all.
            rate: Share of the requests it happens to: above 0, 1 at most.
            seed: The seed of the dice for `rate`; None is unpredictable.

        Raises:
            ConfigError: An argument has a wrong type or value.
        """
        ...

    def clear(self) -> None:
        """Forget all rules."""
        ...

    def fired_count(self, api: ApiKey | str) -> int:
        """How many requests of an API have failed on purpose since the broker started."""
        ...


def check_rule(api: object, fault: object, times: object, rate: object, seed: object) -> ApiKey:
    """Check the arguments of `FaultScript.on`; return the API.

    Raises:
        ConfigError: An argument has a wrong type or value.
    """
    found = arguments.api_key("api", api)
    if not isinstance(fault, Fault):
        called = f": write {fault.__name__}(...)" if hasattr(fault, "__name__") else ""
        raise ConfigError(f"fault={fault!r} is not a fault, reply_with(6) for example{called}")
    if fault.kind is FaultKind.MOVE_LEADER and found not in (ApiKey.PRODUCE, ApiKey.FETCH):
        raise ConfigError(f"move_leader() is for PRODUCE and FETCH, not for {found.name}")
    if times is not None:
        arguments.whole("times", times, 1)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.0 < rate <= 1.0:
        raise ConfigError(f"rate={rate!r} is not a number above 0 and at most 1")
    if seed is not None:
        arguments.whole("seed", seed, -arguments.INT64_MAX)
    return found


class RemoteFaults:
    """`FaultScript` of a broker in another process.

    Args:
        command: Sends the broker's process a command and returns its answer.
    """

    def __init__(self, command: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._command = command

    def on(
        self, api: ApiKey | str, fault: Fault, *, times: int | None = None, rate: float = 1.0, seed: int | None = None
    ) -> None:
        rule = {"api": int(check_rule(api, fault, times, rate, seed)), "kind": fault.kind.value, "value": fault.value}
        self._command({"command": "on", **rule, "times": times, "rate": rate, "seed": seed})

    def clear(self) -> None:
        self._command({"command": "clear"})

    def fired_count(self, api: ApiKey | str) -> int:
        return int(self._command({"command": "fired_count", "api": int(arguments.api_key("api", api))})["count"])
