"""The names that the documentation takes from schedulers are the same in every run of a job, and others for others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod.broker import EmbeddedBroker
from tests.pages.documentation import ROOT, blocks

INSTANCE = {"dag_id": "d", "task_id": "t", "run_id": "scheduled__2026-11-28", "map_index": 3}
GIVEN: dict[str, tuple[Any, ...]] = {
    "in_airflow": ({"ti": SimpleNamespace(**INSTANCE, try_number=1)},),
    "in_dagster": (
        SimpleNamespace(
            run=SimpleNamespace(tags={"dagster/root_run_id": "root"}),
            run_id="later",
            op_def=SimpleNamespace(name="op"),
            has_partition_key=True,
            partition_key="2026-11-28",
        ),
    ),
    "in_prefect": (
        SimpleNamespace(flow_run=SimpleNamespace(id="flow"), task_run=SimpleNamespace(task_name="load", id="other")),
        7,
    ),
    "in_celery": (SimpleNamespace(request=SimpleNamespace(id="f00", retries=1)),),
    "in_kubernetes": (),
}


def test_each_recipe_writes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(ROOT) / "docs" / "exactly-once.md"
    (recipes,) = (block.text for block in blocks(page) if "def in_airflow" in block.text)
    monkeypatch.setenv("JOB_NAME", "orders-28")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        scope: dict[str, Any] = {}
        exec("from kafkaprod import Producer\n" + recipes.replace("localhost:9092", broker.bootstrap_servers), scope)
        assert {name for name in scope if name.startswith("in_")} == GIVEN.keys()
        names = set()
        for name, given in GIVEN.items():
            rows = [name.encode()]
            results = [scope[name](rows, *given) for _ in range(2)]
            assert [each.already_written for each in results] == [False, True], name
            names.add(results[0].write_id)
        assert names == {
            "d/t/scheduled__2026-11-28/3",
            "root/op/2026-11-28",
            "flow/load/7",
            "celery/f00",
            "orders-28/2",
        }
        assert len(broker.records("orders")) == len(GIVEN)
