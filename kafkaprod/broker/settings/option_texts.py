"""What each option means, in a sentence: the documentation that DescribeConfigs sends."""

from __future__ import annotations

from typing import Final

from kafkaprod.broker.settings.topic_options import BROKER_NAMES

_NO_USE: Final = " Kept and shown; this broker has no use for it."

_TOPIC_TEXTS: Final = {
    "cleanup.policy": "What becomes of old segments: delete them, compact them by key, or both.",
    "compression.gzip.level": "The gzip level where compression.type is gzip." + _NO_USE,
    "compression.lz4.level": "The lz4 level where compression.type is lz4." + _NO_USE,
    "compression.type": "The codec that the log has: one of Kafka's, uncompressed, or the producer's own.",
    "compression.zstd.level": "The zstd level where compression.type is zstd." + _NO_USE,
    "delete.retention.ms": "How long compaction keeps records without a value.",
    "file.delete.delay.ms": "How long the files of a deleted segment stay on the disk.",
    "flush.messages": "Records after which the log is synced to the disk." + _NO_USE,
    "flush.ms": "The time after which the log is synced to the disk." + _NO_USE,
    "follower.replication.throttled.replicas": "Replicas whose fetches are throttled." + _NO_USE,
    "index.interval.bytes": "How many bytes of the log have one entry in its offset index.",
    "leader.replication.throttled.replicas": "Replicas whose reads by followers are throttled." + _NO_USE,
    "local.retention.bytes": "Bytes kept here before tiered segments are deleted." + _NO_USE,
    "local.retention.ms": "The time for which tiered segments are kept here." + _NO_USE,
    "max.compaction.lag.ms": "The longest time for which a record is not compacted.",
    "max.message.bytes": "The largest batch of records, after compression.",
    "message.timestamp.after.max.ms": "How far a record's timestamp may be ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "How far a record's timestamp may be behind the broker's clock.",
    "message.timestamp.type": "Whether records have the producer's timestamp or the time of their append.",
    "min.cleanable.dirty.ratio": "The share of bytes not compacted yet from which on a log is compacted.",
    "min.compaction.lag.ms": "The shortest time for which a record is not compacted.",
    "min.insync.replicas": "In-sync replicas that a partition needs to take records with acks=all.",
    "preallocate": "Whether a segment's file gets its full size when it is made." + _NO_USE,
    "remote.log.copy.disable": "Whether segments are no longer copied to a remote tier." + _NO_USE,
    "remote.log.delete.on.disable": "Whether remote segments go when tiering is turned off." + _NO_USE,
    "remote.storage.enable": "Whether segments are copied to a remote tier." + _NO_USE,
    "retention.bytes": "The size of a partition from which on old segments are deleted; -1 for any.",
    "retention.ms": "How long records are kept under the policy delete; -1 for ever.",
    "segment.bytes": "The size of a segment's file.",
    "segment.index.bytes": "The size of a segment's offset index.",
    "segment.jitter.ms": "How much earlier than segment.ms a segment may be closed, by chance." + _NO_USE,
    "segment.ms": "The time after which a segment is closed, full or not.",
    "unclean.leader.election.enable": "Whether a replica that is not in sync may lead when no other can.",
}

_BROKER_TEXTS: Final = {
    "advertised.listeners": "The addresses that clients get to connect to.",
    "allow.everyone.if.no.acl.found": "Whether a resource without any ACL is open to all.",
    "auto.create.topics.enable": "Whether topics are made when clients first name them.",
    "auto.leader.rebalance.enable": "Whether leadership moves back to preferred replicas." + _NO_USE,
    "background.threads": "Threads for background work." + _NO_USE,
    "broker.id": "This broker's id; another name of node.id.",
    "connections.max.idle.ms": "The time after which a connection without requests is closed.",
    "controlled.shutdown.enable": "Whether a broker hands its partitions over before it stops." + _NO_USE,
    "default.replication.factor": "Replicas of topics that are made without a number.",
    "delegation.token.expiry.check.interval.ms": "How often delegation tokens that are over are removed.",
    "delegation.token.expiry.time.ms": "How long a delegation token lives without being renewed.",
    "delegation.token.max.lifetime.ms": "How long a delegation token lives, however often it is renewed.",
    "delegation.token.secret.key": "The key of all tokens' secrets, or its place: `env:NAME`, `file:PATH`.",
    "delete.topic.enable": "Whether clients may delete topics.",
    "fetch.max.bytes": "The most bytes of records in one fetch answer.",
    "follower.replication.throttled.rate": "Bytes a second that throttled replicas fetch." + _NO_USE,
    "group.consumer.heartbeat.interval.ms": "How often members of the consumer protocol send heartbeats.",
    "group.consumer.max.heartbeat.interval.ms": "The largest heartbeat interval that a group may have.",
    "group.consumer.max.session.timeout.ms": "The largest session timeout that a group may have.",
    "group.consumer.max.size": "The most members of a group of the consumer protocol.",
    "group.consumer.migration.policy": "Whether groups with members may change their protocol, and which way.",
    "group.consumer.min.heartbeat.interval.ms": "The smallest heartbeat interval that a group may have.",
    "group.consumer.min.session.timeout.ms": "The smallest session timeout that a group may have.",
    "group.consumer.regex.refresh.interval.ms": "How often regular expressions are matched with the topics again.",
    "group.consumer.session.timeout.ms": "The time without heartbeats after which a member is out.",
    "group.coordinator.threads": "Threads of the group coordinator." + _NO_USE,
    "group.initial.rebalance.delay.ms": "How long the first rebalance of a group waits for more members.",
    "group.max.session.timeout.ms": "The largest session timeout of members of the classic protocol.",
    "group.max.size": "The most members of a group of the classic protocol.",
    "group.min.session.timeout.ms": "The smallest session timeout of members of the classic protocol.",
    "leader.replication.throttled.rate": "Bytes a second that throttled replicas are sent." + _NO_USE,
    "listener.security.protocol.map": "The security protocol of each listener.",
    "listeners": "The addresses that the broker listens on.",
    "log.cleaner.backoff.ms": "How often the cleaner looks for a log to compact.",
    "log.cleaner.dedupe.buffer.size": "Memory of the cleaner for keys." + _NO_USE,
    "log.cleaner.enable": "Whether logs with the policy compact are compacted.",
    "log.cleaner.io.buffer.size": "Memory of the cleaner for reading and writing." + _NO_USE,
    "log.cleaner.threads": "Threads of the cleaner." + _NO_USE,
    "log.dirs": "The data directory.",
    "log.retention.check.interval.ms": "How often retention looks for old segments.",
    "log.retention.hours": "log.retention.ms in hours; the smaller unit counts more.",
    "log.retention.minutes": "log.retention.ms in minutes; the smaller unit counts more.",
    "log.roll.hours": "log.roll.ms in hours; the smaller unit counts more.",
    "max.connection.creation.rate": "The most new connections a second; further ones wait.",
    "max.connections": "The most connections at a time.",
    "max.connections.per.ip": "The most connections from one address at a time.",
    "metadata.log.max.record.bytes.between.snapshots": "How much the metadata log grows between snapshots.",
    "node.id": "This broker's id.",
    "num.io.threads": "Threads for requests." + _NO_USE,
    "num.network.threads": "Threads for the network." + _NO_USE,
    "num.partitions": "Partitions of topics that are made without a number.",
    "num.recovery.threads.per.data.dir": "Threads for recovery at the start." + _NO_USE,
    "num.replica.fetchers": "Threads that fetch from one other broker." + _NO_USE,
    "offsets.retention.check.interval.ms": "How often old offsets are looked for.",
    "offsets.retention.minutes": "How long a group without members keeps its offsets.",
    "offsets.topic.num.partitions": "Partitions of the topic of groups and offsets." + _NO_USE,
    "offsets.topic.replication.factor": "Replicas of the topic of groups and offsets." + _NO_USE,
    "queued.max.request.bytes": "The most bytes of requests that are not handled yet, of all connections.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes a second that partitions copy to another log directory.",
    "replica.lag.time.max.ms": "The time without catching up after which a follower is out of sync." + _NO_USE,
    "sasl.kerberos.min.time.before.relogin": "The pause between logins by Kerberos." + _NO_USE,
    "share.coordinator.state.topic.min.isr": "min.insync.replicas of the topic of share groups." + _NO_USE,
    "share.coordinator.state.topic.replication.factor": "Replicas of the topic of share groups." + _NO_USE,
    "socket.request.max.bytes": "The largest request.",
    "super.users": "Principals that ACLs do not bind.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "How often overdue transactions are aborted.",
    "transaction.max.timeout.ms": "The largest transaction timeout that a producer may have.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often unused transactional ids are forgotten.",
    "transaction.state.log.min.isr": "min.insync.replicas of the topic of transactions." + _NO_USE,
    "transaction.state.log.num.partitions": "Partitions of the topic of transactions." + _NO_USE,
    "transaction.state.log.replication.factor": "Replicas of the topic of transactions." + _NO_USE,
    "transactional.id.expiration.ms": "The time without use after which a transactional id is forgotten.",
}

_OTHER_TEXTS: Final = {
    "consumer.heartbeat.interval.ms": "How often members of this group send heartbeats.",
    "consumer.session.timeout.ms": "The time without heartbeats after which a member of this group is out.",
    "interval.ms": "How often clients push their metrics.",
    "match": "The clients that push: name=pattern pairs, all of which must match.",
    "metrics": "Prefixes of the names of the metrics that are pushed.",
}

_TEXTS: Final = {
    **{
        BROKER_NAMES[name]: "Of topics without their own: " + text
        for name, text in _TOPIC_TEXTS.items()
        if name in BROKER_NAMES
    },
    **_BROKER_TEXTS,
    **_TOPIC_TEXTS,
    **_OTHER_TEXTS,
}


def text_of(name: str) -> str:
    """Return what an option means; of the options of all kinds of resources."""
    return _TEXTS[name]
