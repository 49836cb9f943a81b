"""The summary and the page of a load count each record that is in the topic, by partition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.load_rig import LoadRig


@pytest.mark.parametrize("transactional_id", [None, "report"])
def test_the_summary_and_the_page_have_the_records_of_each_partition(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str, transactional_id: str | None
) -> None:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name, transactional_id)
    inputs = tmp_path / "in"
    inputs.mkdir()
    for name in ("a", "b"):
        (inputs / f"{name}.csv").write_text("id\n" + "".join(f"{name}{i}\n" for i in range(500)))
    page = tmp_path / "out.html"
    done = rig.run(str(inputs), "--create-topic", "3", "--key", "id", "--json", "--report", str(page))
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["partitions"] == {str(number): len(records) for number, records in rig.read().items()}
    assert sum(summary["sizes"].values()) == 1000
    assert f"Load into {topic_name}" in page.read_text()
    again = rig.run(str(inputs), "--key", "id", "--json", "--resume")
    assert sum(json.loads(again.out)["partitions"].values()) == 0  # this run brought none


def test_a_page_that_cannot_be_written_is_refused_before_the_load(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str
) -> None:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    (tmp_path / "a.txt").write_text("x\n")
    arguments = [str(tmp_path / "a.txt"), "--create-topic", "1"]
    refused = rig.run(*arguments, "--report", str(tmp_path / "no" / "out.html"))
    assert refused.code == 2
    assert "--report" in refused.err
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("{}")
    inside = rig.run(str(tmp_path / "in"), "--report", str(tmp_path / "in" / "out.html"))
    assert inside.code == 2
    assert "would be a file of the next load" in inside.err
