"""The `server.properties` of a test node: small, quick to notice failures, every security protocol set up."""

from collections.abc import Mapping
from pathlib import Path

from tests.kafka.certificates import CertificateFiles

SASL_USERS = {"alice": "alice-secret", "bob": "bob-secret"}

# Listener name to security protocol; PROXIED is where `FaultProxy` connects, so that it can advertise another address.
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "PROXIED": "PLAINTEXT",
}
_OWN_LISTENERS = {"INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
_MEBIBYTE = 1024 * 1024

Properties = dict[str, str | int]


def broker_properties(
    data: Path,
    *,
    coordination: Properties,
    node_count: int,
    listening: Mapping[str, int],
    advertised: Mapping[str, tuple[str, int]],
    certificates: CertificateFiles | None,
) -> Properties:
    """Properties of one node.

    Args:
        data: its formatted directory.
        coordination: `kraft_properties` or `zookeeper_properties`.
        node_count: nodes of the cluster.
        listening: listener name to port, INTERNAL and (KRaft) CONTROLLER among them.
        advertised: listener name to advertised address, of all but CONTROLLER.
        certificates: needed if a listener uses TLS.
    """
    replicas = min(3, node_count)
    min_insync = max(1, replicas - 1)
    properties: Properties = {
        **coordination,
        "inter.broker.listener.name": "INTERNAL",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listening.items()),
        "advertised.listeners": ",".join(f"{name}://{host}:{port}" for name, (host, port) in advertised.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in (_OWN_LISTENERS | LISTENERS).items()
        ),
        "log.dirs": str(data),
        "default.replication.factor": replicas,
        "min.insync.replicas": min_insync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_insync,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "replica.lag.time.max.ms": 5000,
        # Records with the timestamps of a test's data, of 2020 say, are not deleted 30 s later.
        "log.retention.ms": -1,
        # Two cores and half a gigabyte a node.
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 4 * _MEBIBYTE,
        "log.index.size.max.bytes": _MEBIBYTE,
    }
    if certificates is not None:
        properties |= _tls_properties(certificates)
    for name in listening:
        if name.startswith("SASL"):
            properties |= _sasl_properties(name)
            properties["delegation.token.secret.key"] = "of all tokens"
    return properties


def kraft_properties(node_id: int, voters: Mapping[int, int]) -> Properties:
    """Broker and controller in one process; ``voters``: controller port of every node.

    Failures are noticed in seconds, not in the half minute of production settings.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{peer}@127.0.0.1:{port}" for peer, port in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "controller.quorum.fetch.timeout.ms": 2000,
        "controller.quorum.election.timeout.ms": 1000,
    }


def zookeeper_properties(node_id: int, port: int) -> Properties:
    """A broker of the time before KRaft."""
    return {
        "broker.id": node_id,
        "zookeeper.connect": f"127.0.0.1:{port}",
        "zookeeper.session.timeout.ms": 3000,
    }


def _tls_properties(certificates: CertificateFiles) -> Properties:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.ssl.ssl.client.auth": "requested",
    }


def _sasl_properties(listener: str) -> Properties:
    prefix = f"listener.name.{listener.lower()}"
    package = "org.apache.kafka.common.security"
    users = " ".join(f'user_{user}="{password}"' for user, password in SASL_USERS.items())
    logins = {
        "plain": f"plain.PlainLoginModule required {users};",
        "scram-sha-256": "scram.ScramLoginModule required;",
        "scram-sha-512": "scram.ScramLoginModule required;",
        # Accepts unsigned tokens (alg none) with any subject: for the wire format only.
        "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    mechanisms = ",".join(mechanism.upper() for mechanism in logins)
    enabled: dict[str, str | int] = {f"{prefix}.sasl.enabled.mechanisms": mechanisms}
    return enabled | {
        f"{prefix}.{mechanism}.sasl.jaas.config": f"{package}.{login}" for mechanism, login in logins.items()
    }
