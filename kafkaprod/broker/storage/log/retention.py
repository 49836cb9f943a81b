"""Which old segments may go. Pure. Source: Kafka storage, UnifiedLog.deleteOldSegments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.segment import Segment


def count_expired(
    segments: Sequence[Segment],
    config: LogConfig,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    largest_timestamp: Callable[[Segment], int],
) -> int:
    """How many of the oldest segments are past retention; the walk ends at the first that is not.

    Args:
        segments: All, oldest first, the last one active.
        config: The configuration of the topic.
        log_start_offset: Nothing below it is needed.
        log_end_offset: Where the active segment ends.
        high_watermark: A segment that ends above it stays.
        now_ms: Wall time.
        largest_timestamp: The largest timestamp of a segment, in ms; the file's modification time where records have
            none.
    """
    total = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None and segment.size_bytes == 0:
            break
        end = following.base_offset if following is not None else log_end_offset
        if end > high_watermark:
            break
        is_below_start = following is not None and following.base_offset <= log_start_offset
        is_over_size = 0 <= config.retention_bytes <= total - segment.size_bytes
        is_over_age = 0 <= config.retention_ms < now_ms - largest_timestamp(segment)
        if not is_below_start and not (config.is_deleted and (is_over_size or is_over_age)):
            break
        total -= segment.size_bytes
        count += 1
    return count
