"""A load that version 0.1 began with other texts is not continued: the topic would have both."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.load_rig import LoadRig


def test_a_manifest_of_version_0_1_is_refused_where_rows_have_another_text_since(
    embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str
) -> None:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    ids = pa.array([uuid.UUID(int=i).bytes for i in range(2)], pa.uuid())
    table = pa.table({"id": ids, "x": ["1", "soon"]})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    arguments = [str(path), "--column-type", "x=int"]
    assert rig.run(*arguments, "--create-topic", "1").code == 1  # after the first row
    (manifest,) = (tmp_path / "state").iterdir()
    content = json.loads(manifest.read_text())
    del content["checksum"], content["options"]["forms"]  # which that version did not write
    manifest.write_text(json.dumps(content))
    refused = rig.run(*arguments, "--resume", "--on-error", "skip")
    assert refused.code == 2
    assert "in another form since version 0.1 was not given, now arrow.uuid" in refused.err
    assert "--restart" in refused.err
    assert len(rig.values()) == 1
