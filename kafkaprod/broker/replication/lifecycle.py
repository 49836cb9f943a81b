"""A broker's registration with the controller: registered, beating, shutting down.

    REGISTERING --answer--> STARTING --unfenced--> RUNNING --stop--> SHUTTING_DOWN --may end--> STOPPED
         ^---------------- registration is stale ----------------------|

Pure state: time is an argument. Source: Kafka, BrokerLifecycleManager; KIP-631.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from kafkaprod.broker.controller.wire import supported_features
from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkaprod.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)

RETRY_MS: Final = 100
HURRY_MS: Final = 20
"""Between heartbeats of a broker that waits to be unfenced or to stop."""

TIMEOUT_MS: Final = 1000


class BrokerState(Enum):
    """Where a broker stands with the controller."""

    REGISTERING = auto()
    STARTING = auto()
    RUNNING = auto()
    SHUTTING_DOWN = auto()
    STOPPED = auto()


S = BrokerState
TRANSITIONS: Final = {
    S.REGISTERING: {S.STARTING, S.STOPPED},
    S.STARTING: {S.RUNNING, S.REGISTERING, S.SHUTTING_DOWN, S.STOPPED},
    S.RUNNING: {S.STARTING, S.REGISTERING, S.SHUTTING_DOWN, S.STOPPED},
    S.SHUTTING_DOWN: {S.STOPPED, S.REGISTERING},
    S.STOPPED: set[BrokerState](),
}

LifecycleRequest = BrokerRegistrationRequest | BrokerHeartbeatRequest
LifecycleResponse = BrokerRegistrationResponse | BrokerHeartbeatResponse


class BrokerLifecycle:
    """See the module docstring.

    Attributes:
        state: A key of TRANSITIONS.
        broker_epoch: The epoch of the registration in force, -1 before the first.
    """

    def __init__(
        self,
        broker_id: int,
        cluster_id: str,
        incarnation_id: uuid.UUID,
        *,
        heartbeat_ms: int,
        rack: str | None = None,
        previous_epoch: int = -1,
        listeners: Sequence[Listener] = (),
        log_dirs: tuple[uuid.UUID, ...] = (),
    ) -> None:
        """Start a process's lifecycle.

        Args:
            broker_id: This broker's id.
            cluster_id: The cluster it belongs to.
            incarnation_id: The id of this process.
            heartbeat_ms: Between heartbeats.
            rack: Where it is.
            previous_epoch: The epoch of the last process's registration if that stopped cleanly, else -1.
            listeners: Where clients reach it.
            log_dirs: The ids of its log directories that can be used; none if it has only one.
        """
        self.state = S.REGISTERING
        self.broker_epoch = -1
        self._registration = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            listeners=list(listeners),
            features=supported_features(),
            rack=rack,
            log_dirs=list(log_dirs),
            previous_broker_epoch=previous_epoch,
        )
        self._offline_log_dirs: tuple[uuid.UUID, ...] = ()
        self._broker_id = broker_id
        self._heartbeat_ms = heartbeat_ms
        self._in_flight: LifecycleRequest | None = None
        self._lost_at_ms = 0
        self._send_at_ms = 0
        self._beats_at_once = self._wants_shutdown = False

    def next_request(self, metadata_offset: int, now_ms: int) -> LifecycleRequest | None:
        """Return the registration or heartbeat that is due, None if there is none."""
        if self._in_flight is not None and now_ms >= self._lost_at_ms:
            self.on_lost(now_ms)
        if self.state is S.STOPPED or self._in_flight is not None or now_ms < self._send_at_ms:
            return None
        if self.state is S.REGISTERING:
            self._in_flight = self._registration
        else:
            self._in_flight = BrokerHeartbeatRequest(
                broker_id=self._broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=metadata_offset,
                want_shut_down=self._wants_shutdown,
                offline_log_dirs=list(self._offline_log_dirs),
            )
        self._beats_at_once = False
        self._lost_at_ms = now_ms + TIMEOUT_MS
        return self._in_flight

    def on_answer(self, request: LifecycleRequest, answer: LifecycleResponse, now_ms: int) -> None:
        """Take the controller's answer; one to an older request is ignored, unless it lets this process stop.

        Where answers take longer than TIMEOUT_MS each of them answers an older request.
        """
        if request is not self._in_flight:
            if self._lets_stop(request, answer):
                self._move(S.STOPPED)
            return
        self._in_flight = None
        if isinstance(answer, BrokerRegistrationResponse):
            self._on_registered(answer, now_ms)
        else:
            self._on_heartbeat(answer, now_ms)

    def on_lost(self, now_ms: int) -> None:
        """The request or its answer was lost."""
        self._in_flight = None
        self._send_at_ms = now_ms + RETRY_MS

    def register_again(self, now_ms: int) -> None:
        """Another process, or none, is registered under this id: begin again."""
        if self.state is not S.STOPPED and self.state is not S.REGISTERING:
            self._move(S.REGISTERING)
            self._send_at_ms = now_ms
            self._in_flight = None

    def beat_soon(self, now_ms: int) -> None:
        """Send the next heartbeat now if the broker waits to be unfenced or to stop: it has applied more metadata.

        If one is in flight, it says less than that: the next one follows its answer.
        """
        if self.state in (S.STARTING, S.SHUTTING_DOWN):
            self._send_at_ms = now_ms
            self._beats_at_once = self._in_flight is not None

    def lose_log_dirs(self, offline: tuple[uuid.UUID, ...], now_ms: int) -> None:
        """Log directories can be used no more: the next heartbeat says so, now. A later registration leaves them out.

        Args:
            offline: The ids of all of them.
            now_ms: The time.
        """
        self._registration = copy.copy(self._registration)
        self._registration.log_dirs = [each for each in self._registration.log_dirs if each not in offline]
        self._offline_log_dirs = offline
        self._send_at_ms = now_ms
        self._beats_at_once = self._in_flight is not None

    def shut_down(self, now_ms: int) -> None:
        """Begin the controlled shutdown. A broker that is not registered yet stops at once.

        One whose registration is lost meanwhile registers again, and shuts down then.
        """
        if self.state is S.REGISTERING and not self._wants_shutdown:
            self._in_flight = None
            self._move(S.STOPPED)
        elif self.state is not S.REGISTERING:
            self._move(S.SHUTTING_DOWN)
        self._wants_shutdown = True
        self._send_at_ms = now_ms

    def next_deadline_ms(self) -> int:
        """Return when `next_request` has something to say."""
        return self._send_at_ms if self._in_flight is None else self._lost_at_ms

    def _on_registered(self, answer: BrokerRegistrationResponse, now_ms: int) -> None:
        if answer.error_code != ErrorCode.NONE:
            self._send_at_ms = now_ms + RETRY_MS
            return
        self.broker_epoch = answer.broker_epoch
        self._move(S.STARTING)
        if self._wants_shutdown:
            self._move(S.SHUTTING_DOWN)
        self._send_at_ms = now_ms

    def _on_heartbeat(self, answer: BrokerHeartbeatResponse, now_ms: int) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.register_again(now_ms)
            return
        if answer.should_shut_down:
            self._move(S.STOPPED)
        elif self.state is S.STARTING and not answer.is_fenced:
            self._move(S.RUNNING)
        elif self.state is S.RUNNING and answer.is_fenced:
            self._move(S.STARTING)
        in_a_hurry = self.state in (S.STARTING, S.SHUTTING_DOWN)
        rest_ms = min(HURRY_MS, self._heartbeat_ms) if in_a_hurry else self._heartbeat_ms
        self._send_at_ms = now_ms + (0 if self._beats_at_once else rest_ms)

    def _lets_stop(self, request: LifecycleRequest, answer: LifecycleResponse) -> bool:
        is_ours = isinstance(request, BrokerHeartbeatRequest) and request.broker_epoch == self.broker_epoch
        may_stop = isinstance(answer, BrokerHeartbeatResponse) and answer.should_shut_down
        return is_ours and may_stop and self.state is S.SHUTTING_DOWN

    def _move(self, target: BrokerState) -> None:
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"broker {self._broker_id} cannot go from {self.state.name} to {target.name}")
        self.state = target
