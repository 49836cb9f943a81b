"""Loads by Spark: what needs no Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod.cli import load_spark
from kafkaprod.loader.attempt import LoadOptions
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.positions.manifest import Manifest, Position
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.tables.row_plan import RowPlan


def test_a_complete_load_is_counted_once_and_starts_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x\n")
    sources = find_sources([str(tmp_path / "*.txt")])
    left_over = [str(tmp_path / "0"), str(tmp_path / "1")]
    Path(left_over[1]).touch()
    no: Any = None
    job = load_spark.SparkLoad(
        sources,
        ReadOptions(RowPlan()),
        LoadOptions("orders", {}, 1000),
        no,
        str(tmp_path / "bad"),
        left_over,
        str(tmp_path),
    )
    manifest = Manifest("orders", None, None, 1, 0, 1, 1, {}, [], Position(), {}, sent_count=7, bad_count=2)
    manifest.finish()
    checked: list[Manifest] = []
    monkeypatch.setattr(load_spark, "_session", no)
    monkeypatch.setattr(load_spark, "check_complete", lambda client, manifest: checked.append(manifest))
    load: Any = SimpleNamespace()
    load_spark.load_on_spark(load, ManifestFile(tmp_path / "m"), manifest, job, no, None)
    assert checked == [manifest]
    summary = load.report.to_dict()
    assert (summary["records"], summary["already_there"], summary["bad_rows"], summary["complete"]) == (0, 7, 2, True)
    assert not Path(left_over[1]).exists()
