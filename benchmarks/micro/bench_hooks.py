"""What the user's code costs in the compiled path of a record, above a plain send and above the code itself.

`python -m pytest benchmarks/micro/bench_hooks.py`. "own" is the code called as often by C (`map`), as the compiled path
calls it: a Python function called by Python code costs some 10 ns less. extra_info has nanoseconds a record.
"""

import collections
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from benchmarks.micro.core import TOPIC, Core, best_s
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod.config import ProducerConfig
from kafkaprod.hooks.chain import Hooks

COUNT = 5000
TEXT = "x" * 100
DATA = TEXT.encode()


class Same:
    """An interceptor and a partitioner that do nothing."""

    def on_send(self, record: Any) -> Any:
        """Return the record."""
        return record

    def partition(self, *_: Any) -> int:
        """Return a partition."""
        return 0


class OnSend:
    """An interceptor that sees records before they are sent."""

    def on_send(self, record: Any) -> Any:
        """Return the record."""
        return record


def encode(text: str) -> bytes:
    """A serializer."""
    return text.encode()


def sender_of(core: Core, **options: Any) -> RecordSender:
    """The send path with the user's code."""
    hooks = Hooks.from_config(ProducerConfig.from_options(bootstrap_servers="h", **options))
    return RecordSender(core.accumulator, _refuse, hooks, _refuse)


def _refuse(*record: object) -> Any:
    raise AssertionError("the general path is not measured here")


def _all(calls: Iterable[object]) -> None:
    collections.deque(calls, maxlen=0)


SAME = Same()
WAYS: dict[str, tuple[Any, dict[str, Any], Callable[[], None], float]] = {
    "serializer": (TEXT, {"value_serializer": encode}, lambda: _all(map(encode, [TEXT] * COUNT)), 60),
    "serializer in C": (TEXT, {"value_serializer": str.encode}, lambda: _all(map(str.encode, [TEXT] * COUNT)), 60),
    "interceptor": (DATA, {"interceptors": [OnSend()]}, lambda: _all(map(SAME.on_send, [DATA] * COUNT)), 300),
    "partitioner": (
        DATA,
        {"partitioner": SAME},
        lambda: _all(map(SAME.partition, [TOPIC] * COUNT, [None] * COUNT, [DATA] * COUNT, [6] * COUNT, [()] * COUNT)),
        300,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_above_plain_and_own(benchmark: Any, way: str) -> None:
    value, options, own, limit_ns = WAYS[way]
    core = Core()

    def send_all(send: Callable[..., object], value: Any) -> None:
        for _ in range(COUNT):
            send(TOPIC, value)

    sender = sender_of(core, **options)
    plain_s = best_s(lambda: send_all(core.sender.send, DATA), core.empty)
    own_s = best_s(own)
    benchmark.pedantic(send_all, args=(sender.send, value), setup=core.empty, rounds=60)
    core.empty()
    above = (benchmark.stats.stats.min - plain_s - own_s) / COUNT * 1e9
    benchmark.extra_info.update(
        above_ns=round(above, 1), plain_ns=round(plain_s / COUNT * 1e9, 1), own_ns=round(own_s / COUNT * 1e9, 1)
    )
    assert above < 2 * limit_ns  # a guard with room for noise
