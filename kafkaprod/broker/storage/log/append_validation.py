"""The checks a client's batch passes before it may enter the log, in Kafka's order and with Kafka's error codes.

      4  exactly one batch, magic 2                 INVALID_RECORD
      9  base offset 0                              INVALID_RECORD
     10  size against max.message.bytes             MESSAGE_TOO_LARGE
     11  CRC                                        CORRUPT_MESSAGE
     12  counts, no control batch, sequence         INVALID_RECORD
     13  a key on compacted topics (per record)     INVALID_RECORD
     14  timestamp range and type (per record)      INVALID_TIMESTAMP
     15  size again, if the batch was re-encoded    MESSAGE_TOO_LARGE
     16  size against segment.bytes                 RECORD_LIST_TOO_LARGE
(1-3 and 5-8 belong to the request path, 17 to `producer_state`.) Pure but for the batch: attributes, maxTimestamp and
CRC are rewritten in place where the topic requires it. Source: Kafka storage, UnifiedLog, LogValidator.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod._core.records.batch_reader import KEYLESS, MISTIMED, RecordScan
from kafkaprod.broker.storage.errors import RecordError, RecordsRefusedError
from kafkaprod.broker.storage.format.log_config import INT64_MAX, LogConfig
from kafkaprod.broker.storage.format.records import MAX_PLAIN_BYTES, open_batch
from kafkaprod.compression import CODEC_IDS, ExpansionError, decompress, is_slow, make_codec
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.batch_header import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    OVERHEAD_BYTES,
    BatchHeader,
    assign_max_timestamp,
    compute_crc,
    parse_header,
    seal_header,
)

_MAX_CODEC = max(CODEC_IDS.values())
_PLAIN_RATIO = 32
_LEAST_PLAIN_BYTES = 16 * 1024 * 1024
_MAX_SLOW_BYTES_NOW = 32 * 1024
_FAULT_TEXTS = {
    KEYLESS: "a compacted topic needs a key",
    MISTIMED: "timestamp is outside the topic's range, or claims LogAppendTime",
    KEYLESS | MISTIMED: "a compacted topic needs a key",
}


class LargeBatchError(Exception):
    """A batch has more bytes of records than the caller wants to check now; nothing was changed."""


class ValidBatch(NamedTuple):
    """A batch ready to get its offset: the caller's bytes, or re-encoded ones where compression.type requires it."""

    data: memoryview
    header: BatchHeader


def validate_client_batch(
    data: memoryview, config: LogConfig, now_ms: int, max_bytes_now: int | None = None
) -> ValidBatch:
    """Check a client's batch and set what the broker sets under the CRC.

    The records are checked by compiled code, in time proportional to their bytes; at most `MAX_FAILING` of those that
    break a rule are listed.

    Args:
        data: The records field of a produce request for one partition; writable, changed in place.
        config: The configuration of the topic.
        now_ms: Wall time.
        max_bytes_now: Most bytes of records to check; None for as many as the rules allow.

    Raises:
        LargeBatchError: There are more of them than `max_bytes_now`.
        RecordsRefusedError: A rule is broken; only a batch that passed all of them is changed.
    """
    header = _check_header(data, config)
    if max_bytes_now is not None and is_slow(header.codec):
        max_bytes_now = min(max_bytes_now, _MAX_SLOW_BYTES_NOW)
    if max_bytes_now is not None and len(data) > max_bytes_now:
        raise LargeBatchError
    scan = _scan(data, header, config, now_ms, max_bytes_now)
    _check_records(scan, header)
    wanted = CODEC_IDS.get(config.compression_type, 0)
    if config.compression_type != "producer" and wanted != header.codec:
        data, header = _transcode(data, header, config)
        _check_size(len(data), config.max_message_bytes, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes")
    _check_size(len(data), config.segment_bytes, ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes")
    attributes, max_timestamp = header.attributes, scan.max_timestamp
    if config.uses_log_append_time:
        attributes, max_timestamp = attributes | LOG_APPEND_TIME, now_ms
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        assign_max_timestamp(data, attributes, max_timestamp)
        header = header._replace(attributes=attributes, max_timestamp=max_timestamp)
    return ValidBatch(data, header)


def _check_header(data: memoryview, config: LogConfig) -> BatchHeader:
    if len(data) < HEADER_BYTES:
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, f"{len(data)} bytes hold no record batch")
    header = parse_header(data)
    if header.magic != MAGIC:
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, f"batch has magic {header.magic}, not {MAGIC}")
    if header.batch_length < HEADER_BYTES - OVERHEAD_BYTES:
        raise RecordsRefusedError(
            ErrorCode.CORRUPT_MESSAGE, f"batch of {header.size_bytes} bytes is shorter than its header"
        )
    if header.size_bytes != len(data):
        raise RecordsRefusedError(
            ErrorCode.INVALID_RECORD, f"one batch of {header.size_bytes} bytes expected in {len(data)}"
        )
    if header.base_offset != 0:
        raise RecordsRefusedError(
            ErrorCode.INVALID_RECORD, f"a produced batch has base offset {header.base_offset}, not 0"
        )
    _check_size(len(data), config.max_message_bytes, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes")
    if compute_crc(data, 0, len(data)) != header.crc:
        raise RecordsRefusedError(ErrorCode.CORRUPT_MESSAGE, f"batch of {len(data)} bytes fails its checksum")
    if header.record_count < 1 or header.last_offset_delta + 1 != header.record_count:
        raise RecordsRefusedError(
            ErrorCode.INVALID_RECORD,
            f"the batch header says {header.record_count} records but last_offset_delta={header.last_offset_delta}; "
            "a batch has at least one record, and its delta is one less than their number",
        )
    if header.is_control:
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        raise RecordsRefusedError(
            ErrorCode.INVALID_RECORD, f"producer {header.producer_id} sent sequence {header.base_sequence}"
        )
    if header.codec > _MAX_CODEC:
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, f"unknown compression codec {header.codec}")
    return header


def _scan(
    data: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, max_bytes_now: int | None
) -> RecordScan:
    earliest, latest = -INT64_MAX, INT64_MAX
    if not config.uses_log_append_time:
        earliest = max(now_ms - config.message_timestamp_before_max_ms, -INT64_MAX)
        latest = min(now_ms + config.message_timestamp_after_max_ms, INT64_MAX)
    limit = max_plain_bytes(config)
    try:
        scan = open_batch(data, limit if max_bytes_now is None else min(limit, max_bytes_now)).scan(
            earliest, latest, needs_key=config.is_compacted, refuses_append_time=not config.uses_log_append_time
        )
    except CorruptDataError as error:
        if max_bytes_now is not None and isinstance(error, ExpansionError):
            raise LargeBatchError from error
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, f"malformed records: {error}") from error
    if header.codec and not scan.has_consecutive_offsets:
        # Kafka re-encodes such a batch; no client writes one, so it is refused here.
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, "offset deltas of a compressed batch are not 0, 1, 2, ...")
    return scan


def _check_records(scan: RecordScan, header: BatchHeader) -> None:
    """Refuse the batch for its records and list them; the key is checked first, a timestamp decides the code."""
    if scan.failing_count:
        code = ErrorCode.INVALID_TIMESTAMP if scan.has_mistimed_with_key else ErrorCode.INVALID_RECORD
        listed = tuple(RecordError(index, _FAULT_TEXTS[fault]) for index, fault in scan.failing)
        raise RecordsRefusedError(code, f"{scan.failing_count} of {header.record_count} records are invalid", listed)


def max_plain_bytes(config: LogConfig) -> int:
    """Return the most bytes of records that a produced batch may expand to.

    Java's and librdkafka's producers limit a batch before it is compressed, so one of max.message.bytes that is 32
    times as large plain is no batch of theirs. To refuse a decompression bomb costs as much time as this limit allows.
    """
    return min(max(_PLAIN_RATIO * config.max_message_bytes, _LEAST_PLAIN_BYTES), MAX_PLAIN_BYTES)


def _transcode(data: memoryview, header: BatchHeader, config: LogConfig) -> ValidBatch:
    """Re-encode the records section with the topic's codec; records, timestamps and producer fields stay."""
    section: bytes | bytearray = bytes(data[HEADER_BYTES:])
    if header.codec:
        section = decompress(header.codec, section, max_plain_bytes(config))
    wanted = config.compression_type
    codec = None if wanted == "uncompressed" else make_codec(wanted, may_be_slow=True)
    encoded = bytearray(HEADER_BYTES) + (codec.compress([section]) if codec else section)
    attributes = header.attributes & ~CODEC_MASK | (codec.codec_id if codec else 0)
    header = header._replace(attributes=attributes, batch_length=len(encoded) - OVERHEAD_BYTES)
    view = memoryview(encoded)
    seal_header(view, header)
    return ValidBatch(view, header)


def _check_size(size: int, limit: int, code: ErrorCode, option: str) -> None:
    if size > limit:
        raise RecordsRefusedError(code, f"batch of {size} bytes exceeds {option}={limit}")
