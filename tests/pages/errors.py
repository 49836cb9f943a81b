"""The page docs/errors.md: each class of errors and each code of a broker, what it means and what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from kafkaprod import errors
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.error_codes import ErrorCode, Retry

_HEAD = """\
# Errors and what to do

<!-- Made by `python -m tests.pages`; change docstrings in kafkaprod/errors.py or remedies in tests/pages/errors.py. -->

Every error is a `kafkaprod.KafkaError`, and also the builtin that fits: a timeout is a `TimeoutError`, a wrong value a
`ValueError`. Its text says what failed, with which value and limit. The classes are in `kafkaprod.errors`.

```python
from kafkaprod import KafkaError, Producer
from kafkaprod.errors import BufferFullError, DeliveryTimeoutError, RecordTooLargeError

with Producer(bootstrap_servers="localhost:9092") as producer:
    try:
        future = producer.send("orders", b"value")  # errors of this line: nothing was queued
        future.result(timeout=30)  # errors of this line: the record was queued and failed
    except RecordTooLargeError as error:
        print("leave it out, or raise the limit:", error)
    except BufferFullError as error:
        print("slow down:", error)
    except DeliveryTimeoutError as error:
        print("sent again it may be there twice" if error.possibly_persisted else "not in the log", error)
    except KafkaError as error:
        print(type(error).__name__, error, error.context)
```

The producer retries by itself, for `delivery_timeout_ms`, whatever a second try may cure. An error that reaches you is final
for that record: do not retry it in a loop without a reason of your own.

| attribute | meaning |
| --- | --- |
| `retriable` | a later try may succeed; the producer has used up its own tries |
| `possibly_persisted` | the record may be in the log although it failed: sent again it may be there twice |
| `category` | of transactions: `retriable` (repeat the same call), `abortable` (abort, begin again), `recoverable` (make a new producer), `invalid` (correct an option or a right); None otherwise |
| `outcome` | of transaction calls, what is certain: `committed`, `not committed`, `unknown` (a coordinator may have committed it, or may do so later); None where no transaction was open |
| `context` | topic, partition, node, api and correlation id, as far as known |
| `code`, `name` | of a `BrokerError`: Kafka's code and its name |
| `result` | of a block that was queued in part: the `BlockResult` of the queued rows |
"""

REMEDIES = {
    "ArgumentTypeError": "Give the argument that the message names in a type that it allows. Keys and values are bytes: "
    "`text.encode()`, `json.dumps(row).encode()`, or a serializer.",
    "AuthenticationError": "Correct user, password, token or certificate, and `sasl_mechanism`. [Security: encryption and logins](security.md) has an "
    "example of each login. `producer.check()` repeats the login and names the stage that failed.",
    "AuthorizationError": "Give the principal the right: `WRITE` and `DESCRIBE` on the topic, `IDEMPOTENT_WRITE` on the "
    "cluster (brokers before 2.8), `WRITE` and `DESCRIBE` on the transactional id. `kafkaprod doctor -t TOPIC` lists "
    "what is missing.",
    "BootstrapError": "Check `bootstrap_servers`; the message has each host, how far the connection came, and the cause. "
    "Stage `connect`: wrong address, firewall, broker not running. Stage `tls` or `api_versions`: `security_protocol` "
    "does not fit the port. A program that starts before its brokers: raise `bootstrap_timeout_ms`.",
    "BrokerError": "Look the code up in the tables below.",
    "BufferFullError": "You send faster than the brokers take records. Wait for results now and then, or raise "
    "`buffer_memory`; `max_block_ms` is how long `send()` waits. The message lists the topics that hold the memory: one "
    "topic that holds nearly all of it points to a partition without a leader. If it names a node that holds all that it "
    "can deliver in time, more memory would not help: the way to that broker is slow.",
    "CommitUnknownError": "Call `commit_transaction()` again: it then reports how the transaction ended. Nothing else but "
    "`close()` is legal.",
    "ConfigError": "Correct the option that the message names; [Configuration](configuration.md) has all of them. Nothing was started.",
    "ConnectionLostError": "Nothing, if you see it as the cause of a retry. As the final error: the broker or the network "
    "went away for all of `delivery_timeout_ms`.",
    "CorruptDataError": "Of an answer: something that is not Kafka answers on this port, or a proxy changes bytes. Of a "
    "file on disk: restore it. It is never repaired silently.",
    "DeliveryDelayedError": "Do not send it again. Look why the cluster cannot be reached; `kafkaprod.engine.outages` in "
    "the log names it. [When the cluster is away](spool.md) says what happens meanwhile.",
    "DeliveryFailedError": "Some records failed and your program never looked at their results. Keep the futures, or use "
    "`add_done_callback`; `__cause__` is the first failure, `failed_count` how many there were.",
    "DeliveryTimeoutError": "The brokers did not answer in time. The message has the last error of the partition's "
    "broker; look there. If `possibly_persisted` is false, the record may be sent again without doubling it.",
    "ForkedProducerError": "Make the producer in the child, after `fork()`: [Deployment](deployment.md).",
    "IllegalStateError": "Correct the order of calls; the message names the state. Usually a send outside of a "
    "transaction, or a second `init_transactions()`.",
    "InvalidProducerIdMappingError": "Close the producer and make a new one with the same `transactional_id`.",
    "InvalidRecordError": "Correct the argument that the message names.",
    "InvalidTxnStateError": "Close the producer and make a new one. If it repeats, two programs use the same "
    "`transactional_id`.",
    "KafkaError": "The base of all others: catch it where you handle every failure alike.",
    "MetadataTimeoutError": "The topic or partition does not exist and the broker does not create it (`kafkaprod topics "
    "create`), or no broker was reachable; the message says which. Before the first connection that is a "
    "BootstrapError.",
    "NodeBufferFullError": "Handle it like a failed delivery: the broker that leads the record's partition does not answer. "
    "Records for other brokers are taken. `producer.node_states()` shows when it is well: "
    "[When a broker is sick](deployment.md#when-a-broker-is-sick).",
    "OutOfOrderSequenceError": "Earlier records of the partition may be lost at the broker (a disk that was emptied, an "
    "unclean election). Compare the log with what you sent, then make a new producer.",
    "ProducerClosedError": "Send before `close()` or the end of the `with` block.",
    "ProducerFencedError": "Another producer with this `transactional_id` is running, or the transaction took longer than "
    "`transaction_timeout_ms`. Stop this instance, unless it is the one that should write: then make a new producer.",
    "PurgedError": "No action is needed: your program called `purge()`. Send the record again if it is still wanted.",
    "RecordTooLargeError": "Make the record smaller (compress it, or store it elsewhere and send its address), or raise "
    "`max_request_size` here and `max.message.bytes` of the topic.",
    "RequestTimedOutError": "No action is needed: it is retried. If it is the final cause, the broker was overloaded for all of "
    "`delivery_timeout_ms`.",
    "SerializationError": "Correct the object or the serializer; `__cause__` is what the serializer raised.",
    "TopicNotFoundError": "Create the topic (`kafkaprod topics create NAME`), or correct its name or the partition.",
    "TransactionAbortableError": "Call `abort_transaction()`, begin the next one, and read the input again. "
    "`with producer.transaction():` aborts for you.",
    "TransactionAbortedError": "The record's transaction was aborted; send it in the next one.",
    "TransactionTimeoutError": "Call the same method again: the call continues in the background.",
    "WriteConflictError": "Give these rows a `write_id` of their own if they are new ones. If the input has no fixed order, "
    "sort it.",
    "WriteError": "See the classes of it.",
    "WriteStaleError": "Look whether the address leads to the right cluster, and whether the topic was made again; then use "
    "another `write_id`.",
    "WriteTakenOverError": "No action is needed if the other try is at work; else run the write again with the same `write_id`.",
    "WriteUnknownError": "Run the write again with the same `write_id`: it finds out.",
    "UnsupportedVersionError": "Use Kafka 2.1 or later (2.5 for transactions with offsets of groups), or switch off the "
    "option that the message names.",
}

CODES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Look into the broker's log at this time.",
    ErrorCode.CORRUPT_MESSAGE: "Retried. If it stays: memory, disk or a proxy damages data, or the topic is compacted and "
    "a record has no key.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Create the topic; the partition may be higher than the topic has.",
    ErrorCode.LEADER_NOT_AVAILABLE: "Retried. If it stays: too many brokers of the partition are down.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "Retried at the new leader.",
    ErrorCode.REQUEST_TIMED_OUT: "Retried. If it stays: replicas are slow or down.",
    ErrorCode.MESSAGE_TOO_LARGE: "A batch is split and sent again. For a single record raise the topic's "
    "`max.message.bytes`.",
    ErrorCode.NETWORK_EXCEPTION: "Retried.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "Retried.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Retried. If it stays: `__transaction_state` has too few replicas.",
    ErrorCode.NOT_COORDINATOR: "Retried at the new coordinator.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Use letters, digits, `.`, `_` and `-`, at most 249; internal topics may not be "
    "written to.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "Lower `batch_size`, or raise the topic's `segment.bytes`.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Retried. Bring brokers back, or lower the topic's `min.insync.replicas`.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Retried; idempotence keeps the record from being there twice.",
    ErrorCode.INVALID_REQUIRED_ACKS: "Use `acks` 0, 1 or all.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Give the principal `WRITE` on the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Give the principal `READ` on the group, for `send_offsets_to_transaction`.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Give the principal `IDEMPOTENT_WRITE` on the cluster, or set "
    "`enable_idempotence=False`.",
    ErrorCode.INVALID_TIMESTAMP: "Correct the timestamp, or the topic's `message.timestamp.before.max.ms` and "
    "`message.timestamp.after.max.ms`. Milliseconds, not seconds.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Use a `sasl_mechanism` that the broker offers; the message lists them.",
    ErrorCode.ILLEGAL_SASL_STATE: "The port does not expect a login: correct `security_protocol`.",
    ErrorCode.UNSUPPORTED_VERSION: "Update the broker.",
    ErrorCode.INVALID_REQUEST: "Please report it, with the text of the error.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The topic has a format from before Kafka 0.11: make a new topic.",
    ErrorCode.POLICY_VIOLATION: "The cluster's administrator forbids it; the broker's text says what.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "See `OutOfOrderSequenceError`.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "Counts as delivered; you do not see it.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "See `ProducerFencedError`.",
    ErrorCode.INVALID_TXN_STATE: "See `InvalidTxnStateError`.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "See `InvalidProducerIdMappingError`.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "Lower `transaction_timeout_ms`, or raise the brokers' "
    "`transaction.max.timeout.ms`.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "Retried: the transaction before is still being completed.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "Retried at the new coordinator.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Give the principal `WRITE` and `DESCRIBE` on the transactional id.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Retried. If it stays: a disk of the broker failed.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Correct the credentials.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker no longer has this producer's records (retention). Handled by a new "
    "epoch; you see it only if records before were not acknowledged.",
    ErrorCode.INVALID_RECORD: "The record breaks a rule of the topic: no key in a compacted one, or the broker's "
    "interceptor refused it. The error has the broker's text.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "Retried.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "Send less, or raise the quota of this `client_id` or user.",
    ErrorCode.PRODUCER_FENCED: "See `ProducerFencedError`.",
    ErrorCode.UNKNOWN_TOPIC_ID: "Retried: the topic was deleted and made again.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "Retried: the topic was deleted and made again.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The id is not in use; only `kafkaprod transactions` asks.",
    ErrorCode.TRANSACTION_ABORTABLE: "See `TransactionAbortableError`.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "Handled: the producer begins with `bootstrap_servers` again.",
}

_RETRY = {Retry.NO: "no", Retry.YES: "yes", Retry.AFTER_REFRESH: "yes, with new metadata"}


def classes() -> list[type[KafkaError]]:
    """Return the public classes in the order of the source file."""
    found = (thing for name, thing in vars(errors).items() if inspect.isclass(thing) and not name.startswith("_"))
    return [thing for thing in found if issubclass(thing, KafkaError)]


def errors_page() -> str:
    """Return the whole page. Raises KeyError: a class has no remedy."""
    return "\n".join([_HEAD, "## Classes\n", *_classes(), *_producer_codes(), *_all_codes()])


def _classes() -> Iterator[str]:
    for error in classes():
        builtins = [base.__name__ for base in error.__mro__ if base.__module__ == "builtins"]
        kafka = [base.__name__ for base in error.__bases__ if issubclass(base, KafkaError)]
        kind = next(name for name in builtins if name not in ("object", "BaseException"))
        parents = [name for name in (*kafka, kind) if name not in ("KafkaError", "Exception")]
        yield f"### `{error.__name__}`\n"
        yield f"{_meaning(error)}\n"
        yield f"- what to do: {REMEDIES[error.__name__]}"
        if parents:
            yield f"- also a: {', '.join(f'`{name}`' for name in parents)}"
        if error.category:
            yield f"- category: {error.category}"
        yield ""


def _meaning(error: type[KafkaError]) -> str:
    text = re.split(r"\n\s*(?:Args|Attributes):", inspect.getdoc(error) or "")[0]
    return " ".join(re.sub(r"(?<!`)\b([a-z]+_[a-z_]+(?:\(\))?)(?!`)", r"`\1`", text).split())


def _producer_codes() -> Iterator[str]:
    yield "## Codes that a producer can meet\n"
    yield 'The error\'s text has the name and the number. "Retried" means for `delivery_timeout_ms`.\n'
    yield "| code | name | meaning | what to do |\n| ---: | --- | --- | --- |"
    for code in ErrorCode:
        if code in CODES:
            yield f"| {int(code)} | `{code.name}` | {code.text} | {CODES[code]} |"
    yield ""


def _all_codes() -> Iterator[str]:
    yield "## All codes\n"
    yield "Most of them go to consumers, to administrators or between brokers only.\n"
    yield "| code | name | meaning | may pass | raised as |\n| ---: | --- | --- | --- | --- |"
    for code in ErrorCode:
        if code != ErrorCode.NONE:
            yield f"| {int(code)} | `{code.name}` | {code.text} | {_RETRY[code.retry]} | `{code.error_class.__name__}` |"
    yield "\nA code that is missing here is a newer broker's: the error is a `BrokerError` named `UNKNOWN_<code>`.\n"
