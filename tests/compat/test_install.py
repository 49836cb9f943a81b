"""install(): this engine's producers in the original packages, for programs and frameworks that import those."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import Producer as TheirProducer

from kafkaprod.compat import install, installation, uninstall
from kafkaprod.compat.aiokafka import AIOKafkaProducer
from kafkaprod.compat.confluent_kafka import Producer, SerializingProducer
from kafkaprod.compat.confluent_kafka.aio import AIOProducer
from kafkaprod.compat.kafka_python import KafkaProducer

# Each writes and reads with the client that it imports, as the client's own documentation shows.
CONFLUENT_KAFKA = """
import sys
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers, topic = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers})
for future in admin.create_topics([NewTopic(topic, 3, 1)]).values():
    future.result()
try:
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
except KafkaException as error:
    print("refused:", error.args[0].name())

def delivery_report(err, msg):
    if err is not None:
        print("delivery failed:", err)

p = Producer({"bootstrap.servers": servers})
for data in ["one", "two", "three"]:
    p.poll(0)
    p.produce(topic, data.encode("utf-8"), callback=delivery_report)
p.flush()

c = Consumer({"bootstrap.servers": servers, "group.id": "mygroup", "auto.offset.reset": "earliest"})
c.subscribe([topic])
read = []
while len(read) < 3:
    msg = c.poll(1.0)
    if msg is None:
        continue
    if msg.error():
        raise KafkaException(msg.error())
    read.append(msg.value().decode("utf-8"))
c.close()
print("read:", sorted(read), "by", type(p).__module__)
"""
KAFKA_PYTHON = """
import json
import sys
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

servers, topic = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=[servers], value_serializer=lambda m: json.dumps(m).encode("ascii"))
for number in range(3):
    future = producer.send(topic, {"number": number}, key=b"foo")
    try:
        future.get(timeout=30)
    except KafkaError as error:
        print("failed:", error)
producer.flush()
try:
    producer.send(topic, {"number": 4}, partition=1 << 20)
except (KafkaError, ValueError) as error:
    print("refused:", type(error).__name__)

consumer = KafkaConsumer(topic, bootstrap_servers=[servers], auto_offset_reset="earliest", consumer_timeout_ms=30000,
                         value_deserializer=lambda m: json.loads(m.decode("ascii")))
read = [next(consumer).value["number"] for _ in range(3)]
consumer.close()
producer.close()
print("read:", read, "by", type(producer).__module__)
"""
AIOKAFKA = """
import asyncio
import sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import IllegalOperation

servers, topic = sys.argv[1:]

async def main():
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"Super message")
        batch = producer.create_batch()
        for number in range(2):
            batch.append(key=None, value=b"%d" % number, timestamp=None)
        await producer.send_batch(batch, topic)
        await producer.flush()
        try:
            await producer.begin_transaction()
        except IllegalOperation as error:
            print("refused:", type(error).__name__)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id="my-group", auto_offset_reset="earliest")
    await consumer.start()
    try:
        read = [(await consumer.getone()).value for _ in range(3)]
    finally:
        await consumer.stop()
    print("read:", sorted(read), "by", type(producer).__module__)

asyncio.run(main())
"""
PROGRAMS = {
    "confluent_kafka": (
        CONFLUENT_KAFKA,
        "refused: TOPIC_ALREADY_EXISTS\nread: ['one', 'three', 'two'] by kafkaprod.compat.confluent_kafka.producer\n",
    ),
    "kafka_python": (
        KAFKA_PYTHON,
        "refused: ValueError\nread: [0, 1, 2] by kafkaprod.compat.kafka_python.producer.kafka\n",
    ),
    "aiokafka": (
        AIOKAFKA,
        "refused: IllegalOperation\nread: [b'0', b'1', b'Super message'] by kafkaprod.compat.aiokafka.producer\n",
    ),
}


@pytest.fixture(autouse=True)
def originals() -> Iterator[None]:
    yield
    for client in get_args(installation.Client):
        uninstall(client)


def run(*arguments: str, cwd: Path) -> Any:
    command = [sys.executable, "-m", "kafkaprod.compat", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, cwd=cwd)


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_program_that_writes_and_reads_runs_as_it_is(client: str, servers: str, topic: str, tmp_path: Path) -> None:
    source, expected = PROGRAMS[client]
    (tmp_path / "program.py").write_text(source, encoding="utf-8")
    done = run(client, "--", "program.py", servers, topic, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert "kafkaprod: in place are" in done.stderr


def test_a_module_is_run_too_and_keeps_its_exit_code(tmp_path: Path) -> None:
    source = "import sys, confluent_kafka; sys.exit(confluent_kafka.Producer.__module__ + ' ' + sys.argv[1])"
    (tmp_path / "some_module.py").write_text(source, encoding="utf-8")
    done = run("confluent_kafka", "--", "-m", "some_module", "--option", cwd=tmp_path)
    assert done.returncode == 1
    assert "kafkaprod.compat.confluent_kafka.producer --option" in done.stderr


def test_install_puts_the_classes_in_place_once_and_uninstall_puts_them_back() -> None:
    before = (confluent_kafka.Producer, kafka.KafkaProducer, aiokafka.AIOKafkaProducer)
    names = install("confluent_kafka")
    assert "confluent_kafka.Producer" in names
    assert install("confluent_kafka") == names
    install("kafka_python")
    install("aiokafka")
    assert confluent_kafka.Producer is Producer
    assert confluent_kafka.SerializingProducer is SerializingProducer
    assert importlib.import_module("confluent_kafka.aio").AIOProducer is AIOProducer
    assert kafka.KafkaProducer is importlib.import_module("kafka.producer").KafkaProducer is KafkaProducer
    assert aiokafka.AIOKafkaProducer is AIOKafkaProducer
    for client in get_args(installation.Client):
        assert uninstall(client)
        assert uninstall(client) == []
    assert before == (confluent_kafka.Producer, kafka.KafkaProducer, aiokafka.AIOKafkaProducer)


def test_a_class_that_others_have_put_there_meanwhile_stays() -> None:
    install("kafka_python")

    class Traced(KafkaProducer):
        """As instrumentation makes one."""

    before = kafka.KafkaProducer
    try:
        kafka.KafkaProducer = Traced
        assert "kafka.KafkaProducer" not in uninstall("kafka_python")
        assert kafka.KafkaProducer is Traced
    finally:
        kafka.KafkaProducer = importlib.import_module("kafka.producer.kafka").KafkaProducer
    assert kafka.KafkaProducer is not before


def test_modules_that_were_too_early_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafkaprod.compat"):
        install("confluent_kafka")
    assert confluent_kafka.Producer is not TheirProducer
    assert f"confluent_kafka {confluent_kafka.__version__}: in place are confluent_kafka.Producer" in caplog.text
    assert __name__ in next(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


def test_an_unknown_client_is_refused_with_those_that_there_are() -> None:
    for call in (install, uninstall):
        with pytest.raises(ValueError, match="'pulsar': it is one of aiokafka, confluent_kafka, kafka_python"):
            call("pulsar")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("confluent_kafka", confluent_kafka), ("kafka_python", kafka), ("aiokafka", aiokafka)]
)
def test_every_module_of_the_original_is_imported_through_compat(ours: str, theirs: ModuleType) -> None:
    taken = here = 0
    for found in pkgutil.walk_packages(theirs.__path__, f"{theirs.__name__}.", onerror=lambda _: None):
        if "__main__" in found.name:
            continue
        try:
            original = importlib.import_module(found.name)
        except ImportError:  # needs a package that is not installed
            continue
        name = f"kafkaprod.compat.{ours}{found.name.removeprefix(theirs.__name__)}"
        module = importlib.import_module(name)
        if module is original:
            taken += 1
            assert module.__spec__ is not None
            assert module.__spec__.name == found.name
        else:
            here += 1
            assert module.__name__ == name
    assert taken > 15
    assert here >= 3


def test_a_module_that_neither_has_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"kafkaprod\.compat\.kafka_python\.no_such_module"):
        importlib.import_module("kafkaprod.compat.kafka_python.no_such_module")
    with pytest.raises(ModuleNotFoundError, match=r"kafkaprod\.compat\.no_such_client"):
        importlib.import_module("kafkaprod.compat.no_such_client")


def test_versions_are_the_originals() -> None:
    for ours, theirs in (("confluent_kafka", confluent_kafka), ("kafka_python", kafka), ("aiokafka", aiokafka)):
        assert importlib.import_module(f"kafkaprod.compat.{ours}").__version__ == theirs.__version__


def test_in_place_of_the_originals_module_a_missing_name_is_an_error_not_a_recursion() -> None:
    program = """
import sys
import kafkaprod.compat.kafka_python
sys.modules["kafka"] = kafkaprod.compat.kafka_python
try:
    sys.modules["kafka"].KafkaConsumer
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "which is not installed" in done.stdout, done.stderr


def test_a_client_without_a_producer_where_others_have_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", ModuleType("confluent_kafka"))
    for name in [name for name in sys.modules if name.startswith("confluent_kafka.")]:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for _ in range(2):
        with pytest.raises(
            ImportError, match=r"no producer .* looked for Producer in confluent_kafka, confluent_kafka\.c"
        ):
            install("confluent_kafka")
    assert uninstall("confluent_kafka") == []
