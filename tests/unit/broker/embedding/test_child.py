"""What an embedded broker's process makes of the options it is given."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.embedding.child import parse_config
from kafkaprod.broker.embedding.embedded import EmbeddedBroker, EmbeddedBrokerError
from kafkaprod.storage.disk import Disk, UnsyncedDisk


@pytest.mark.parametrize(("options", "retention_ms"), [({}, -1), ({"retention_ms": 5}, 5)])
def test_records_of_an_embedded_broker_do_not_age_unless_it_is_told(options: dict[str, int], retention_ms: int) -> None:
    """Tests write records with old timestamps, and read them when they get to it."""
    broker = EmbeddedBroker("somewhere", **options)  # type: ignore[arg-type]
    config = parse_config(json.loads(json.dumps({"data_dir": "somewhere", "port": 0, **broker._options})))
    assert config.log.retention_ms == retention_ms


@pytest.mark.parametrize(
    ("options", "disk"),
    [({}, UnsyncedDisk), ({"flush_policy": "each"}, Disk), ({"data_dir": "somewhere"}, Disk)],
)
def test_only_a_temporary_directory_is_not_synced(options: dict[str, Any], disk: type[Disk]) -> None:
    broker = EmbeddedBroker(**options)
    config = parse_config({"data_dir": broker.data_dir, "port": 0, **broker.child_options()})
    assert type(config.disk) is disk


def test_broker_that_cannot_start_leaves_no_directory() -> None:
    broker = EmbeddedBroker(options={"no.such.option": "1"})
    temporary = os.path.dirname(broker.data_dir)
    with pytest.raises(EmbeddedBrokerError, match=r"no\.such\.option"):
        broker.start()
    assert not os.path.exists(temporary)
    del broker._options["options"]["no.such.option"]
    with broker as started:
        assert os.path.isdir(started.data_dir)
    assert not os.path.exists(temporary)


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(EmbeddedBrokerError, match=f"{file} cannot hold data: it is not a directory"):
        EmbeddedBroker(data_dir=str(file)).start()
