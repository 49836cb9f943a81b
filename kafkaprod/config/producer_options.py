"""The table of a producer's options: each declared once, with name, type, default, range, unit and documentation.

Names and meanings are Kafka's, but for max_batch_size, which is ours. Defaults are Kafka's too, but for batch_size and
buffer_memory, which can be larger because memory follows the data, and for the socket buffers, which the operating
system adapts better.
Source: Kafka's ProducerConfig, 4.x.
"""

# ruff: noqa: RUF009  (the "default" is a declaration: dataclasses.field)

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from kafkaprod.compression import CODEC_IDS
from kafkaprod.config.hook_kinds import PartitionerKind, SerializerKind
from kafkaprod.config.kerberos_options import KerberosOptions
from kafkaprod.config.kinds import (
    INT64_MAX,
    Acks,
    Boolean,
    Choice,
    Hook,
    HookList,
    Integer,
    Path,
    ProtocolText,
    SyncRule,
    Text,
    kilobytes,
)
from kafkaprod.config.option import HIGH, LOW, MEDIUM, Section
from kafkaprod.config.topic_options import TopicOptions, TopicOptionsKind
from kafkaprod.structs import INT32_MAX

_DELIVERY: Final = Section("Delivery")
_TRANSACTIONS: Final = Section("Transactions")
_BATCHING: Final = Section("Batching and memory")
_SPOOL: Final = Section("Spool")
_COMPRESSION: Final = Section("Compression")
_PARTITIONING: Final = Section("Partitioning")
_TOPICS: Final = Section("Topics")
_RECORDS: Final = Section("Serializers and interceptors")
_METRICS: Final = Section("Metrics")


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ProducerOptions(KerberosOptions):
    """All options of a producer, as typed attributes."""

    # -- delivery ------------------------------------------------------------------------------------------------------

    acks: int = _DELIVERY.option(
        -1,
        Acks(),
        LOW,
        "Replicas that must have a record before it is delivered: -1 (`all`) all in-sync ones, 1 the leader, 0 none.",
        aliases=("request.required.acks",),
    )
    enable_idempotence: bool = _DELIVERY.option(
        True,
        Boolean(),
        LOW,
        "Retries make no duplicates and keep the order. Needs acks=all, retries and at most 5 requests in flight. Not "
        "given: off where one of these is set otherwise, with a line in the log (KIP-679).",
    )
    delivery_timeout_ms: int = _DELIVERY.option(
        120_000,
        Integer(),
        MEDIUM,
        "From the first record of a batch to its success or failure, retries included. Not given: raised to "
        "`linger_ms + request_timeout_ms` if it is below that.",
        unit="ms",
        aliases=("message.timeout.ms",),
    )
    retries: int = _DELIVERY.option(
        INT32_MAX,
        Integer(synonyms={math.inf: INT32_MAX}),
        HIGH,
        "How often a batch is sent again. Leave it; `delivery_timeout_ms` is the bound to set.",
        aliases=("message.send.max.retries",),
    )
    retry_backoff_ms: int = _DELIVERY.option(
        100,
        Integer(),
        LOW,
        "First wait before a batch or a metadata request is sent again; doubles each time, +-20 %.",
        unit="ms",
    )
    retry_backoff_max_ms: int = _DELIVERY.option(
        1000, Integer(), LOW, "Upper bound of the wait before a batch or a metadata request is sent again.", unit="ms"
    )
    max_block_ms: int = _DELIVERY.option(
        60_000,
        Integer(0, INT64_MAX),
        MEDIUM,
        "How long `send()` may wait for metadata and memory, and each transaction call for its answer.",
        unit="ms",
    )
    bootstrap_timeout_ms: int = _DELIVERY.option(
        10_000,
        Integer(0, INT64_MAX),
        MEDIUM,
        "How long a call may wait if no server has ever answered this producer; at most `max_block_ms`. Not given: "
        "`max_block_ms`, if that is given. Raise it for a program that starts before its brokers.",
        unit="ms",
    )

    # -- transactions --------------------------------------------------------------------------------------------------

    transactional_id: str | None = _TRANSACTIONS.option(
        None,
        ProtocolText(),
        LOW,
        "Enables transactions. Stable across restarts: a new producer with the same id fences the old one.",
    )
    transaction_timeout_ms: int = _TRANSACTIONS.option(
        60_000,
        Integer(1),
        LOW,
        "The broker aborts a transaction that takes longer. It may not exceed the broker's transaction.max.timeout.ms.",
        unit="ms",
    )
    transaction_two_phase_commit_enable: bool = _TRANSACTIONS.option(
        False,
        Boolean(),
        LOW,
        "Two-phase commit (KIP-939). `true` is refused: no released broker completes such a transaction.",
    )

    # -- batching and memory -------------------------------------------------------------------------------------------

    linger_ms: int = _BATCHING.option(
        5,
        Integer(),
        MEDIUM,
        "How long a batch that is not full may wait for more records. More: fewer, larger requests; less: less delay.",
        unit="ms",
        aliases=("queue.buffering.max.ms",),
    )
    batch_size: int = _BATCHING.option(
        262_144,
        Integer(),
        MEDIUM,
        "A batch of one partition is sent without lingering from this size on, before compression. Memory is taken as "
        "records come, not ahead. 0: no batching.",
        unit="bytes",
    )
    max_batch_size: int = _BATCHING.option(
        1_000_000,
        Integer(),
        MEDIUM,
        "A batch that cannot leave yet, because enough requests are in flight, takes records up to this size, before "
        "compression. Not given: `batch_size` if that is given, else no more than `max_request_size`. Brokers take "
        "1048588 bytes after compression by default (message.max.bytes); what a topic refuses as too large is split, "
        "and its batches stay smaller from then on.",
        unit="bytes",
    )
    max_request_size: int = _BATCHING.option(
        1_048_576,
        Integer(1),
        MEDIUM,
        "Bound of one record before compression. Below the default it also bounds the batches in one request; else a "
        "request takes up to 2 MiB of batches, or as much as this, or eight full batches (32 MiB at most) if that is "
        "more. A larger batch goes alone.",
        unit="bytes",
        aliases=("message.max.bytes",),
    )
    buffer_memory: int = _BATCHING.option(
        67_108_864,
        Integer(65_536, INT64_MAX),
        HIGH,
        "Bound of the memory for records that are not yet delivered or failed. Not given: at most an eighth of what "
        "the process's container may use (Linux), 4 MiB at least; a line in the log says so. "
        "The records of one broker hold no more of it than that takes in a quarter of `delivery_timeout_ms` (with all "
        "brokers 1 MiB at least), once it has been seen how much it takes: what waits longer would expire on the way.",
        unit="bytes",
        translated={"queue.buffering.max.kbytes": kilobytes},
    )
    buffer_full_policy: str = _BATCHING.option(
        "block",
        Choice(("block", "raise", "isolate", "drop")),
        MEDIUM,
        "What `send()` does when `buffer_memory` is full: wait up to `max_block_ms`, or raise BufferFullError at once; "
        "`isolate`: wait, but raise NodeBufferFullError at once for a record of a sick broker that has used up its "
        "share, so that other brokers' records do not wait behind it; `drop`: return a result that has failed with "
        "BufferFullError, which `buffer-exhausted-total` counts, a line in the log names at most once a second, and "
        "`flush()` does not raise.",
    )

    # -- spool ---------------------------------------------------------------------------------------------------------

    spool_dir: str | None = _SPOOL.option(
        None,
        Path(),
        MEDIUM,
        "Directory of a durable spool: each record is written there before it is sent, and a later process with the "
        "same directory sends what has no outcome. None: no spool. See docs/spool.md.",
    )
    spool_max_bytes: int = _SPOOL.option(
        1_073_741_824,
        Integer(16_777_216, INT64_MAX),
        MEDIUM,
        "Bound of the files of one producer in `spool_dir`, which take the records of an outage that `buffer_memory` "
        "does not. When they are full, records wait in `buffer_memory`.",
        unit="bytes",
    )
    spool_sync: str = _SPOOL.option(
        "interval:100",
        SyncRule(),
        MEDIUM,
        "When what is in the spool is forced to the disk: `each`: before it is sent, `interval:MS`: every MS "
        "milliseconds, `never`: when the system does. A killed process loses nothing with any of them; a power cut "
        "loses what was not forced to the disk and not delivered.",
    )

    spool_adopt: bool = _SPOOL.option(
        True,
        Boolean(),
        LOW,
        "Send what is left in slots of `spool_dir` that no producer has: this producer looks once a minute, while "
        "its own records need no disk.",
    )

    # -- compression ---------------------------------------------------------------------------------------------------

    compression_type: str = _COMPRESSION.option(
        "none",
        Choice(tuple(CODEC_IDS), synonyms={None: "none"}),
        HIGH,
        "Codec of whole batches. snappy needs the extra `kafkaprod[snappy]`; gzip is faster with `kafkaprod[gzip]`.",
        aliases=("compression.codec",),
    )
    compression_gzip_level: int = _COMPRESSION.option(
        -1,
        Integer(-1, 9, excluded=0),
        MEDIUM,
        "Level of gzip; -1 is the library's default: 6 of zlib; with the extra `kafkaprod[gzip]` 2 of ISA-L, which "
        "takes an eighteenth of the time for 14 % more bytes of JSON.",
    )
    compression_lz4_level: int = _COMPRESSION.option(
        9, Integer(1, 17), MEDIUM, "Level of lz4; 9 is the fast compressor, as in Java."
    )
    compression_zstd_level: int = _COMPRESSION.option(
        3, Integer(-131_072, 22), MEDIUM, "Level of zstd; negative levels are faster."
    )
    compression_workers: int = _COMPRESSION.option(
        2,
        Integer(0, 64),
        LOW,
        "Threads that compress batches; 0: the sender thread does it. None is started for `none`.",
    )

    # -- partitioning --------------------------------------------------------------------------------------------------

    partitioner: Any = _PARTITIONING.option(
        None,
        PartitionerKind(),
        MEDIUM,
        "Chooses partitions for records that name none. None (also `murmur2_random`): by murmur2 of the key as in "
        "Java, without a key in turns that favour short queues. A function has the arguments of "
        "`Partitioner.partition`.",
        aliases=("partitioner.class",),
    )
    partitioner_ignore_keys: bool = _PARTITIONING.option(
        False, Boolean(), MEDIUM, "Spread records with a key as if they had no key."
    )
    partitioner_adaptive_partitioning_enable: bool = _PARTITIONING.option(
        True, Boolean(), LOW, "Records without a key go rather to brokers whose queues are short (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = _PARTITIONING.option(
        500,
        Integer(0, INT64_MAX),
        LOW,
        "Records without a key avoid a broker that has not answered for this time (and for twice the time in which it "
        "usually does), or that has no connection, and leave its partition; 0, Kafka's default: never avoid one.",
        unit="ms",
    )
    partitioner_rack_aware: bool = _PARTITIONING.option(
        False, Boolean(), LOW, "Records without a key prefer leaders in `client_rack`."
    )
    client_rack: str = _PARTITIONING.option("", Text(may_be_empty=True), LOW, "The rack this producer runs in.")

    # -- topics --------------------------------------------------------------------------------------------------------

    metadata_max_idle_ms: int = _TOPICS.option(
        300_000,
        Integer(5000),
        LOW,
        "The metadata of a topic is dropped after this time without a record for it (KIP-526).",
        unit="ms",
    )
    allow_auto_create_topics: bool = _TOPICS.option(
        True, Boolean(), LOW, "Let brokers that allow it create topics that do not exist."
    )

    topic_options: TopicOptions = _TOPICS.option(
        TopicOptions(),
        TopicOptionsKind(
            batch_size=batch_size,
            max_batch_size=max_batch_size,
            linger_ms=linger_ms,
            compression_type=compression_type,
            compression_gzip_level=compression_gzip_level,
            compression_lz4_level=compression_lz4_level,
            compression_zstd_level=compression_zstd_level,
        ),
        LOW,
        "Values of their own for some topics, as `{'orders': {'linger_ms': 0}, 'logs-*': {'compression_type': "
        "'zstd'}}`: `logs-*` stands for all names that begin so. One entry counts for a topic: that of its name, or "
        "else that with the longest beginning; what it leaves out is as for other topics, but for `max_batch_size`, "
        "which is the entry's `batch_size` if that is given. In files and on command lines the value is a JSON "
        "object. `acks` cannot differ: a request has one for all its topics. Use two producers for that.",
    )

    # -- serializers and interceptors ----------------------------------------------------------------------------------

    key_serializer: Any = _RECORDS.option(
        None,
        SerializerKind(),
        HIGH,
        "Turns keys into bytes: f(key), f(key, context) as in confluent-kafka, an object with "
        "serialize(topic, headers, data) as in kafka-python, or the name of one of Kafka's own, as in Java. None: keys "
        "are bytes.",
    )
    value_serializer: Any = _RECORDS.option(
        None, SerializerKind(), HIGH, "Turns values into bytes; as `key_serializer`."
    )
    interceptors: tuple[Any, ...] = _RECORDS.option(
        (),
        HookList(
            Hook(
                ("on_send", "on_acknowledgement", "on_block", "on_block_acknowledgement"),
                accepts_callable=False,
            )
        ),
        LOW,
        "See every record before it is serialized, every block, and every outcome. One that fails is logged and never "
        "breaks a send.",
        aliases=("interceptor.classes",),
    )

    # -- metrics -------------------------------------------------------------------------------------------------------

    metric_reporters: tuple[Any, ...] = _METRICS.option(
        (),
        HookList(Hook(("start",), accepts_callable=False)),
        LOW,
        "Get the producer's metrics when it starts; see `kafkaprod.metrics`.",
    )
    metrics_num_samples: int = _METRICS.option(
        2, Integer(1, 1000), LOW, "Windows that rates, averages and maxima cover."
    )
    metrics_sample_window_ms: int = _METRICS.option(
        30_000, Integer(1), LOW, "Length of one window of the metrics.", unit="ms"
    )
    enable_metrics_push: bool = _METRICS.option(
        True,
        Boolean(),
        LOW,
        "Push metrics to brokers that request them (KIP-714). A broker does so with a plug-in that takes them and a "
        "subscription; otherwise nothing is sent.",
    )
