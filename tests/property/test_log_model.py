"""The log against plain lists: any order of appends, reads, look-ups, truncations, retention, restarts and crashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import file_name
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from tests.support.broker.fixtures_log import NOW_MS, make_batch, make_environment, open_log, read_all, split_batches

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, segment_index_bytes=96, retention_ms=-1)
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "index-checksum-checkpoint")

STAMPS = st.lists(st.integers(NOW_MS - 50, NOW_MS + 50), min_size=1, max_size=4)


@dataclass
class ModelBatch:
    """A batch of the model."""

    base: int
    data: bytes
    stamps: list[int]
    producer: int | None = None
    sequence: int = -1
    marker: str | None = None
    is_transactional: bool = False
    epoch: int = 0

    @property
    def last(self) -> int:
        return self.base + len(self.stamps) - 1


@dataclass
class Model:
    """A log as lists."""

    batches: list[ModelBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def transactions(self) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """First offset of each open transaction by producer, and (producer, first, last) of each aborted one."""
        is_open: dict[int, int] = {}
        aborted = []
        for batch in self.batches:
            if batch.producer is None:
                continue
            if batch.marker is None:
                if batch.is_transactional:
                    is_open.setdefault(batch.producer, batch.base)
            elif batch.producer in is_open:
                first = is_open.pop(batch.producer)
                if batch.marker == "abort":
                    aborted.append((batch.producer, first, batch.base))
        return is_open, aborted

    def visible(self) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.last >= self.start]


class LogMachine(RuleBasedStateMachine):
    """Runs the same steps on a log and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kafkaprod-log-"))
        self.environment = make_environment()
        self.model = Model()
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.log: PartitionLog

    @initialize()
    def open(self) -> None:
        self.log = open_log(self.directory, CONFIG, self.environment)

    def teardown(self) -> None:
        self.log.abandon()
        shutil.rmtree(self.directory)

    def note(self, data: bytearray, stamps: list[int], base: int, **facts: object) -> None:
        assert base == self.model.end
        batch = ModelBatch(base, bytes(data), stamps, epoch=self.epoch, **facts)  # type: ignore[arg-type]
        self.model.batches.append(batch)
        self.model.end = batch.last + 1

    @rule(stamps=st.lists(STAMPS, min_size=1, max_size=12), size=st.integers(0, 120), codec=st.integers(0, 4))
    def append_plain(self, stamps: list[list[int]], size: int, codec: int) -> None:
        for own in stamps:
            data = make_batch([b"v" * size] * len(own), codec=codec, timestamps=own)
            self.note(data, own, self.log.append(data, self.epoch).base_offset)

    @rule(
        producers=st.lists(st.integers(1, 3), min_size=1, max_size=8),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
    )
    def append_idempotent(self, producers: list[int], count: int, is_transactional: bool) -> None:
        for producer in producers:
            self.append_of(producer, count, is_transactional)

    def append_of(self, producer: int, count: int, is_transactional: bool) -> None:
        is_transactional = is_transactional or producer in self.model.transactions()[0]
        sequence = self.sequences.get(producer, 0)
        data = make_batch(
            [b"v" * 40] * count,
            producer_id=producer,
            epoch=0,
            sequence=sequence,
            is_transactional=is_transactional,
        )
        result = self.log.append(data, self.epoch)
        self.sequences[producer] = sequence + count
        facts = {"producer": producer, "sequence": sequence, "is_transactional": is_transactional}
        self.note(data, [NOW_MS] * count, result.base_offset, **facts)

    @rule(producer=st.integers(1, 3), is_commit=st.booleans())
    def append_marker(self, producer: int, is_commit: bool) -> None:
        result = self.log.append_marker(producer, 0, EndTransactionMarker(is_commit, 0), self.epoch)
        data = read_all(self.log)[-1].data
        marker = "commit" if is_commit else "abort"
        self.note(bytearray(data), [NOW_MS], result.base_offset, producer=producer, marker=marker)
        self.sequences.setdefault(producer, 0)

    @rule(producer=st.integers(1, 3), back=st.integers(1, 5))
    def retry_one_of_the_last_five_batches(self, producer: int, back: int) -> None:
        sent = [batch for batch in self.model.batches if batch.producer == producer and batch.marker is None]
        if len(sent) < back:
            return
        batch = sent[-back]
        data = bytearray(batch.data)
        data[:8] = bytes(8)
        result = self.log.append(data, self.epoch)
        assert result.is_duplicate
        assert (result.base_offset, result.last_offset) == (batch.base, batch.last)

    @rule()
    def become_leader_again(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.model.end > self.model.start)
    @rule(data=st.data(), max_bytes=st.integers(1, 2000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.end - 1))
        found = self.log.read(offset, max_bytes)
        assert found.records is not None
        batches = split_batches(found.records.read())
        expected = [batch for batch in self.model.batches if batch.last >= offset]
        assert batches
        assert [batch.data for batch in batches] == [batch.data for batch in expected[: len(batches)]]
        assert found.records.length <= max(max_bytes, len(expected[0].data))
        assert found.end_offset > batches[-1].last_offset

    @rule(timestamp=st.integers(NOW_MS - 60, NOW_MS + 60))
    def find_timestamp(self, timestamp: int) -> None:
        expected = next(
            (
                (batch.base + index, stamp, batch.epoch)
                for batch in self.model.visible()
                for index, stamp in enumerate(batch.stamps)
                if stamp >= timestamp and batch.base + index >= self.model.start
            ),
            None,
        )
        assert self.log.find_timestamp(timestamp) == expected

    @precondition(lambda self: self.model.end > self.model.start)
    @rule(data=st.data())
    def find_aborted(self, data: st.DataObject) -> None:
        low = data.draw(st.integers(self.model.start, self.model.end - 1))
        high = data.draw(st.integers(low + 1, self.model.end))
        found = {tuple(entry[:3]) for entry in self.log.aborted_transactions(low, high)}
        overlapping = {entry for entry in self.model.transactions()[1] if entry[2] >= low and entry[1] < high}
        assert found == overlapping

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.end))
        self.log.truncate_to(offset)
        kept = [batch for batch in self.model.batches if batch.last < offset]
        self.model.batches = kept
        self.model.end = min(self.model.end, kept[-1].last + 1 if kept else self.log.log_start_offset)
        if self.model.end < self.model.start or not kept:
            self.model.batches, self.model.end = [], self.log.log_start_offset
        self.sequences = {
            batch.producer: batch.sequence + len(batch.stamps)
            for batch in self.model.batches
            if batch.producer is not None and batch.marker is None
        }

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.end))
        self.model.start = self.log.delete_records(offset)
        assert self.model.start == offset

    @rule(limit=st.integers(0, 4000))
    def apply_retention(self, limit: int) -> None:
        self.log.config = LogConfig(
            segment_bytes=600, index_interval_bytes=150, segment_index_bytes=96, retention_ms=-1, retention_bytes=limit
        )
        self.log.delete_old_segments()
        self.log.config = CONFIG
        start = self.log.log_start_offset
        assert start >= self.model.start
        assert self.log.size_bytes < limit + 600 + 700
        self.model.start = start

    @rule()
    def restart(self) -> None:
        assert self.log.close()
        self.log = open_log(self.directory, CONFIG, self.environment, log_start_offset=self.model.start)

    @rule(data=st.data(), drops=st.integers(0, 3))
    def crash(self, data: st.DataObject, drops: int) -> None:
        """Nothing is closed; some derived files are lost or garbled on top."""
        point, start = self.log.recovery_point, self.model.start
        self.log.abandon()
        derived = sorted(path.name for path in self.directory.iterdir() if path.name.endswith(DERIVED))
        if not (self.directory / file_name(0, ".log")).exists():
            # What deleted segments said of their producers is in the snapshots only: these are no longer derived.
            derived = [name for name in derived if not name.endswith(".snapshot")]
        for name in data.draw(st.lists(st.sampled_from(derived), max_size=drops)) if derived else ():
            content = data.draw(st.sampled_from([None, b"", b"\0" * 48, b"garbage!garbage!garbage!"]))
            path = self.directory / name
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)
        self.environment = make_environment()
        self.log = open_log(
            self.directory, CONFIG, self.environment, is_clean=False, recovery_point=point, log_start_offset=start
        )

    @invariant()
    def bounds_are_the_models(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.model.start, self.model.end)
        assert self.log.high_watermark == self.model.end
        assert self.log.damage is None
        is_open, _ = self.model.transactions()
        assert self.log.last_stable_offset == max(self.model.start, min(is_open.values(), default=self.model.end))


LogMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("KAFKAPROD_LOG_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogAgainstLists = LogMachine.TestCase
