"""Logins and TLS of the embedded broker, with real clients."""

from __future__ import annotations

import random
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer

from kafkaprod.broker.embedding.embedded import EmbeddedBroker, EmbeddedBrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.certificates import Authority, Pem
from tests.support.net.raw_client import RawClient

USER, PASSWORD = "ada", "lovelace"
TOPIC = "orders"


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={TOPIC: 1}, sasl_users={USER: PASSWORD}) as broker:
        yield broker


def confluent(broker: EmbeddedBroker, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in options.items()},
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_and_kafka_python_log_in(sasl_broker: EmbeddedBroker, mechanism: str) -> None:
    producer = ConfluentProducer(confluent(sasl_broker, sasl_mechanism=mechanism))
    producer.produce(TOPIC, b"x")
    assert producer.flush(60) == 0
    other = KafkaProducer(
        bootstrap_servers=sasl_broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    assert other.send(TOPIC, b"y").get(timeout=60).offset > 0
    other.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_password_is_refused_with_a_reason(sasl_broker: EmbeddedBroker, mechanism: str) -> None:
    errors: list[Any] = []
    options = confluent(sasl_broker, sasl_mechanism=mechanism, sasl_password="wrong")
    admin = AdminClient(cast(Any, {**options, "error_cb": errors.append}))

    def is_told() -> bool:
        admin.poll(0.1)
        return any("uthentication" in str(error) for error in errors)

    wait_until(is_told, "the reason of the refusal")


def test_stranger_is_cut_off_at_the_first_request(sasl_broker: EmbeddedBroker) -> None:
    with RawClient(sasl_broker.bootstrap_servers) as client:
        answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert {int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)} <= {key.api_key for key in answer.api_keys}
        client.send(MetadataRequest(topics=None), 1)
        assert client.is_closed_by_broker()


def test_stranger_cannot_send_large_frames(sasl_broker: EmbeddedBroker) -> None:
    with RawClient(sasl_broker.bootstrap_servers) as client:
        client.socket.sendall(struct.pack(">i", 1 << 20))
        assert client.is_closed_by_broker()


def test_login_raises_the_limit_of_frames(sasl_broker: EmbeddedBroker) -> None:
    with RawClient(sasl_broker.bootstrap_servers) as client:
        unknown = client.call(SaslHandshakeRequest(mechanism="GSSAPI"), SaslHandshakeResponse, 1)
        assert (unknown.error_code, "PLAIN" in unknown.mechanisms) == (33, True)
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1).error_code == 0
        token = f"\0{USER}\0{PASSWORD}".encode()
        assert client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2).error_code == 0
        names = [FetchTopic(topic="x" * 30_000, partitions=[FetchPartition(partition=n)]) for n in range(40)]
        assert len(client.call(FetchRequest(topics=names), FetchResponse, 11).responses) == 40


def test_refused_login_is_answered_and_then_closed(sasl_broker: EmbeddedBroker) -> None:
    with RawClient(sasl_broker.bootstrap_servers) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0ada\0wrong"), SaslAuthenticateResponse, 1)
        assert answer.error_code == 58
        assert client.is_closed_by_broker()


def test_broker_without_users_announces_a_login_and_refuses_it(embedded_broker: EmbeddedBroker) -> None:
    """As Kafka's listeners do: clients guess the version of a broker by what it announces."""
    with RawClient(embedded_broker.bootstrap_servers) as client:
        keys = {entry.api_key for entry in client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys}
        assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= keys
        answer = client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_broker(authority: Authority) -> Iterator[EmbeddedBroker]:
    pem = authority.issue("broker", names=["127.0.0.1"])
    with EmbeddedBroker(topics={TOPIC: 1}, tls_files=(pem.certfile, pem.keyfile)) as broker:
        yield broker


def test_librdkafka_and_kafka_python_produce_over_tls(tls_broker: EmbeddedBroker, authority: Authority) -> None:
    producer = ConfluentProducer(
        {
            "bootstrap.servers": tls_broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.cafile),
        }
    )
    producer.produce(TOPIC, b"x" * 500_000)
    assert producer.flush(60) == 0
    other = KafkaProducer(
        bootstrap_servers=tls_broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=str(authority.cafile)
    )
    assert other.send(TOPIC, b"y").get(timeout=60).offset > 0
    other.close()


def test_large_fetch_comes_over_tls_byte_for_byte(tls_broker: EmbeddedBroker, authority: Authority) -> None:
    values = [random.Random(number).randbytes(900_000) for number in range(6)]
    with tls_client(tls_broker, authority) as client:
        first = None
        for value in values:
            data = [PartitionProduceData(index=0, records=make_batch([value]))]
            request = ProduceRequest(
                acks=1, timeout_ms=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
            )
            answer = client.call(request, ProduceResponse, 9).responses[0].partition_responses[0]
            first = answer.base_offset if first is None else first
        wanted = [FetchPartition(partition=0, fetch_offset=first or 0, partition_max_bytes=64 << 20)]
        fetched = client.call(FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=wanted)]), FetchResponse, 11)
    records = bytes(fetched.responses[0].partitions[0].records or b"")
    assert all(value in records for value in values)


def test_plain_text_on_a_tls_port_is_cut_off(tls_broker: EmbeddedBroker) -> None:
    with RawClient(tls_broker.bootstrap_servers) as client:
        client.send(ApiVersionsRequest(), 0)
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_broker_that_asks_for_certificates_refuses_clients_without(authority: Authority, tmp_path: Path) -> None:
    pem = authority.issue("broker", names=["127.0.0.1"])
    own = authority.issue("client", names=[], is_for_clients=True)
    with EmbeddedBroker(tls_files=(pem.certfile, pem.keyfile, authority.cafile)) as broker:
        with tls_client(broker, authority, own) as client:
            assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        with pytest.raises((ssl.SSLError, ConnectionError)), tls_client(broker, authority) as stranger:
            stranger.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


def test_missing_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match="TLS files"):
        EmbeddedBroker(tmp_path / "data", tls_files=(tmp_path / "no.pem", tmp_path / "no.key")).start()


def tls_client(broker: EmbeddedBroker, authority: Authority, own: Pem | None = None) -> RawClient:
    """A raw client behind TLS."""
    context = ssl.create_default_context(cafile=str(authority.cafile))
    if own is not None:
        context.load_cert_chain(own.certfile, own.keyfile)
    client = RawClient(broker.bootstrap_servers)
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
    return client


def test_user_whose_credential_was_set_by_a_client_logs_in(tmp_path: Path) -> None:
    with EmbeddedBroker(sasl_users={"admin": "secret"}, topics={"t": 1}) as broker:
        admin = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "secret",
            }
        )
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
        change = UserScramCredentialUpsertion("bob", info, b"his own")
        admin.alter_user_scram_credentials([change])["bob"].result(30)
        descriptions: Any = admin.describe_user_scram_credentials(["bob"])
        described = descriptions["bob"].result(30)
        assert [entry.iterations for entry in described.scram_credential_infos] == [8192]
        login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "bob", "sasl_plain_password": "his own"}
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **login
        )
        assert producer.send("t", b"v").get(30).offset == 0
        producer.close()


def test_acls_bind_who_logs_in() -> None:
    users = {"admin": "secret", "ann": "hers"}
    with EmbeddedBroker(sasl_users=users, topics={"t": 1}, options={"super.users": "User:admin"}) as broker:

        def login(user: str) -> dict[str, str]:
            return {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": users[user],
            }

        def produce_as_ann() -> str | None:
            producer, errors = ConfluentProducer(login("ann")), []
            producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
            producer.flush(30)
            return None if errors[0] is None else errors[0].name()

        admin = AdminClient(cast(Any, login("admin")))
        operation, permission = AclOperation.WRITE, AclPermissionType.ALLOW
        assert produce_as_ann() is None  # there are no entries yet
        bobs = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:bob", "*", operation, permission)
        admin.create_acls([bobs])[bobs].result(30)
        assert produce_as_ann() == "TOPIC_AUTHORIZATION_FAILED"
        anns = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.PREFIXED, "User:ann", "*", operation, permission)
        admin.create_acls([anns])[anns].result(30)
        assert produce_as_ann() is None
        anything: Any = None
        every = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert len(admin.describe_acls(every).result(30)) == 2
        assert len(admin.delete_acls([every])[every].result(30)) == 2
        assert produce_as_ann() is None


def test_one_broker_has_several_listeners(authority: Authority) -> None:
    pem = authority.issue("broker", names=["127.0.0.1"])
    with EmbeddedBroker(
        topics={"t": 1},
        listeners="PLAINTEXT://:0,SSL://:0,SASL_PLAINTEXT://:0,SASL_SSL://:0",
        tls_files=(pem.certfile, pem.keyfile),
        sasl_users={"ann": "secret"},
    ) as broker:
        places = broker.listeners
        assert broker.bootstrap_servers == places["PLAINTEXT"]
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ann", "sasl.password": "secret"}
        for protocol, place in places.items():
            options = {"bootstrap.servers": place, "security.protocol": protocol}
            options |= {"ssl.ca.location": str(authority.cafile)} if protocol.endswith("SSL") else {}
            options |= login if protocol.startswith("SASL_") else {}
            brokers = AdminClient(cast(Any, options)).list_topics(timeout=30).brokers
            assert [f"{item.host}:{item.port}" for item in brokers.values()] == [place]
        with RawClient(places["PLAINTEXT"]) as client:
            keys = {entry.api_key for entry in client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys}
            assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= keys
        broker.stop()
        broker.start()
        assert broker.listeners == places
