"""What each metric means: the help text of exporters, and the page docs/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BASES: Final[Mapping[str, str]] = {
    "batch-split": "batches that were too large for the broker and were split",
    "buffer-exhausted": "records refused because there was no memory for them",
    "byte": "bytes of batches sent, compressed",
    "connection-close": "connections closed",
    "connection-creation": "connections opened",
    "failed-authentication": "logins that failed",
    "failed-reauthentication": "logins of an open connection that failed",
    "incoming-byte": "bytes received",
    "network-io": "requests and answers",
    "outgoing-byte": "bytes sent",
    "record-error": "records that failed",
    "record-retry": "records that were sent again",
    "record-send": "records sent",
    "request": "requests sent",
    "response": "answers received",
    "select": "times the sender thread waited for its sockets",
    "successful-authentication": "logins",
    "successful-reauthentication": "logins of a connection that was open already",
}
"""Metrics that have a `-rate` (per second) and a `-total`."""

MEANINGS: Final[Mapping[str, str]] = {
    "batch-size-avg": "bytes of a batch as sent",
    "batch-size-max": "bytes of the largest batch as sent",
    "buffer-available-bytes": "bytes of `buffer_memory` that are free",
    "buffer-total-bytes": "`buffer_memory`",
    "bufferpool-wait-ratio": "share of time that callers waited for memory",
    "bufferpool-wait-time-ns-total": "ns that callers waited for memory",
    "compression-rate": "bytes as sent, divided by bytes before compression",
    "compression-rate-avg": "bytes as sent, divided by bytes before compression",
    "connection-count": "open connections",
    "flush-time-ns-total": "ns that callers spent in `flush()`",
    "io-ratio": "share of time that the sender thread worked",
    "io-time-ns-avg": "ns of work between two waits of the sender thread",
    "io-time-ns-total": "ns that the sender thread worked",
    "io-wait-ratio": "share of time that the sender thread waited",
    "io-wait-time-ns-avg": "ns of one wait of the sender thread",
    "io-wait-time-ns-total": "ns that the sender thread waited",
    "metadata-age": "seconds since the cluster's metadata was read",
    "metadata-wait-time-ns-total": "ns that callers waited for metadata",
    "node-base-ms": "ms of the fastest answer of the last ten seconds; 0: none was measured",
    "node-rate": "bytes per second that the broker was seen to take",
    "node-state": "0 ok, 1 slow, 2 sick, 3 throttled by a quota: docs/deployment.md, When a broker is sick",
    "node-window-bytes": "bytes in flight below which it gets another request",
    "produce-throttle-time-avg": "ms that a broker delayed an answer because of a quota",
    "produce-throttle-time-max": "the longest such delay, ms",
    "reauthentication-latency-avg": "ms of a login of an open connection",
    "reauthentication-latency-max": "the longest such login, ms",
    "record-queue-time-avg": "ms that a batch was open or waited to be sent",
    "record-queue-time-max": "the longest such time, ms",
    "record-size-avg": "bytes of a record before compression",
    "record-size-max": "bytes of the largest record, by the mean of its batch",
    "records-per-request-avg": "records in a Produce request",
    "request-latency-avg": "ms from a Produce request to its answer",
    "request-latency-max": "the longest such time, ms",
    "request-size-avg": "bytes of a Produce request",
    "request-size-max": "bytes of the largest Produce request",
    "requests-in-flight": "requests without an answer",
    "spool-bytes": "bytes of the files in the spool",
    "spool-damaged-total": "records that could not be read from the spool any more",
    "spool-oldest-age": "seconds since the oldest record in the spool was sent, or, for one of an earlier process, "
    "since its timestamp; 0 while the spool is empty",
    "spool-possibly-twice-total": "records of earlier processes that were sent again and may be in a topic twice",
    "spool-records": "records in the spool without an outcome",
    "spool-refused-total": "records of earlier processes that were refused for good",
    "spool-replayed-total": "records that earlier processes had left in the spool",
    "spool-state": "0 all that is in the spool is in memory, too, 1 some is in the files alone, 2 full, 3 failed",
    "spool-sync-time-ns-total": "ns that forcing the spool to the disk took",
    "spool-sync-total": "times that the spool was forced to the disk",
    "txn-abort-time-ns-total": "ns that callers spent in `abort_transaction()`",
    "txn-begin-time-ns-total": "ns that callers spent in `begin_transaction()`",
    "txn-commit-time-ns-total": "ns that callers spent in `commit_transaction()`",
    "txn-init-time-ns-total": "ns that callers spent in `init_transactions()`",
    "txn-send-offsets-time-ns-total": "ns that callers spent in `send_offsets_to_transaction()`",
    "last-acknowledged-time": "when the last batch was acknowledged, seconds since 1970; 0: none was",
    "oldest-record-age": "seconds since the oldest record without an outcome was sent by the program; 0: there is none",
    "records-waiting": "records without an outcome",
    "waiting-threads": "callers that wait for memory now",
}

STAGE_MEANINGS: Final[Mapping[str, str]] = {
    "append": "a batch is open for records",
    "seal": "its request is drained, compressed and sealed",
    "send": "until the socket took its last byte",
    "ack": "until the answer, counted from before `send`",
}


def meaning(name: str) -> str:
    """Return what a metric means. Raises KeyError: it has no text here."""
    if name in MEANINGS:
        return MEANINGS[name]
    base, _, kind = name.rpartition("-")
    return f"{BASES[base]}, {'per second' if kind == 'rate' else 'since the start'}"
