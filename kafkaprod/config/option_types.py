"""The options of a producer as keyword arguments: for editors, type checkers, and what looks at type hints.

Made by `python -m kafkaprod.config types PATH`; change the table in kafkaprod/config instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kafkaprod.config.secret import Secret

if TYPE_CHECKING:
    import ssl


class OptionTypes(TypedDict, total=False):
    """Every option under its own name and, with underscores, under its other ones. Values may also be text."""

    bootstrap_servers: str | Sequence[str | tuple[str, int]]
    """Addresses of brokers to contact first; the others are discovered from there. Kept as (host, port) pairs."""
    metadata_broker_list: str | Sequence[str | tuple[str, int]]
    allowed_brokers: str | Sequence[str]
    """Hosts that this client may connect to, besides those of `bootstrap_servers`. Metadata names the other brokers: a
    cluster that is not trusted could name any host and port that this machine reaches. A name allows every address of
    that host; an address or a network allows the addresses in it, whatever the name. If empty: all."""
    allowed_secret_sources: str | Sequence[str] | None
    """What the other options may name and use, for programs that take options from others: `env:NAME`, `env:PREFIX*`,
    `file:/PATH`, `file:/DIRECTORY/`, `identity:aws`, `identity:azure`, `identity:kerberos`, or `none`. It concerns
    secrets given as `env:` or `file:`, files of tokens, assertions, keys, certificates and keytabs, and logins as what
    this machine or its environment is: servers that the same options choose see them. None: any. The variable
    `KAFKAPROD_ALLOWED_SECRET_SOURCES` bounds all clients of a process; both must allow."""
    allowed_urls: str | Sequence[str] | None
    """Addresses of HTTP servers that the other options may name, for programs that take options from others:
    `https://HOST`, `https://HOST:PORT/PATH`, or `none`; what is below one is allowed. It concerns
    `sasl_oauthbearer_token_endpoint_url`, and the inputs of `kafkaprod load` that are addresses. None: any. The
    variable `KAFKAPROD_ALLOWED_URLS` bounds all clients and schema registries of a process; both must allow."""
    proxy_url: str | Secret | None
    """Connect to brokers through this proxy: `socks5://user:password@host:port`, `socks4://` or `http://` (CONNECT). It
    also resolves the brokers' names. Needs the extra `proxy`."""
    client_id: Any
    """Name of this producer in the brokers' logs, metrics and quotas. If empty: `producer-<transactional_id>`, or
    `producer-<n>`, where n counts the producers of the process."""
    request_timeout_ms: int | str
    """How long to wait for the answer to one request; then its connection is closed and the request retried. Also the
    time that a Produce request gives the broker to replicate."""
    max_in_flight_requests_per_connection: int | str
    """Requests without an answer, per broker. Order is kept up to 5 with idempotence, and at 1 without."""
    max_in_flight: int | str
    reconnect_backoff_ms: int | str
    """First wait before connecting to a broker again; doubles with each failure, +-20 %."""
    reconnect_backoff_max_ms: int | str
    """Upper bound of the wait before connecting to a broker again."""
    socket_connection_setup_timeout_ms: int | str
    """How long a connect may take, TLS and login included; doubles with each failure, +-20 %. Of several addresses of a
    name each has 1 s at first."""
    socket_connection_setup_timeout_max_ms: int | str
    """Upper bound of the time for a connect, after repeated failures."""
    connections_max_idle_ms: int | str
    """A connection that is unused for this time is closed. Keep it below the brokers' own limit (600000)."""
    send_buffer_bytes: int | str | None
    """SO_SNDBUF; -1 lets the operating system adapt it."""
    socket_send_buffer_bytes: int | str | None
    receive_buffer_bytes: int | str | None
    """SO_RCVBUF; -1 lets the operating system adapt it."""
    socket_receive_buffer_bytes: int | str | None
    broker_address_family: Literal["any", "v4", "v6"]
    """Which addresses of a name are used: IPv4, IPv6, or any."""
    metadata_max_age_ms: int | str
    """Metadata older than this is fetched again even if nothing seems to have changed."""
    topic_metadata_refresh_interval_ms: int | str
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """What to do when no known broker can be reached: start over from `bootstrap_servers`, or keep trying the known
    ones (KIP-899)."""
    metadata_recovery_rebootstrap_trigger_ms: int | str
    """Start over from `bootstrap_servers` after this time without metadata (KIP-1102)."""
    metadata_cluster_check_enable: bool | str | None
    """Whether a broker that the metadata named must be of the cluster and have the node id expected of it, so that a
    misrouted connection is refused (KIP-1242). Not set: they must, and starting over from `bootstrap_servers` takes
    whatever cluster is there, with a warning; true: it takes no other cluster either; false: nothing is checked."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Encryption (SSL) and login (SASL). It never falls back to a weaker protocol."""
    ssl_context: ssl.SSLContext | None
    """A ready context; replaces all other `ssl_` options."""
    ssl_cafile: str | os.PathLike[str] | None
    """PEM file of trusted authorities. None: the operating system's."""
    ssl_ca_location: str | os.PathLike[str] | None
    ssl_truststore_location: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    """PEM file of this client's certificate chain."""
    ssl_certificate_location: str | os.PathLike[str] | None
    ssl_keystore_location: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    """PEM file of its private key. None: the key is in `ssl_certfile`."""
    ssl_key_location: str | os.PathLike[str] | None
    ssl_password: str | Secret | None
    """Password of the private key."""
    ssl_key_password: str | Secret | None
    ssl_crlfile: str | os.PathLike[str] | None
    """PEM file of revoked certificates."""
    ssl_crl_location: str | os.PathLike[str] | None
    ssl_ca_pem: str | Secret | None
    """Trusted authorities as PEM text, instead of `ssl_cafile`."""
    ssl_truststore_certificates: str | Secret | None
    ssl_certificate_pem: str | Secret | None
    """This client's certificate chain as PEM text, instead of `ssl_certfile`."""
    ssl_keystore_certificate_chain: str | Secret | None
    ssl_key_pem: str | Secret | None
    """Its private key as PEM text, instead of `ssl_keyfile`. None: the key is in `ssl_certificate_pem`."""
    ssl_keystore_key: str | Secret | None
    ssl_ciphers: str | None
    """OpenSSL's list of ciphers for TLS 1.2. None: OpenSSL's default."""
    ssl_cipher_suites: Any
    ssl_check_hostname: bool | str
    """Whether a certificate must name the host. If not, everyone with a trusted certificate can read along."""
    ssl_endpoint_identification_algorithm: Any
    sasl_mechanism: str | None
    """How to log in. The broker's list of mechanisms never changes it. AWS_MSK_IAM signs tokens of OAUTHBEARER with AWS
    credentials (`pip install 'kafkaprod[msk]'`), GSSAPI is Kerberos (`pip install 'kafkaprod[kerberos]'`). Other names
    are looked up among the entry points `kafkaprod.sasl_mechanisms` of installed packages."""
    sasl_mechanisms: str | None
    sasl_plain_username: str | None
    """User name for PLAIN and SCRAM."""
    sasl_username: str | None
    sasl_plain_password: str | Secret | None
    """Password for PLAIN and SCRAM."""
    sasl_password: str | Secret | None
    sasl_oauth_token_provider: Any
    """Its `token()` gives a bearer token for each login (OAUTHBEARER)."""
    oauth_cb: Any
    """As in confluent-kafka: takes `sasl_oauthbearer_config`, gives (token, expiry[, principal[, extensions]])."""
    sasl_oauthbearer_config: str | Secret
    """The text given to `oauth_cb`; it often holds a client secret."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """Where tokens come from: the identity provider's token endpoint, or `file:///path` of a file that holds a token
    and is read for each login. With it OAUTHBEARER needs no code."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client's name at the identity provider."""
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Secret | None
    """The client's secret at the identity provider."""
    sasl_oauthbearer_client_secret: str | Secret | None
    sasl_oauthbearer_scope: str | None
    """The scope to request, as the provider names it."""
    sasl_oauthbearer_extensions: str | None
    """SASL extensions to send with each token: `name=value,name=value`. Confluent Cloud needs `logicalCluster` and
    `identityPoolId`."""
    sasl_oauthbearer_grant_type: Literal[
        "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer", "jwt-bearer"
    ]
    """How to request a token: with the client's secret or a signed assertion (client_credentials), or by exchanging an
    assertion (jwt-bearer)."""
    sasl_oauthbearer_jwt_retriever_class: Any
    sasl_oauthbearer_header_urlencode: bool | str
    """Whether client id and secret are percent-encoded in the header (RFC 6749 section 2.3.1)."""
    sasl_oauthbearer_metadata_authentication_type: Literal["none", "azure_imds"]
    """`azure_imds` gets tokens from the metadata service of an Azure machine, by the query that
    `sasl_oauthbearer_config` holds: `query=api-version=...&resource=...`."""
    sasl_oauthbearer_assertion_file: str | os.PathLike[str] | None
    """File with a ready assertion, read for each token."""
    sasl_oauthbearer_assertion_private_key_file: str | os.PathLike[str] | None
    """PEM file of the key that signs assertions. Signing needs `pip install 'kafkaprod[oauth]'`."""
    sasl_oauthbearer_assertion_private_key_pem: str | Secret | None
    """The key itself, as PEM text, instead of the file."""
    sasl_oauthbearer_assertion_private_key_passphrase: str | Secret | None
    """Password of that key."""
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    """How assertions are signed."""
    sasl_oauthbearer_assertion_claim_aud: str | None
    """The assertion's claim `aud`."""
    sasl_oauthbearer_assertion_claim_iss: str | None
    """The assertion's claim `iss`."""
    sasl_oauthbearer_assertion_claim_sub: str | None
    """The assertion's claim `sub`."""
    sasl_oauthbearer_assertion_claim_exp_seconds: int | str
    """How long an assertion is valid."""
    sasl_oauthbearer_assertion_claim_nbf_seconds: int | str
    """By how much an assertion's begin lies in the past."""
    sasl_oauthbearer_assertion_claim_jti_include: bool | str
    """Whether each assertion has an id, the claim `jti`."""
    sasl_oauthbearer_assertion_template_file: str | os.PathLike[str] | None
    """JSON file `{"header": {...}, "payload": {...}}` with further fields of assertions."""
    sasl_oauthbearer_assertion_jwt_template_file: str | os.PathLike[str] | None
    sasl_aws_region: str | None
    """The region of an Amazon MSK cluster (AWS_MSK_IAM). None: the one in the first bootstrap server's name, or
    `$AWS_REGION`."""
    sasl_aws_profile: str | None
    """A profile of the AWS configuration. None: AWS's usual places of credentials."""
    sasl_aws_role_arn: str | None
    """A role to assume."""
    sasl_aws_role_session_name: str | None
    """The name of that role's session."""
    sasl_login_connect_timeout_ms: int | str
    """How long connecting to the token endpoint may take."""
    sasl_login_read_timeout_ms: int | str
    """How long the answer of the token endpoint may take as a whole."""
    https_ca_location: str | os.PathLike[str] | None
    """PEM file of the authorities that the token endpoint is checked by. None: the system's."""
    https_ca_pem: str | None
    """The same as PEM text."""
    sasl_kerberos_service_name: str
    """The first part of the brokers' principal, `kafka/broker.example.com@EXAMPLE.COM` (GSSAPI)."""
    sasl_kerberos_domain_name: str | None
    """The second part of that principal where it is no broker's own name. None: the host that is connected to."""
    sasl_kerberos_principal: str | None
    """This client's principal. None: the first one of the keytab, or the one of the credential cache."""
    sasl_kerberos_keytab: str | os.PathLike[str] | None
    """Keytab with the client's key. Tickets are then fetched, and fetched again before they end. None: the credential
    cache of the environment (`kinit`, `$KRB5CCNAME`), or the keytab in `$KRB5_CLIENT_KTNAME`."""
    acks: Literal[-1, 0, 1, "-1", "0", "1", "all"]
    """Replicas that must have a record before it is delivered: -1 (`all`) all in-sync ones, 1 the leader, 0 none."""
    request_required_acks: Literal[-1, 0, 1, "-1", "0", "1", "all"]
    enable_idempotence: bool | str
    """Retries make no duplicates and keep the order. Needs acks=all, retries and at most 5 requests in flight. Not
    given: off where one of these is set otherwise, with a line in the log (KIP-679)."""
    delivery_timeout_ms: int | str
    """From the first record of a batch to its success or failure, retries included. Not given: raised to `linger_ms +
    request_timeout_ms` if it is below that."""
    message_timeout_ms: int | str
    retries: int | str
    """How often a batch is sent again. Leave it; `delivery_timeout_ms` is the bound to set."""
    message_send_max_retries: int | str
    retry_backoff_ms: int | str
    """First wait before a batch or a metadata request is sent again; doubles each time, +-20 %."""
    retry_backoff_max_ms: int | str
    """Upper bound of the wait before a batch or a metadata request is sent again."""
    max_block_ms: int | str
    """How long `send()` may wait for metadata and memory, and each transaction call for its answer."""
    bootstrap_timeout_ms: int | str
    """How long a call may wait if no server has ever answered this producer; at most `max_block_ms`. Not given:
    `max_block_ms`, if that is given. Raise it for a program that starts before its brokers."""
    transactional_id: Any
    """Enables transactions. Stable across restarts: a new producer with the same id fences the old one."""
    transaction_timeout_ms: int | str
    """The broker aborts a transaction that takes longer. It may not exceed the broker's transaction.max.timeout.ms."""
    transaction_two_phase_commit_enable: bool | str
    """Two-phase commit (KIP-939). `true` is refused: no released broker completes such a transaction."""
    linger_ms: int | str
    """How long a batch that is not full may wait for more records. More: fewer, larger requests; less: less delay."""
    queue_buffering_max_ms: int | str
    batch_size: int | str
    """A batch of one partition is sent without lingering from this size on, before compression. Memory is taken as
    records come, not ahead. 0: no batching."""
    max_batch_size: int | str
    """A batch that cannot leave yet, because enough requests are in flight, takes records up to this size, before
    compression. Not given: `batch_size` if that is given, else no more than `max_request_size`. Brokers take 1048588
    bytes after compression by default (message.max.bytes); what a topic refuses as too large is split, and its batches
    stay smaller from then on."""
    max_request_size: int | str
    """Bound of one record before compression. Below the default it also bounds the batches in one request; else a
    request takes up to 2 MiB of batches, or as much as this, or eight full batches (32 MiB at most) if that is more. A
    larger batch goes alone."""
    message_max_bytes: int | str
    buffer_memory: int | str
    """Bound of the memory for records that are not yet delivered or failed. Not given: at most an eighth of what the
    process's container may use (Linux), 4 MiB at least; a line in the log says so. The records of one broker hold no
    more of it than that takes in a quarter of `delivery_timeout_ms` (with all brokers 1 MiB at least), once it has been
    seen how much it takes: what waits longer would expire on the way."""
    queue_buffering_max_kbytes: Any
    buffer_full_policy: Literal["block", "raise", "isolate", "drop"]
    """What `send()` does when `buffer_memory` is full: wait up to `max_block_ms`, or raise BufferFullError at once;
    `isolate`: wait, but raise NodeBufferFullError at once for a record of a sick broker that has used up its share, so
    that other brokers' records do not wait behind it; `drop`: return a result that has failed with BufferFullError,
    which `buffer-exhausted-total` counts, a line in the log names at most once a second, and `flush()` does not
    raise."""
    spool_dir: str | os.PathLike[str] | None
    """Directory of a durable spool: each record is written there before it is sent, and a later process with the same
    directory sends what has no outcome. None: no spool. See docs/spool.md."""
    spool_max_bytes: int | str
    """Bound of the files of one producer in `spool_dir`, which take the records of an outage that `buffer_memory` does
    not. When they are full, records wait in `buffer_memory`."""
    spool_sync: str
    """When what is in the spool is forced to the disk: `each`: before it is sent, `interval:MS`: every MS milliseconds,
    `never`: when the system does. A killed process loses nothing with any of them; a power cut loses what was not
    forced to the disk and not delivered."""
    spool_adopt: bool | str
    """Send what is left in slots of `spool_dir` that no producer has: this producer looks once a minute, while its own
    records need no disk."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    """Codec of whole batches. snappy needs the extra `kafkaprod[snappy]`; gzip is faster with `kafkaprod[gzip]`."""
    compression_codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    compression_gzip_level: int | str
    """Level of gzip; -1 is the library's default: 6 of zlib; with the extra `kafkaprod[gzip]` 2 of ISA-L, which takes
    an eighteenth of the time for 14 % more bytes of JSON."""
    compression_lz4_level: int | str
    """Level of lz4; 9 is the fast compressor, as in Java."""
    compression_zstd_level: int | str
    """Level of zstd; negative levels are faster."""
    compression_workers: int | str
    """Threads that compress batches; 0: the sender thread does it. None is started for `none`."""
    partitioner: Any
    """Chooses partitions for records that name none. None (also `murmur2_random`): by murmur2 of the key as in Java,
    without a key in turns that favour short queues. A function has the arguments of `Partitioner.partition`."""
    partitioner_class: Any
    partitioner_ignore_keys: bool | str
    """Spread records with a key as if they had no key."""
    partitioner_adaptive_partitioning_enable: bool | str
    """Records without a key go rather to brokers whose queues are short (KIP-794)."""
    partitioner_availability_timeout_ms: int | str
    """Records without a key avoid a broker that has not answered for this time (and for twice the time in which it
    usually does), or that has no connection, and leave its partition; 0, Kafka's default: never avoid one."""
    partitioner_rack_aware: bool | str
    """Records without a key prefer leaders in `client_rack`."""
    client_rack: str
    """The rack this producer runs in."""
    metadata_max_idle_ms: int | str
    """The metadata of a topic is dropped after this time without a record for it (KIP-526)."""
    allow_auto_create_topics: bool | str
    """Let brokers that allow it create topics that do not exist."""
    topic_options: str | Mapping[str, Mapping[str, Any]]
    """Values of their own for some topics, as `{'orders': {'linger_ms': 0}, 'logs-*': {'compression_type': 'zstd'}}`:
    `logs-*` stands for all names that begin so. One entry counts for a topic: that of its name, or else that with the
    longest beginning; what it leaves out is as for other topics, but for `max_batch_size`, which is the entry's
    `batch_size` if that is given. In files and on command lines the value is a JSON object. `acks` cannot differ: a
    request has one for all its topics. Use two producers for that."""
    key_serializer: Any
    """Turns keys into bytes: f(key), f(key, context) as in confluent-kafka, an object with serialize(topic, headers,
    data) as in kafka-python, or the name of one of Kafka's own, as in Java. None: keys are bytes."""
    value_serializer: Any
    """Turns values into bytes; as `key_serializer`."""
    interceptors: Iterable[Any]
    """See every record before it is serialized, every block, and every outcome. One that fails is logged and never
    breaks a send."""
    interceptor_classes: Iterable[Any]
    metric_reporters: Iterable[Any]
    """Get the producer's metrics when it starts; see `kafkaprod.metrics`."""
    metrics_num_samples: int | str
    """Windows that rates, averages and maxima cover."""
    metrics_sample_window_ms: int | str
    """Length of one window of the metrics."""
    enable_metrics_push: bool | str
    """Push metrics to brokers that request them (KIP-714). A broker does so with a plug-in that takes them and a
    subscription; otherwise nothing is sent."""
    sasl_jaas_config: str
    client_dns_lookup: str
    metrics_recording_level: str
    ssl_keystore_type: str
    ssl_truststore_type: str
    sasl_oauthbearer_method: str
    sasl_login_callback_handler_class: str
    sasl_client_callback_handler_class: str
    socket_keepalive_enable: str
    api_version_request: str
    socket_nagle_disable: str
