"""Rules of the producer for bad days, each with its case and with what switches it off: the case must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from kafkaprod._core.requests.node_path import NodePath
from kafkaprod.engine import memory_shares, node_states, paths
from kafkaprod.engine.memory_shares import MemoryShares
from kafkaprod.engine.node_states import NodeCondition, NodeStates
from kafkaprod.engine.sending import Sending
from tests.simulation.cases import (
    AHangEnds,
    AllPause,
    Case,
    Day,
    FarAndFull,
    FarAndQuiet,
    OneHangs,
    OneHangsWithoutKeys,
    OneIsSlowWithoutKeys,
    OthersAreIdle,
    SlowEachTime,
    ThinAndFull,
    ThinAndFullAtOnce,
    ThinAndShared,
    ThinAndWide,
    ThinAtFirst,
    WeAreCutOff,
    WePause,
)

LEAST_BYTES = 20_000
START_BYTES = 60_000


class _OtherPath:
    """A NodePath with a rule of it switched off."""

    def __init__(self, *arguments: Any) -> None:
        self._path = NodePath(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._path, name)


class _NeverGrows(_OtherPath):
    def most_batch_bytes(self) -> int:
        return 65_536


class _GrowsAtOnce(_OtherPath):
    def most_batch_bytes(self) -> int:
        return 0


class _KeepsNoDistance(_OtherPath):
    def wait_ms(self, now_ms: int) -> int:
        return 0


class _HasNoWindow(_OtherPath):
    def may_send(self) -> bool:
        return True

    def room_bytes(self) -> int:
        return 0


class _ShowsNothing(_OtherPath):
    shown_rate = 0.0


def _counts_on(change: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: NodeStates, node_id: int, watch: Any, state: NodeCondition, silent_ms: int) -> None:
        good_answers = watch.good_answers
        change(self, node_id, watch, state, silent_ms)
        watch.good_answers = good_answers

    return wrong


def _forgets_health(change: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: NodeStates, node_id: int, watch: Any, state: NodeCondition, silent_ms: int) -> None:
        if state is not NodeCondition.OK:
            change(self, node_id, watch, state, silent_ms)

    return wrong


def _avoids_none(look: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: NodeStates, now_ms: int) -> None:
        self._avoids = False
        look(self, now_ms)

    return wrong


Switch = tuple[Any, str, Any]

CASES: Mapping[str, tuple[type[Case], list[Switch]]] = {
    "a batch takes records until it is sent": (FarAndFull, [(paths, "NodePath", _NeverGrows)]),
    "far requests keep a distance": (FarAndQuiet, [(paths, "NodePath", _KeepsNoDistance)]),
    "batches are small until there was an answer": (ThinAtFirst, [(paths, "NodePath", _GrowsAtOnce)]),
    "no more is under way than the path carries": (ThinAndWide, [(paths, "NodePath", _HasNoWindow)]),
    "a node holds what it can deliver in time": (ThinAndFull, [(MemoryShares, "_apply", lambda *_: None)]),
    "a node holds little before there is a connection": (ThinAndFullAtOnce, [(memory_shares, "START_BYTES", 1 << 62)]),
    "nodes behind one link share its memory": (ThinAndShared, [(MemoryShares, "_part_of", lambda _self, size: size)]),
    "half of every fair share is kept free": (OneHangs, [(MemoryShares, "set_leaders", lambda *_: None)]),
    "records without a key avoid slow nodes": (
        OneHangsWithoutKeys,
        [(NodeStates, "look", _avoids_none(NodeStates.look))],
    ),
    "a sick node that answers is well again": (
        AHangEnds,
        [(NodeStates, "_change", _forgets_health(NodeStates._change))],
    ),
    "a pause of our own is no silence": (WePause, [(node_states, "OWN_PAUSE_MS", 10**9)]),
    "a partition that was passed over is left": (OneIsSlowWithoutKeys, [(Sending, "_end_turn", lambda *_: None)]),
    "a node may hold what it has shown to take": (AllPause, [(paths, "NodePath", _ShowsNothing)]),
    "a slow node is well after three answers": (
        SlowEachTime,
        [(NodeStates, "_change", _counts_on(NodeStates._change))],
    ),
    "an idle node says nothing about others": (OthersAreIdle, [(NodeStates, "_is_expected", lambda *_: True)]),
    "all at once are not sick": (WeAreCutOff, [(NodeStates, "_may_be_sick", lambda *_: True)]),
}
"""For each rule the case that is there for it, and what switches the rule off."""


def play(rule: str, *, is_on: bool) -> str | None:
    """Play the case of a rule; return what was not as it must be."""
    case, switches = CASES[rule]
    with ExitStack() as patches:
        if case.is_scaled:
            patches.enter_context(patch.object(memory_shares, "LEAST_BYTES", LEAST_BYTES))
            patches.enter_context(patch.object(memory_shares, "START_BYTES", START_BYTES))
        if not is_on:
            for owner, name, value in switches:
                patches.enter_context(patch.object(owner, name, value))
        return Day(case).play()
