"""Options of Apache Kafka's brokers that this broker does not have, known to tell them from misspelt names.

Source: KafkaConfig of Kafka 4.4.0, with the internal options; those before it are of 4.3.1 and 3.9.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_NAMES_TEXT: Final = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.listeners
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name broker.heartbeat.interval.ms
    broker.rack broker.session.timeout.ms client.quota.callback.class config.providers
    connection.failed.authentication.delay.ms connections.max.reauth.ms controller.listener.names
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
    controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms cordoned.log.dirs
    create.topic.policy.class.name delete.records.purgatory.purge.interval.requests early.start.listeners
    errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
    fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
    group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable group.consumer.assignors
    group.consumer.max.assignment.interval.ms group.consumer.min.assignment.interval.ms
    group.coordinator.append.linger.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.coordinator.rebalance.protocols
    group.share.assignment.interval.ms group.share.assignor.offload.enable group.share.assignors
    group.share.delivery.count.limit group.share.dlq.manager.class.name group.share.heartbeat.interval.ms
    group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
    group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
    group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
    group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
    group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
    group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
    group.share.session.timeout.ms group.streams.acceptable.recovery.lag group.streams.assignment.interval.ms
    group.streams.assignor.offload.enable group.streams.assignors group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.max.warmup.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
    group.streams.min.task.offset.interval.ms group.streams.num.standby.replicas group.streams.num.warmup.replicas
    group.streams.rack.aware.assignment.tags group.streams.session.timeout.ms group.streams.task.offset.interval.ms
    group.streams.topology.description.plugin.class initial.broker.registration.timeout.ms
    inter.broker.listener.name internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.imbalance.check.interval.seconds listener.security.protocol.map listeners
    log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second log.dir log.dir.failure.timeout.ms
    log.dirs log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
    log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms log.remote.copy.lag.bytes
    log.remote.copy.lag.ms log.roll.jitter.hours max.connections.per.ip.overrides max.decompressed.message.bytes
    max.incremental.fetch.session.cache.slots max.request.partition.size.limit metadata.log.dir
    metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms num.replica.alter.log.dirs.threads
    offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size offsets.topic.compression.codec
    offsets.topic.segment.bytes principal.builder.class process.roles producer.id.expiration.check.interval.ms
    producer.id.expiration.ms producer.purgatory.purge.interval.requests queued.max.requests quota.window.num
    quota.window.size.seconds remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
    remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
    remote.log.storage.manager.class.name remote.log.storage.manager.class.path
    remote.log.storage.manager.impl.prefix remote.log.storage.system.enable replica.fetch.backoff.ms
    replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.selector.class replica.socket.receive.buffer.bytes
    replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
    sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
    sasl.mechanism.inter.broker.protocol sasl.oauthbearer.allow.unverified.audience
    sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol
    security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
    share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
    socket.receive.buffer.bytes socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
    ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.principal.mapping.rules
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    telemetry.max.bytes transaction.partition.verification.enable transaction.state.log.load.buffer.size
    transaction.state.log.segment.bytes transaction.two.phase.commit.enable unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable
"""
_FORMER_NAMES_TEXT: Final = """
    alter.config.policy.kraft.compatibility.enable auto.include.jmx.reporter broker.id.generation.enable
    control.plane.listener.name controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    delegation.token.master.key eligible.leader.replicas.enable group.coordinator.new.enable group.share.enable
    group.share.max.groups inter.broker.protocol.version leader.imbalance.per.broker.percentage
    log.message.downconversion.enable log.message.format.version log.message.timestamp.difference.max.ms
    metadata.log.segment.min.bytes offsets.commit.required.acks password.encoder.cipher.algorithm
    password.encoder.iterations password.encoder.key.length password.encoder.keyfactory.algorithm
    password.encoder.old.secret password.encoder.secret reserved.broker.max.id zookeeper.clientCnxnSocket
    zookeeper.connect zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
    zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size zookeeper.session.timeout.ms
    zookeeper.set.acl zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
    zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
    zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
    zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
"""
_NAMES: Final = frozenset(_NAMES_TEXT.split())
_FORMER_NAMES: Final = frozenset(_FORMER_NAMES_TEXT.split())
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[a-z][a-z0-9_]*\.")

_LISTENERS: Final = "use listeners= or --listeners"
_LOG_DIRS: Final = "use data_dir= and log_dirs=, or --data-dir and --log-dir"
_LOGINS: Final = "use sasl_users= or --sasl-users"
_CONTROLLERS: Final = "a broker is its own controller, a cluster starts one"
_CLIENT_CERTIFICATES: Final = "use the third of tls_files=, or --tls-client-ca"
_EQUIVALENTS: Final[Mapping[str, str]] = {
    "advertised.listeners": "use advertised= or --advertised",
    "authorizer.class.name": "ACLs always count; see allow.everyone.if.no.acl.found and super.users",
    "broker.rack": "use racks= of EmbeddedCluster, or --racks of `kafkaprod cluster`",
    "controller.listener.names": _CONTROLLERS,
    "controller.quorum.bootstrap.servers": _CONTROLLERS,
    "controller.quorum.voters": _CONTROLLERS,
    "inter.broker.listener.name": "brokers of a cluster have connections of their own",
    "listener.security.protocol.map": _LISTENERS,
    "listeners": _LISTENERS,
    "log.dir": _LOG_DIRS,
    "log.dirs": _LOG_DIRS,
    "metadata.log.dir": _LOG_DIRS,
    "process.roles": _CONTROLLERS,
    "sasl.enabled.mechanisms": _LOGINS,
    "sasl.jaas.config": _LOGINS,
    "security.inter.broker.protocol": "brokers of a cluster have connections of their own",
    "ssl.client.auth": _CLIENT_CERTIFICATES,
    "zookeeper.connect": _CONTROLLERS,
}
_EQUIVALENTS_BY_PREFIX: Final[Mapping[str, str]] = {
    "ssl.key": "use tls_files=, or --tls-cert and --tls-key",
    "ssl.truststore.": _CLIENT_CERTIFICATES,
}


def is_absent(name: str) -> bool:
    """Return whether Apache Kafka's brokers have an option of this name that this broker does not have."""
    return _without_listener(name) in _NAMES or name in _FORMER_NAMES


def refusal(names: Iterable[str]) -> str:
    """Return what to say of options that the broker does not have: those of Kafka and all others."""
    absent: list[str] = []
    unknown: list[str] = []
    for name in names:
        (absent if is_absent(name) else unknown).append(name)
    texts = []
    if unknown:
        texts.append(f"Unknown broker config name{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}")
    if absent:
        texts.append(f"options of Apache Kafka that this broker does not have: {', '.join(map(with_advice, absent))}")
    return "; ".join(texts)


def with_advice(name: str) -> str:
    """Return the name of an option that the broker does not have, and what to use in its place."""
    bare = _without_listener(name)
    by_prefix = (text for prefix, text in _EQUIVALENTS_BY_PREFIX.items() if bare.startswith(prefix))
    advice = _EQUIVALENTS.get(bare) or next(by_prefix, "")
    if not advice and name in _FORMER_NAMES:
        advice = "Kafka 4.4 does not have it either"
    return f"{name} ({advice})" if advice else name


def _without_listener(name: str) -> str:
    found = _LISTENER_PREFIX.match(name)
    return name[found.end() :] if found else name
