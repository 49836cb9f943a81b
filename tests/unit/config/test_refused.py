"""Every option name of four other producers is accepted, or refused with a reason; none is merely unknown.

The lists in option_names/ come from kafka-clients' ProducerConfig.configDef() (without internal options), librdkafka's
rd_kafka_conf_properties_show() (consumers' options too: programs share settings), kafka-python's DEFAULT_CONFIG and
aiokafka's constructor. Where the package is installed the list is compared with it.
"""

from __future__ import annotations

import ctypes
import inspect
import math
import re
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.config.refused import REFUSED, REFUSED_VALUES
from kafkaprod.errors import ConfigError

LISTS = Path(__file__).parent / "option_names"
NAMES = {path.stem: path.read_text(encoding="utf-8").split() for path in sorted(LISTS.glob("*.txt"))}


@pytest.mark.parametrize("client", NAMES)
def test_no_name_of_another_client_is_unknown(client: str) -> None:
    unknown = []
    for name in NAMES[client]:
        try:
            ProducerConfig.from_options({"bootstrap.servers": "a", name: object()})
        except ConfigError as error:
            if "unknown option" in str(error):
                unknown.append(name)
    assert unknown == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refusal_says_what_to_do(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} is not supported: {REFUSED[name]}")):
        ProducerConfig.from_options({"bootstrap.servers": "a", name: 1})


def test_java_has_119_names() -> None:
    assert len(NAMES["java-4.4.0"]) == 119


def test_the_list_of_kafka_python_is_complete() -> None:
    assert sorted(kafka.KafkaProducer.DEFAULT_CONFIG) == NAMES["kafka-python-3.0"]


def test_the_list_of_aiokafka_is_complete() -> None:
    assert sorted(inspect.signature(aiokafka.AIOKafkaProducer).parameters) == NAMES["aiokafka-0.14"]


def test_the_list_of_librdkafka_is_complete(tmp_path: Path) -> None:
    libraries = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    path = next(libraries, None)
    if path is None:
        pytest.skip("this confluent-kafka has no library of its own")
    library, system = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    system.fopen.restype = ctypes.c_void_p
    system.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    printed = tmp_path / "configuration.md"
    file = system.fopen(str(printed).encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    system.fclose(file)
    rows = re.findall(r"^(\S+)\s*\|\s*[*PC]+\s*\|", printed.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(rows)) == NAMES["librdkafka-2.16"]


def test_the_defaults_of_kafka_python_can_be_copied() -> None:
    defaults = dict(kafka.KafkaProducer.DEFAULT_CONFIG)
    given = {name: value for name, value in defaults.items() if value is None or value == math.inf}
    config = ProducerConfig.from_options({"bootstrap_servers": "a", **given})
    assert config.retries == 2**31 - 1
    assert (config.send_buffer_bytes, config.receive_buffer_bytes) == (-1, -1)
    assert config.client_id.startswith("producer-")


def test_none_leaves_an_option_of_another_client_out() -> None:
    options = dict.fromkeys(REFUSED)
    assert ProducerConfig.from_options({"bootstrap.servers": "a", **options}).bootstrap_servers == (("a", 9092),)
    with pytest.raises(ConfigError):
        ProducerConfig.from_options({"bootstrap.servers": "a", **dict.fromkeys(REFUSED_VALUES)})


def test_librdkafkas_aws_iam_is_answered_with_our_name_of_it() -> None:
    with pytest.raises(ConfigError, match="use sasl_mechanism=AWS_MSK_IAM"):
        ProducerConfig.from_options(
            {"bootstrap_servers": "h:1", "sasl.oauthbearer.metadata.authentication.type": "aws_iam"}
        )
