"""Scripted faults: what the broker does wrong on purpose, by API key, for tests.

    faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    faults.on(ApiKey.FETCH, delay(200), rate=0.1, seed=7)

    reply_with(error)      not handled; every part of the request is answered with the error
    reply_with(error, applied=True)  handled; every part is answered with the error in place of what came of it
    hold()                 waits until `rule.release()`, and is handled then
    move_leader()          the leader epoch of the request's partitions grows; NOT_LEADER_OR_FOLLOWER (produce, fetch),
                           with the new leader in versions that have a place for it (KIP-951)
    close()                not handled; the connection is closed
    drop_reply()           handled; the answer never comes, the connection stays open
    close_after_handling() handled; the connection is closed instead of answered
    half_frame()           handled; half of the answer is sent, then the connection is closed
    delay(ms)              handled; the answer is sent later
    throttle(ms)           handled; the answer has the time, and the connection is not read until then

    faults.on("PRODUCE", reply_with("NOT_LEADER_OR_FOLLOWER"), topic="orders", partition=2, times=1)
    faults.on("OFFSET_COMMIT", reply_with("COORDINATOR_NOT_AVAILABLE"), group="billing*", after=3)

Selectors say which requests; all that are given must hold, and what a request does not carry matches none. With `topic`
or `partition` the first two faults hit these parts alone: the rest of the request works. The others hit the whole
request that names such a part. Rules are tried in the order they were given: those for parts one after another, each
for the parts that are left, until one for a whole request fires. APIs and errors may be given as text, "PRODUCE" say.
Thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from kafkaprod.broker.calls.faults import SELECTORS, Fault, FaultKind
from kafkaprod.broker.embedding import arguments
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.structs import INT32_MAX


def reply_with(error_code: int | str, *, applied: bool = False) -> Fault:
    """Answer every part of the request with an error.

    Args:
        error_code: A member of ErrorCode, its number or its name.
        applied: The request is done before, as by brokers that answer REQUEST_TIMED_OUT. False: nothing is done.

    Raises:
        ConfigError: An argument has a wrong type or value.
    """
    if not isinstance(applied, bool):
        raise ConfigError(f"applied={applied!r} is not True or False")
    kind = FaultKind.REPLY_AFTER_HANDLING if applied else FaultKind.REPLY_WITH
    return Fault(kind, arguments.error_code(error_code))


def hold() -> Fault:
    """Let requests wait until `FaultRule.release`, or until the rule is removed; they are handled then."""
    return Fault(FaultKind.HOLD)


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


Texts = str | Collection[str] | None
"""A name, or several; one that ends in `*` stands for all that begin so."""
Numbers = int | Collection[int] | None
"""A number, or several."""

_LOOK_S: Final = 0.01
_ALL_HAVE: Final = frozenset({"client_id", "node"})


class FiredFault(NamedTuple):
    """A fault that hit a request.

    Attributes:
        number: Counts them from 1, since the broker started.
        time: When, in ms since the epoch.
        node: The broker's id.
        api: The API of the request.
        client_id: Whose request it was.
        parts: The topics and partitions that were hit; empty where the whole request was.
        rule: The number of its rule.
    """

    number: int
    time: int
    node: int
    api: ApiKey
    client_id: str
    parts: list[tuple[str, int | None]]
    rule: int


class FaultRule:
    """A rule, as `FaultScript.on` returns it; at the end of a `with` block it is removed.

    Attributes:
        number: Its number in its broker, or in each of them by id.
    """

    def __init__(self, scripts: Mapping[int, RemoteFaults], numbers: Mapping[int, int]) -> None:
        self._scripts = scripts
        self.number = numbers

    @property
    def matched(self) -> int:
        """How many requests it was for, `after` and `rate` left aside."""
        return sum(int(rule["matched"]) for rule in self._described())

    @property
    def fired(self) -> int:
        """How many requests it has hit."""
        return sum(int(rule["fired"]) for rule in self._described())

    @property
    def left(self) -> int | None:
        """How many more it will hit; None: all."""
        left = [rule["left"] for rule in self._described()]
        return None if None in left else sum(left)

    def wait(self, fired: int = 1, *, timeout: float = 5.0) -> None:
        """Wait until it has hit so many requests.

        Raises:
            AssertionError: It has hit fewer after `timeout` seconds.
        """
        arguments.whole("fired", fired, 1)
        deadline = time.monotonic() + timeout
        while (count := self.fired) < fired:
            if time.monotonic() >= deadline:
                raise AssertionError(
                    f"the fault hit {count} of {fired} requests within {timeout} s; {self.matched} matched it"
                )
            time.sleep(_LOOK_S)

    def release(self) -> None:
        """Have the requests handled that `hold()` keeps, and forget the rule."""
        self.remove()

    def remove(self) -> None:
        """Forget the rule; what it holds is handled."""
        for node, number in self.number.items():
            self._scripts[node].command({"command": "remove_rule", "rule": number})

    def _described(self) -> list[Mapping[str, Any]]:
        found = []
        for node, number in self.number.items():
            rules = self._scripts[node].command({"command": "rules"})["rules"]
            found += [rule for rule in rules if rule["number"] == number]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class FaultScript(Protocol):
    """Where the faults of an embedded broker, or of all of a cluster, are scripted."""

    def on(
        self,
        api: ApiKey | str,
        fault: Fault,
        *,
        topic: Texts = None,
        partition: Numbers = None,
        group: Texts = None,
        transactional_id: Texts = None,
        client_id: Texts = None,
        node: Numbers = None,
        times: int | None = None,
        after: int = 0,
        rate: float = 1.0,
        seed: int | None = None,
        note: str = "",
    ) -> FaultRule:
        """Let requests of an API fail, or parts of them.

        Args:
            api: Which requests.
            fault: What happens to them.
            topic: Only those that name the topic, or one of several; a name that ends in `*` stands for all that
                begin so. `reply_with` and `move_leader` hit this part alone, and the rest of the request works.
            partition: Only those that name the partition, or one of several; as `topic`.
            group: Only those of a group.
            transactional_id: Only those of a transactional id.
            client_id: Only those of a client.
            node: Only those that a broker gets, by its id: 0 of an `EmbeddedBroker`.
            times: How many at most; None for all. Of a cluster's rule, for each broker.
            after: Let so many of them pass first.
            rate: Share of the requests it happens to: above 0, 1 at most.
            seed: The seed of the dice for `rate`; None is unpredictable.
            note: Shown beside the rule.

        Raises:
            ConfigError: An argument has a wrong type or value, or requests of the API do not carry what is selected.
        """
        ...

    def clear(self) -> None:
        """Forget all rules."""
        ...

    def fired_count(self, api: ApiKey | str) -> int:
        """How many requests of an API have failed on purpose since the broker started."""
        ...

    def fired(self, since: int = 0) -> list[FiredFault]:
        """Return the faults that hit a request, oldest first: the last thousand, those with a number above `since`."""
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


def _check_selection(api: ApiKey, given: Mapping[str, object]) -> dict[str, list[Any]]:
    """Return the selectors as lists, by name."""
    carried = SELECTORS.get(api, frozenset()) | _ALL_HAVE
    selected: dict[str, list[Any]] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in carried:
            raise ConfigError(f"{name}={value!r}: requests of {api.name} carry {', '.join(sorted(carried))}")
        values = [value] if isinstance(value, str | int) or not isinstance(value, Collection) else list(value)
        for each in values:
            if name in ("partition", "node"):
                arguments.whole(name, each, 0, INT32_MAX)
            else:
                arguments.text(name, each)
        if not values:
            raise ConfigError(f"{name}={value!r} selects nothing")
        selected[name] = values
    return selected


class RemoteFaults:
    """`FaultScript` of a broker in another process.

    Attributes:
        command: Sends the broker's process a command and returns its answer.
    """

    def __init__(self, command: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self.command = command

    def on(
        self,
        api: ApiKey | str,
        fault: Fault,
        *,
        topic: Texts = None,
        partition: Numbers = None,
        group: Texts = None,
        transactional_id: Texts = None,
        client_id: Texts = None,
        node: Numbers = None,
        times: int | None = None,
        after: int = 0,
        rate: float = 1.0,
        seed: int | None = None,
        note: str = "",
    ) -> FaultRule:
        found = check_rule(api, fault, times, rate, seed)
        given = {"topic": topic, "partition": partition, "group": group, "transactional_id": transactional_id}
        rule = {
            "api": int(found),
            "kind": fault.kind.value,
            "value": fault.value,
            "selected": _check_selection(found, {**given, "client_id": client_id, "node": node}),
            "times": times,
            "after": arguments.whole("after", after, 0),
            "rate": rate,
            "seed": seed,
            "note": arguments.text("note", note) if note != "" else "",
        }
        return FaultRule({0: self}, {0: int(self.command({"command": "on", **rule})["rule"])})

    def clear(self) -> None:
        self.command({"command": "clear"})

    def fired_count(self, api: ApiKey | str) -> int:
        return int(self.command({"command": "fired_count", "api": int(arguments.api_key("api", api))})["count"])

    def fired(self, since: int = 0) -> list[FiredFault]:
        arguments.whole("since", since, 0)
        found: Sequence[Mapping[str, Any]] = self.command({"command": "fired", "since": since})["fired"]
        return [
            FiredFault(
                each["number"],
                each["time"],
                each["node"],
                ApiKey(each["api"]),
                each["client_id"],
                [(topic, partition) for topic, partition in each["parts"]],
                each["rule"],
            )
            for each in found
        ]


class FaultsOfAll:
    """`FaultScript` of all brokers of a cluster: a rule is one of each broker that runs, or of those that `node` names.

    Args:
        scripts: Returns the faults of the brokers that run, by id.
    """

    def __init__(self, scripts: Callable[[], Mapping[int, FaultScript]]) -> None:
        self._scripts = scripts

    def on(self, api: ApiKey | str, fault: Fault, *, node: Numbers = None, **options: Any) -> FaultRule:
        scripts: Mapping[int, Any] = self._scripts()
        wanted = set(scripts)
        if node is not None:
            wanted = {node} if isinstance(node, int) else set(node)
        unknown = wanted - scripts.keys()
        if unknown:
            raise ConfigError(f"node={node!r}: brokers that run are {', '.join(map(str, sorted(scripts)))}")
        numbers = {each: scripts[each].on(api, fault, **options).number[0] for each in sorted(wanted)}
        return FaultRule(scripts, numbers)

    def clear(self) -> None:
        for script in self._scripts().values():
            script.clear()

    def fired_count(self, api: ApiKey | str) -> int:
        return sum(script.fired_count(api) for script in self._scripts().values())

    def fired(self, since: int = 0) -> list[FiredFault]:
        found = [each for script in self._scripts().values() for each in script.fired(since)]
        return sorted(found, key=lambda each: each.time)
