"""The controller's process: its loop, its socket, a link to each broker. What it decides is in `controller`.

    broker's request -> PeerServer -> event queue -> Controller.turn -> log on disk -> answer, and slices to all brokers

One thread runs it; `post` and `stop` may be called from any.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkaprod.broker.controller import wire
from kafkaprod.broker.controller.channels import BrokerChannel
from kafkaprod.broker.controller.controller import DEFAULT_CONFIGS, Controller
from kafkaprod.broker.controller.disk_log import DEFAULT_SNAPSHOT_BYTES, DiskMetadataLog
from kafkaprod.broker.controller.events import BrokerGone, ControllerEvent
from kafkaprod.broker.controller.history import sentences
from kafkaprod.broker.controller.requests import VERSIONS, on_request
from kafkaprod.broker.metadata.follower import MetadataSlice
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.tokens import TokenConfig
from kafkaprod.broker.peers.link import PeerLink
from kafkaprod.broker.peers.rules import CONTROLLER, LinkRules, socket_path
from kafkaprod.broker.peers.server import PeerServer
from kafkaprod.broker.storage.log.group_commit import FlushPolicy, interval
from kafkaprod.clock import Clock, SystemClock
from kafkaprod.net.poller import Poller
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataResponse
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.storage.disk import Disk

logger = logging.getLogger(__name__)

_PUSH_TIMEOUT_MS = 2_000
_STALL_MS = 500
_LATE_MS = 20
_EVENTS_MS = 50
_HISTORY_LINES = 2_000


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Options of a controller process.

    Attributes:
        directory: The directory of the cluster's sockets; mode 0700, short.
        data_dir: The directory of the metadata log.
        cluster_id: Brokers of other clusters are refused.
        session_timeout_ms: A broker that does not beat for this time is fenced.
        seed: The seed of the placement of replicas.
        default_configs: Options of topics that do not set them.
        tokens: Options of delegation tokens.
        flush_policy: When the log is synced.
        disk: Writes the log.
        snapshot_bytes: metadata.log.max.record.bytes.between.snapshots; what the log grows by, at least, before the
            next snapshot.
        is_alone: No broker of the log runs any more: their sessions need not end first.
    """

    directory: str
    data_dir: str
    cluster_id: str
    session_timeout_ms: int = 3_000
    seed: int = 0
    default_configs: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_CONFIGS))
    tokens: TokenConfig = field(default_factory=TokenConfig)
    flush_policy: FlushPolicy = field(default_factory=lambda: interval(1_000))
    disk: Disk = field(default_factory=Disk)
    snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES
    is_alone: bool = False


class ControllerProcess:
    """See the module docstring.

    Attributes:
        controller: Belongs to the loop.
        rules: Cuts and delays of its links.
        history: The last changes of the metadata in words, with the seconds of the wall clock.
    """

    def __init__(self, config: ControllerConfig, clock: Clock | None = None) -> None:
        """Read the log, and listen; nothing is answered before `run`.

        Raises:
            OSError, KafkaError: As `DiskMetadataLog`.
        """
        self._config = config
        self._clock = clock or SystemClock()
        self._poller = Poller()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_stopping = False
        self._turned_ms = self._due_ms = self._clock.now_ms()
        self.rules = LinkRules()
        self.history: deque[str] = deque(maxlen=_HISTORY_LINES)
        self._links: dict[int, PeerLink] = {}
        self._encoded: wire.EncodedBatches = {}  # a batch of this log, or of a snapshot, never changes
        self._at_change: dict[str, tuple[object, Callable[[], None]]] = {}
        self._log = DiskMetadataLog(
            config.data_dir, config.cluster_id, config.flush_policy, config.disk, self._clock, config.snapshot_bytes
        )
        self.controller = Controller(
            config.cluster_id,
            session_timeout_ms=config.session_timeout_ms,
            seed=config.seed,
            now_ms=self._turned_ms,
            batches=tuple(self._log.batches()),
            snapshot=self._log.snapshot,
            persist=self._persist,
            default_configs=config.default_configs,
            tokens=config.tokens,
        )
        self._log.snapshot = None
        for broker in self.controller.context.image.brokers.values() if config.is_alone else ():
            self.put(BrokerGone(broker.broker_id, broker.incarnation_id))
        self._server = PeerServer(self._poller, socket_path(config.directory, CONTROLLER), VERSIONS, self._on_request)

    def run(self) -> None:
        """Serve until `stop`."""
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            for link in self._links.values():
                link.close()
            self._server.close()
            self._log.close()
            self._poller.close()

    def stop(self) -> None:
        """Make `run` return. Thread-safe."""
        self._is_stopping = True
        self._poller.wakeup()

    def post(self, call_later: Callable[[], None]) -> None:
        """Have a call made by the loop. Thread-safe."""
        self._posted.append(call_later)
        self._poller.wakeup()

    def put(self, event: ControllerEvent) -> None:
        """Queue an event; on the loop."""
        self.controller.queue.put(event, self._clock.now_ms())

    def take(self, asked: Request | ControllerEvent, reply: Callable[[Response], None]) -> None:
        """Take a request as one of a broker, or an event; on the loop."""
        if isinstance(asked, Request):
            self._on_request(asked, reply)
        else:
            self.put(asked)

    def call_at_change(self, name: str, call_later: Callable[[], None]) -> None:
        """Have a call made once, after the next change of the metadata or of what brokers have applied; on the loop.

        Args:
            name: Whose call it is; it takes the place of an earlier one.
            call_later: The call.
        """
        self._at_change[name] = (self._progress(), call_later)

    def _progress(self) -> object:
        return self.controller.log.end_offset, tuple(self.controller.context.applied.items())

    def _report_change(self) -> None:
        progress = self._progress()
        for name, (before, call_later) in list(self._at_change.items()):
            if before != progress:
                del self._at_change[name]
                call_later()

    def _persist(self, batch: MetadataBatch, image: ClusterImage) -> None:
        self._encoded[wire.OF_LOG, batch.base_offset] = [*self._log.append(batch)]
        seconds = self._clock.wall_ms() % 100_000 / 1000
        for offset, sentence in enumerate(sentences(batch, image), batch.base_offset):
            self.history.append(f"{seconds:7.3f} {offset} {sentence}")

    def _turn(self) -> None:
        self._read(self._timeout_ms())
        now_ms = self._clock.now_ms()
        if now_ms - self._due_ms > _LATE_MS:
            # A signal that ends a pause makes `poll` return without what has come meanwhile. Connections come first.
            self._read(0)
            self._read(0)
        if now_ms - max(self._turned_ms, self._due_ms) > _STALL_MS:
            # This process was paused, perhaps since the last turn: heartbeats wait in its sockets, and in connections
            # that it has not taken yet, and no broker must be fenced for it.
            self.controller.extend_sessions(now_ms - self._turned_ms, now_ms)
        while self._posted:
            self._posted.popleft()()
        self.controller.context.wall_offset_ms = self._clock.wall_ms() - now_ms
        ends_ms = self._clock.now_ms() + _EVENTS_MS
        while self.controller.turn(self._clock.now_ms()) and self._clock.now_ms() < ends_ms:
            pass  # a request may be thousands of events: heartbeats are read, and slices sent, between them
        self._push()
        self._log.maybe_snapshot(
            self.controller.context.image, self.controller.log.last_epoch, lambda end: self.post(lambda: self._cut(end))
        )
        for link in list(self._links.values()):
            link.on_time()
        if self._at_change:
            self._report_change()
        self._turned_ms = self._clock.now_ms()

    def _read(self, timeout_ms: int) -> None:
        for data, mask in self._poller.poll(timeout_ms):
            data.on_ready(mask)

    def _cut(self, end_offset: int) -> None:
        """Drop what a snapshot has from the memory."""
        self.controller.cut_log(end_offset)
        self._encoded = {
            key: records for key, records in self._encoded.items() if key[0] == wire.OF_LOG and key[1] >= end_offset
        }

    def _timeout_ms(self) -> int:
        deadlines = [self.controller.next_deadline_ms(), *(link.next_deadline_ms() for link in self._links.values())]
        now_ms = self._clock.now_ms()
        self._due_ms = min([deadline for deadline in deadlines if deadline is not None], default=now_ms + _STALL_MS)
        return 0 if self._posted or len(self.controller.queue) else max(self._due_ms - now_ms, 0)

    def _on_request(self, request: Request, reply: Callable[[Response], None]) -> None:
        on_request(self.controller, request, self._clock.now_ms(), reply)

    def _push(self) -> None:
        """Send what is due to each broker."""
        for broker_id, channel in list(self.controller.channels.items()):
            sent = self.controller.next_slice(broker_id, self._clock.now_ms())
            if sent is not None:
                self._send_slice(channel, broker_id, sent)

    def _send_slice(self, channel: BrokerChannel, broker_id: int, sent: MetadataSlice) -> None:
        def answered(response: Response | None) -> None:
            if isinstance(response, ReplicateMetadataResponse):
                self.controller.on_slice_answer(channel, sent, wire.slice_answer(response), self._clock.now_ms())
                self._push()
            else:
                channel.on_lost(self._clock.now_ms())

        self._link(broker_id).send(wire.slice_request(sent, self._encoded), 0, answered, _PUSH_TIMEOUT_MS)

    def _link(self, broker_id: int) -> PeerLink:
        if broker_id not in self._links:
            name = str(broker_id)
            self._links[broker_id] = PeerLink(
                self._poller, self._clock, self.rules, CONTROLLER, name, socket_path(self._config.directory, name)
            )
        return self._links[broker_id]
