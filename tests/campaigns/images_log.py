"""A partition directory as a dict of bytes, a mixed log in it, and the crash campaigns that run on such images.

`python -m tests.campaigns.images_log [seed] [images]` runs truncation images without end in sight: millions fit
into minutes.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, build_marker
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import LOG_SUFFIX, file_name
from kafkaprod.broker.storage.recovery.recovery import Recovery, recover
from kafkaprod.errors import CorruptDataError
from tests.support.broker.fixtures_log import NOW_MS, make_batch
from tests.support.broker.memory_bytes import MemoryBytes

CONFIG = LogConfig(index_interval_bytes=300)


class MemoryImage:
    """`DirectoryImage` over a dict."""

    def __init__(self, files: Mapping[str, bytes | memoryview]) -> None:
        self.files = dict(files)

    def sizes(self) -> dict[str, int]:
        return {name: len(content) for name, content in self.files.items()}

    def read(self, name: str) -> bytes | memoryview:
        if name not in self.files:
            raise CorruptDataError(f"{name} is missing")
        return self.files[name]

    def read_log(self, name: str) -> MemoryBytes:
        return MemoryBytes(self.read(name))

    def recover(self, config: LogConfig = CONFIG, recovery_point: int = 0) -> Recovery:
        return recover(self, config, is_clean=False, recovery_point=recovery_point, log_start_offset=0)

    def apply(self, recovery: Recovery) -> None:
        """What `apply_recovery` does to a directory."""
        for name, size in recovery.truncations.items():
            self.files[name] = self.files[name][:size]
        for name in recovery.deletions:
            self.files.pop(name, None)
        self.files.update(recovery.writes)


@dataclass(frozen=True)
class MixedLog:
    """The bytes of one segment and where its batches end."""

    data: bytes
    ends: tuple[int, ...]
    """Byte position of the end of each batch."""
    next_offsets: tuple[int, ...]
    """The offset after each batch."""

    def whole_batches(self, size: int) -> int:
        """How many batches lie completely within the first `size` bytes."""
        count = 0
        while count < len(self.ends) and self.ends[count] <= size:
            count += 1
        return count

    def end_of(self, count: int) -> tuple[int, int]:
        """(bytes, next offset) of the first `count` batches."""
        return (self.ends[count - 1], self.next_offsets[count - 1]) if count else (0, 0)


def place(batch: bytearray, offset: int) -> tuple[bytes, int]:
    """A batch with its offset assigned, and the next offset."""
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = bytes(4)
    return bytes(batch), offset + int.from_bytes(batch[23:27], "big") + 1


def make_mixed_log(seed: int, batch_count: int, largest_value: int = 400) -> MixedLog:
    """All codecs, plain, idempotent and transactional batches, commit and abort markers, records of 0 to many bytes."""
    rng = random.Random(seed)
    data, ends, next_offsets, offset = bytearray(), [], [], 0
    sequences: dict[int, int] = {}
    open_producer = None
    for index in range(batch_count):
        values = [rng.randbytes(rng.choice((0, 1, 7, rng.randrange(largest_value)))) for _ in range(rng.randint(1, 4))]
        stamps = [NOW_MS + rng.randrange(-5000, 5000) for _ in values]
        if open_producer is not None and index % 3 == 0:
            batch = build_marker(open_producer, 0, EndTransactionMarker(rng.random() < 0.5, 1), NOW_MS)
            open_producer = None
        elif index % 3 == 1:
            batch = make_batch(values, codec=index % 5, timestamps=stamps)
        else:
            producer = open_producer or rng.randint(1, 3)
            is_transactional = producer == open_producer or rng.random() < 0.5
            open_producer = producer if is_transactional else open_producer
            sequence = sequences.get(producer, 0)
            sequences[producer] = sequence + len(values)
            batch = make_batch(
                values,
                codec=index % 5,
                timestamps=stamps,
                producer_id=producer,
                epoch=0,
                sequence=sequence,
                is_transactional=is_transactional,
            )
        placed, offset = place(batch, offset)
        data += placed
        ends.append(len(data))
        next_offsets.append(offset)
    return MixedLog(bytes(data), tuple(ends), tuple(next_offsets))


def check_truncation(log: MixedLog, size: int, appended: bytes) -> None:
    """Cut a segment after `size` bytes, recover, append a batch, recover again; AssertionError if a byte is wrong."""
    name = file_name(0, LOG_SUFFIX)
    image = MemoryImage({name: memoryview(log.data)[:size]})
    valid, next_offset = log.end_of(log.whole_batches(size))
    first = image.recover()
    assert first.damage is None
    assert (first.log_end_offset, first.segments[-1].size_bytes) == (next_offset, valid)
    image.apply(first)
    assert image.files[name] == log.data[:valid]
    placed, end = place(bytearray(appended), next_offset)
    image.files[name] = bytes(image.files[name]) + placed
    second = image.recover()
    assert (second.damage, second.truncations) == (None, {})
    assert (second.log_end_offset, second.segments[-1].size_bytes) == (end, valid + len(placed))


def run_truncations(seed: int, image_limit: int, batch_count: int = 8) -> Iterator[int]:
    """Check every truncation of one log after another, up to a number of images; yields the count after each log."""
    appended = bytes(make_batch([b"appended"]))
    count = 0
    while count < image_limit:
        log = make_mixed_log(seed, batch_count)
        for size in range(len(log.data) + 1):
            check_truncation(log, size, appended)
            count += 1
            if count == image_limit:
                break
        seed += 1
        yield count


def main() -> None:
    """Run the truncation campaign from the command line."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    start = time.perf_counter()
    for count in run_truncations(seed, limit):
        elapsed = time.perf_counter() - start
        print(f"{count} images, {count / elapsed:.0f} a second", flush=True)


if __name__ == "__main__":
    main()
