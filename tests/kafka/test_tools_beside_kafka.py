"""Kafka's command line tools on an embedded broker and on Apache Kafka: what they print is the same, line by line."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tests.kafka.broker_properties import SASL_USERS
from tests.kafka.cluster import KafkaCluster
from tests.kafka.runtime import FAST_START, java
from tests.support.broker.announced import versions_of_page
from tests.support.broker.fixtures_broker import wait_until
from tests.support.net.logins import log_in_by_scram
from tests.support.net.raw_client import RawClient

pytestmark = pytest.mark.external

SOURCE = Path(__file__).parent / "java" / "Tools.java"
TOOLS = "org.apache.kafka.tools"
CONFIG = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}"{};
"""
FREE = (
    (r"Local controller \d+", "Local controller N"),  # the node's own number
    (r"\t?Epoch: \d+", ""),
    (r"\d{4}-\d\d-\d\d\S*|\w{3} \w{3} \d\d [\d:]{8} \w+ \d{4}", "TIME"),
    (r"[A-Za-z0-9+/]{86}==", "HMAC"),
    (r"(?m)(^|: )[\w-]{22}(?=\s)", r"\1TOKEN"),
    (r" +", " "),
)
"""What is each broker's own, and what is put in its place."""


LOGIN = "SASL_PLAINTEXT"
MOVE_BEGUN = "Successfully started moving log directory"
METRICS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
"""Announced by neither without further ado."""


def announced(address: str) -> dict[int, tuple[int, int]]:
    """Return the versions that a broker announces."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(address) as client:
        answer = client.call(request, ApiVersionsResponse, 4)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


class JavaTools:
    """Calls of tools, in one JVM."""

    def __init__(self, class_path: str) -> None:
        command = java(class_path, str(SOURCE), (), FAST_START)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def call(self, tool: str, *words: str) -> str:
        """Return what a tool prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\t".join((f"{TOOLS}.{tool}", *words)).encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.read(int(self.process.stdout.readline())).decode()

    def close(self) -> None:
        """End it."""
        self.process.communicate()


@pytest.fixture(scope="module")
def tools(kafka_tools: str) -> Iterator[JavaTools]:
    running = JavaTools(kafka_tools)
    yield running
    running.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        listeners="PLAINTEXT://:0,SASL_PLAINTEXT://:0",
        sasl_users=SASL_USERS,
        options={"delegation.token.secret.key": "of all tokens"},
    ) as running:
        yield running


def plain(printed: str) -> list[str]:
    """Return the lines without what is each broker's own, and without where in Java an error came from."""
    for pattern, text in FREE:
        printed = re.sub(pattern, text, printed)
    lines = [line.strip() for line in printed.splitlines()]
    return [line for line in lines if line and not line.startswith(("at ", "... ", "exit "))]


def features(tools: JavaTools, servers: str, *words: str) -> list[str]:
    """The tool's lines; those of features that only one of the brokers has are left out."""
    lines = plain(tools.call("FeatureCommand", "--bootstrap-server", servers, *words))
    return [line for line in lines if "Feature: " not in line or re.search(r"(transaction|group)\.version", line)]


def test_announced_versions(broker: EmbeddedBroker, kafka: KafkaCluster) -> None:
    """All are Kafka's but those of the table in docs/broker-for-tests.md, which gives a reason for each."""
    kafkas, own = (announced(address) for address in (kafka.bootstrap(LOGIN), broker.listeners[LOGIN]))
    rows = {api: row for api, row in versions_of_page().items() if api not in METRICS}
    differ = {api: (kafkas.get(api), own.get(api)) for api in {*kafkas, *own} if kafkas.get(api) != own.get(api)}
    assert differ == {api: (row.kafka, row.here) for api, row in rows.items()}


def test_levels_of_features(tools: JavaTools, broker: EmbeddedBroker, kafka: KafkaCluster) -> None:
    """Nothing that would change Apache Kafka, which other tests share."""
    calls = (
        ("describe",),
        ("downgrade", "--feature", "transaction.version=1", "--dry-run"),
        ("upgrade", "--feature", "transaction.version=2"),
        ("upgrade", "--feature", "transaction.version=1"),
        ("upgrade", "--feature", "transaction.version=9"),
        ("upgrade", "--feature", "group.version=1", "--feature", "nothing.version=1"),
        ("downgrade", "--feature", "nothing.version=0"),
    )
    ours, theirs = (
        [features(tools, servers, *call) for call in calls]
        for servers in (broker.listeners["PLAINTEXT"], kafka.direct_bootstrap())
    )
    assert any("transaction.version" in line for line in theirs[0])
    assert ours == theirs
    changed = features(tools, broker.listeners["PLAINTEXT"], "downgrade", "--feature", "transaction.version=1")
    assert changed == ["transaction.version was downgraded to 1."]
    described = features(tools, broker.listeners["PLAINTEXT"], "describe")
    assert any(re.search(r"transaction\.version.*FinalizedVersionLevel: 1", line) for line in described)


def token_ids(address: str) -> set[str]:
    """Return the tokens that a broker shows to its first user."""
    with RawClient(address) as client:
        assert log_in_by_scram(client, *next(iter(SASL_USERS.items()))) == ErrorCode.NONE
        request = DescribeDelegationTokenRequest(owners=None)
        return {token.token_id for token in client.call(request, DescribeDelegationTokenResponse, 3).tokens}


def await_tokens(servers: str, expected: set[str]) -> None:
    """Wait until each node knows what one has answered: the tools ask any."""
    addresses = servers.split(",")
    wait_until(lambda: all(token_ids(address) == expected for address in addresses), "all nodes to know the tokens")


def test_delegation_tokens(tools: JavaTools, broker: EmbeddedBroker, kafka: KafkaCluster, tmp_path: Path) -> None:
    def printed(servers: str) -> list[list[str]]:
        lines: list[list[str]] = []

        def call(user: str, password: str, *words: str, by_token: bool = False) -> str:
            config = tmp_path / "client.properties"
            config.write_text(CONFIG.format(user, password, " tokenauth=true" if by_token else ""))
            out = tools.call(
                "DelegationTokenCommand", "--bootstrap-server", servers, "--command-config", str(config), *words
            )
            lines.append(plain(out))
            return out

        alice, bob = SASL_USERS.items()
        made = call(*alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        found = re.search(r"(?m)^(\S{22})\s+(\S{88})\s", made)
        assert found is not None, made
        token_id, secret = found.groups()
        await_tokens(servers, {token_id})
        call(*alice, "--describe")
        call(*bob, "--describe", "--owner-principal", "User:alice")
        call(*bob, "--renew", "--renew-time-period", "-1", "--hmac", secret)
        call(*bob, "--renew", "--renew-time-period", "-1", "--hmac", "eA==")
        call(token_id, secret, "--describe", by_token=True)
        call(token_id, secret, "--create", "--max-life-time-period", "-1", by_token=True)
        of_bob = call(*alice, "--create", "--max-life-time-period", "60000", "--owner-principal", "User:bob")
        call(*alice, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
        await_tokens(servers, set(re.findall(r"(?m)^(\S{22})\s+\S{88}\s", of_bob)))
        call(*alice, "--describe")
        return lines

    ours, theirs = printed(broker.listeners["SASL_PLAINTEXT"]), printed(kafka.bootstrap("SASL_PLAINTEXT"))
    assert ours == theirs


class Reassignment:
    """Moves partitions of a broker between its log directories with the tools, and keeps what they print."""

    def __init__(self, tools: JavaTools, servers: str, paths: list[Path], plan: Path) -> None:
        self.tools = tools
        self.servers = servers
        self.paths = paths
        self.plan = plan
        self.printed: list[list[str]] = []

    def move(self, path: Path, *words: str) -> None:
        """Move, wait for the end, and describe the directories."""
        partitions = [
            {"topic": "moved", "partition": number, "replicas": [1], "log_dirs": [str(path)]} for number in (0, 1)
        ]
        self.plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        self.printed.append(self._reassign("--execute", *words))
        wait_until(lambda: not any("in progress" in line for line in self._reassign("--verify")), "the moves to end")
        self.printed.append(self._reassign("--verify"))
        self.printed.append(self._call("LogDirsCommand", "--describe", "--broker-list", "1", "--topic-list", "moved"))

    def _reassign(self, *words: str) -> list[str]:
        return self._call("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(self.plan), *words)

    def _call(self, tool: str, *words: str) -> list[str]:
        out = self.tools.call(tool, "--bootstrap-server", self.servers, *words)
        for path, name in zip(reversed(self.paths), ("SECOND", "FIRST"), strict=True):  # one may begin as the other
            out = out.replace(str(path), name)
        lines = [self._described(line) if line.startswith("{") else line for line in plain(out)]
        return [re.sub(r"moved-\d-1$", "one of them", line) for line in lines if "third" not in line]

    @staticmethod
    def _described(line: str) -> str:
        """The directories in order, with what is in them."""
        found = json.loads(line)
        if "brokers" not in found:
            return "plan"  # the places before, which each broker chose
        directories = found["brokers"][0]["logDirs"]
        for directory in directories:
            directory["partitions"].sort(key=lambda each: each["partition"])
        return json.dumps(sorted(directories, key=lambda each: each["logDir"]))


def test_log_directories(tools: JavaTools, tmp_path: Path) -> None:
    def printed(servers: str, paths: list[Path]) -> list[list[str]]:
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(4):
                producer.send("moved", b"%d" % number, partition=number % 2).result()
        moving = Reassignment(tools, servers, paths, tmp_path / "plan.json")
        moving.move(paths[1])
        moving.move(paths[0], "--replica-alter-log-dirs-throttle", "1000000")
        moving.move(paths[0].parent / "third")
        return moving.printed

    ours = [tmp_path / "first", tmp_path / "second"]
    with EmbeddedBroker(data_dir=ours[0], log_dirs=ours[1:], topics={"moved": 2}, options={"node.id": 1}) as broker:
        own_lines = printed(broker.bootstrap_servers, ours)
    with KafkaCluster(1, further_log_dirs=1) as cluster:
        cluster.create_topic("moved", 2)
        for own, other in zip(own_lines, printed(cluster.bootstrap(), cluster.log_dirs(1)), strict=True):
            assert own == other
    assert '"logDir": "SECOND"' in own_lines[2][-1]


class ClusterReassignment:
    """Moves a partition of three brokers between them and their log directories, and keeps what the tools print."""

    def __init__(self, tools: JavaTools, servers: str, paths: dict[int, list[str]], plan: Path) -> None:
        self.tools = tools
        self.servers = servers
        self.paths = paths
        self.plan = plan
        self.printed: list[list[str]] = []

    def move(self, replicas: list[int], places: list[int | None], *words: str) -> None:
        """Move to directories of a number, None for any; wait for the end, and describe all directories."""
        names = [
            "any" if place is None else self.paths[replica][place]
            for replica, place in zip(replicas, places, strict=True)
        ]
        partition = {"topic": "moved", "partition": 0, "replicas": replicas, "log_dirs": names}
        self.plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        self.printed.append(self._reassign("--execute", *words))
        wait_until(lambda: not any("in progress" in line for line in self._reassign("--verify")), "the moves to end")
        self.printed.append(self._reassign("--verify"))
        self.printed.append(self._reassign("--list"))
        self.printed.append(self._call("LogDirsCommand", "--describe", "--topic-list", "moved"))

    def _reassign(self, *words: str) -> list[str]:
        plan = () if "--list" in words else ("--reassignment-json-file", str(self.plan))
        return self._call("reassign.ReassignPartitionsCommand", *plan, *words)

    def _call(self, tool: str, *words: str) -> list[str]:
        out = self.tools.call(tool, "--bootstrap-server", self.servers, *words)
        for broker_id, paths in self.paths.items():
            for number in (1, 0):  # one may begin as the other
                out = out.replace(paths[number], f"{broker_id}:{number}")
        lines = [self._described(line) if line.startswith("{") else line for line in plain(out)]
        # The tool asks each broker again until it has the replica: the brokers' moves begin in any order.
        begun = sorted(line for line in lines if line.startswith(MOVE_BEGUN))
        return [begun.pop(0) if line.startswith(MOVE_BEGUN) else line for line in lines]

    @staticmethod
    def _described(line: str) -> str:
        """Where the replicas are, and how far; the sizes are each broker's own."""
        found = json.loads(line)
        if "brokers" not in found:
            return "plan"
        return json.dumps(
            sorted(
                (directory["logDir"], directory["error"], each["partition"], each["offsetLag"], each["isFuture"])
                for broker in found["brokers"]
                for directory in broker["logDirs"]
                for each in directory["partitions"]
            )
        )


def test_log_directories_of_a_cluster(tools: JavaTools, tmp_path: Path) -> None:
    def printed(servers: str, paths: dict[int, list[str]]) -> list[list[str]]:
        place = ("--create", "--topic", "moved", "--replica-assignment", "1:2")
        made = tools.call("TopicCommand", "--bootstrap-server", servers, *place)
        assert "Created topic moved." in made
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(40):
                producer.send("moved", b"%d" % number * 100).result()
        moving = ClusterReassignment(tools, servers, paths, tmp_path / "plan.json")
        moving.move([1, 2], [1, 1])
        moving.move([1, 2], [0, 0], "--replica-alter-log-dirs-throttle", "1000000")
        moving.move([2, 3], [None, 1])
        moving.move([3, 1, 2], [0, 1, 1], "--throttle", "1000000", "--replica-alter-log-dirs-throttle", "1000000")
        moving.move([3, 1], [None, None])
        return moving.printed

    with EmbeddedCluster(log_dirs=2, data_dir=tmp_path / "data") as embedded:
        own = printed(embedded.bootstrap_servers, {each.id: list(each.log_dirs) for each in embedded.brokers})
    with KafkaCluster(3, further_log_dirs=1) as cluster:
        theirs = printed(cluster.bootstrap(), {node: list(map(str, cluster.log_dirs(node))) for node in (1, 2, 3)})
    for ours, other in zip(own, theirs, strict=True):
        assert ours == other
    assert [line for lines in own for line in lines if line.startswith("[")]
