"""Kafka's own command line tools (Java, from Maven) at the embedded broker: each call is a test.

Maven -> leave the network -> broker -> one tool after the other, in the order of STEPS
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.foreign import network, reasons
from tests.foreign.results import Results
from tests.kafka.runtime import FAST_START, TOOLS_VERSION, java, tools_class_path

REQUIREMENT: Final = f"kafka-tools {TOOLS_VERSION}"
EXPECTED_FAILURES: Final[Mapping[str, str]] = reasons.KAFKA_TOOLS
_TIMEOUT_S = 120
_TOOLS = "org.apache.kafka.tools"
_CLASSES: Final = {
    "acls": f"{_TOOLS}.AclCommand",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "features": f"{_TOOLS}.FeatureCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "topics": f"{_TOOLS}.TopicCommand",
    "share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "transactions": f"{_TOOLS}.TransactionsCommand",
}
_OPTION_OF_SERVERS: Final = {"producer-perf-test": "--producer-props", "dump-log": ""}


@dataclass(frozen=True)
class Step:
    """One call.

    Attributes:
        tool: key of _CLASSES.
        arguments: split at blanks; {topic} and so on are files and names of the run.
        shows: what it prints, among other things.
        stdin: what it reads.
    """

    tool: str
    arguments: str
    shows: tuple[str, ...] = ()
    stdin: str = ""

    @property
    def name(self) -> str:
        """The call, as the results show it."""
        return f"{self.tool} {self.arguments}"


STEPS: Final = (
    Step("broker-api-versions", "", ("id: 0 ", "Produce(0): 0 to ")),
    Step("cluster", "cluster-id", ("Cluster ID: ",)),
    Step("topics", "--create --topic t --partitions 1 --config cleanup.policy=delete", ("Created topic t.",)),
    Step("topics", "--create --topic t --partitions 1 --if-not-exists"),
    Step("topics", "--list", ("t\n",)),
    Step("configs", "--alter --entity-type topics --entity-name t --add-config retention.ms=600000", ("Completed",)),
    Step("configs", "--describe --entity-type topics --entity-name t", ("retention.ms=600000",)),
    Step(
        "configs",
        "--alter --entity-type brokers --entity-name 0 --add-config message.max.bytes=2000000",
        ("Completed",),
    ),
    Step("configs", "--describe --entity-type brokers --entity-name 0", ("message.max.bytes=2000000",)),
    Step("configs", "--describe --entity-type brokers --entity-default"),
    Step(
        "configs",
        "--alter --entity-type users --entity-name ann --add-config SCRAM-SHA-256=[password=hers]",
        ("Completed",),
    ),
    Step("configs", "--describe --entity-type users --entity-name ann", ("SCRAM-SHA-256=iterations=",)),
    Step(
        "configs", "--alter --entity-type clients --entity-name c --add-config producer_byte_rate=1024", ("Completed",)
    ),
    Step("configs", "--describe --entity-type clients --entity-name c", ("producer_byte_rate=1024",)),
    Step(
        "configs",
        "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000",
        ("Completed",),
    ),
    Step("configs", "--alter --entity-type broker-loggers --entity-name 0 --add-config kafka=DEBUG", ("Completed",)),
    Step("client-metrics", "--alter --name m --metrics org.apache --interval 10000", ("Altered",)),
    Step("client-metrics", "--list", ("m",)),
    Step("console-producer", "--topic t", stdin="a\nb\nc\n"),
    Step("producer-perf-test", "--topic t --num-records 1000 --record-size 10 --throughput -1", ("1000 records sent",)),
    Step(
        "producer-perf-test",
        "--topic t --num-records 1000 --record-size 10 --throughput -1 --transactional-id x",
        ("1000 records sent",),
    ),
    Step(
        "console-consumer", "--topic t --from-beginning --max-messages 2003 --group g", ("Processed a total of 2003",)
    ),
    Step(
        "console-consumer",
        "--topic t --from-beginning --max-messages 3 --group k --consumer-property group.protocol=consumer",
        ("Processed a total of 3",),
    ),
    Step("topics", "--alter --topic t --partitions 4"),
    Step("topics", "--describe --topic t", ("PartitionCount: 4", "cleanup.policy=delete", "Isr: 0")),
    Step("get-offsets", "--topic t", ("t:0:", "t:3:")),
    Step("get-offsets", "--topic t --time -2", ("t:0:0",)),
    Step("get-offsets", "--topic t --time -3", ("t:0:",)),
    Step("groups", "--list", ("g ", "k ", "Classic", "Consumer")),
    Step("consumer-groups", "--list", ("g\n",)),
    Step("consumer-groups", "--describe --group g", ("LAG",)),
    Step("consumer-groups", "--describe --group g --state", ("Empty",)),
    Step("consumer-groups", "--describe --group k --members", ("k",)),
    Step("consumer-groups", "--group g --topic t --reset-offsets --to-earliest --execute", ("NEW-OFFSET",)),
    Step("consumer-groups", "--group k --topic t --reset-offsets --to-latest --execute", ("NEW-OFFSET",)),
    Step("consumer-groups", "--delete-offsets --group g --topic t:0", ("Successful",)),
    Step("consumer-groups", "--delete --group g", ("successful",)),
    Step("acls", "--add --allow-principal User:ann --operation Read --topic t", ("Adding ACLs",)),
    Step("acls", "--list", ("principal=User:ann",)),
    Step("acls", "--remove --force --allow-principal User:ann --operation Read --topic t"),
    Step("delete-records", "--offset-json-file {deletion}", ("low_watermark",)),
    Step("get-offsets", "--topic-partitions t:1 --time -2", ("t:1:",)),
    Step("transactions", "list", ("x",)),
    Step("transactions", "describe --transactional-id x", ("CompleteCommit",)),
    Step("transactions", "describe-producers --topic t --partition 0"),
    Step("transactions", "find-hanging --broker 0"),
    Step("log-dirs", "--describe --topic-list t", ('"partition":"t-0"',)),
    Step("leader-election", "--election-type preferred --all-topic-partitions"),
    Step(
        "reassign-partitions", "--verify --reassignment-json-file {reassignment}", ("Status of partition reassignment",)
    ),
    Step("reassign-partitions", "--execute --reassignment-json-file {reassignment}", ("Successfully started",)),
    Step("reassign-partitions", "--list", ("No partition reassignments",)),
    Step("metadata-quorum", "describe --status", ("LeaderId:",)),
    Step("metadata-quorum", "describe --replication", ("Leader",)),
    Step("features", "describe", ("transaction.version",)),
    Step("share-groups", "--list"),
    Step("delegation-tokens", "--create --max-life-time-period -1 --command-config {empty}", ("TOKENID",)),
    Step("dump-log", "--files {segment} --print-data-log", ("isvalid: true", "payload: ")),
    Step("dump-log", "--files {index}", ("Dumping",)),
    Step("dump-log", "--files {timeindex}", ("Dumping",)),
    Step("topics", "--delete --topic t"),
)


def run() -> Results:
    """Download the tools, run the steps, and return what came of them; print the output of those that fail."""
    tools_class_path()
    network.leave()
    results = Results()
    with (
        tempfile.TemporaryDirectory(prefix="foreign-") as name,
        EmbeddedBroker(options={"super.users": "User:ANONYMOUS"}) as broker,
    ):
        places = _write_files(Path(name), Path(broker.data_dir))
        for step in STEPS:
            output, is_done = _call(step, broker.bootstrap_servers, places)
            if is_done and all(text in output for text in step.shows):
                results.passed.add(step.name)
            else:
                results.failed.add(step.name)
                print(f"--- {step.name}\n{output}")
    return results


def _write_files(directory: Path, data: Path) -> dict[str, str]:
    (directory / "deletion").write_text('{"partitions":[{"topic":"t","partition":1,"offset":-1}],"version":1}')
    (directory / "reassignment").write_text('{"partitions":[{"topic":"t","partition":0,"replicas":[0]}],"version":1}')
    (directory / "empty").write_text("")
    segments = {ending: str(data / "t-0" / f"{0:020}.{ending}") for ending in ("log", "index", "timeindex")}
    written = {name: str(directory / name) for name in ("deletion", "reassignment", "empty")}
    return {**written, "segment": segments["log"], "index": segments["index"], "timeindex": segments["timeindex"]}


def _call(step: Step, servers: str, places: Mapping[str, str]) -> tuple[str, bool]:
    """Run a tool; return what it printed, and whether it ended well."""
    option = _OPTION_OF_SERVERS.get(step.tool, "--bootstrap-server")
    where = [option, f"bootstrap.servers={servers}" if option == "--producer-props" else servers] if option else []
    arguments = [argument.format_map(places) for argument in step.arguments.split()]
    if step.tool in ("cluster", "features", "metadata-quorum", "transactions"):  # these take it before their command
        arguments = [*where, *arguments] if step.tool != "cluster" else [*arguments, *where]
    else:
        arguments += where
    main_class = _CLASSES[step.tool]
    done = subprocess.run(
        java(tools_class_path(), main_class, arguments, FAST_START),
        input=step.stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.stdout, done.returncode == 0
