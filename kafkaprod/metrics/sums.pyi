from typing import final

from typing_extensions import disjoint_base

from kafkaprod.metrics.windows import Sample

@final
class ProducerSample(Sample):
    requests: int
    batches: int
    records: int
    batch_bytes: int
    uncompressed_bytes: int
    batch_bytes_max: int
    record_bytes_max: float
    queue_ms: int
    queue_ms_max: int
    responses: int
    latency_ms: int
    latency_ms_max: int
    retried_records: int
    failed_records: int
    splits: int
    throttle_ms: int
    throttle_ms_max: int
    polls: int
    wait_ns: int
    work_ns: int

@final
class TopicSample(Sample):
    records: int
    batch_bytes: int
    uncompressed_bytes: int
    retried_records: int
    failed_records: int

@disjoint_base
class NodeCounters(Sample):
    bytes_sent: int
    bytes_received: int
    requests_sent: int
    responses_received: int
    connections_created: int
    connections_closed: int
    authentications_succeeded: int
    authentications_failed: int
    reauthentications_succeeded: int
    reauthentications_failed: int
    reauthentication_ms: int

@final
class NodeSample(NodeCounters):
    request_bytes: int
    request_bytes_max: int
    produce_requests: int
    produce_responses: int
    latency_ms: int
    latency_ms_max: int
    reauthentication_ms_max: int

@final
class CallerSample(Sample):
    memory_wait_ns: int
    refused_records: int
