"""Reports of records with key, value, headers and latency, as those get them who send through a ReportingProducer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.errors import InvalidRecordError, PurgedError
from kafkaprod.hooks.reports import AsyncReportingProducer, DeliveryReport, ReportingProducer


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 2}) as broker:
        yield broker


def test_a_report_has_the_record_its_place_and_its_latency(broker: EmbeddedBroker) -> None:
    reports: list[DeliveryReport] = []
    threads: set[int] = set()

    def keep(report: DeliveryReport) -> None:
        reports.append(report)
        threads.add(threading.get_ident())

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        sender = ReportingProducer(producer, keep)
        future = sender.send("t", b"v", b"k", [("h", b"1")], 1, 1_700_000_000_000, opaque=17)
        metadata = future.result(20)
        producer.flush(20)
    (report,) = reports
    assert (report.topic, report.partition, report.offset) == metadata[:3]
    assert (report.key, report.value, report.headers) == (b"k", b"v", [("h", b"1")])
    assert (report.timestamp_ms, report.error, report.opaque) == (1_700_000_000_000, None, 17)
    assert 0 < report.latency_s < 20
    assert threads != {threading.get_ident()}
    (arrived,) = broker.records("t", at_least=1)
    assert (arrived.value, arrived.offset) == (b"v", report.offset)


def test_a_failure_has_a_report_and_counts_as_seen() -> None:
    reports: list[DeliveryReport] = []
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        producer.accumulator.set_topic("t", [-1])
        ReportingProducer(producer, reports.append).send("t", b"v", opaque="o")
        producer.purge()
        producer.flush(20)
    (report,) = reports
    assert isinstance(report.error, PurgedError)
    assert (report.partition, report.offset, report.timestamp_ms) == (0, -1, -1)
    assert (report.value, report.opaque) == (b"v", "o")


def test_what_send_raises_has_no_report(broker: EmbeddedBroker) -> None:
    reports: list[DeliveryReport] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(InvalidRecordError):
            ReportingProducer(producer, reports.append).send("t", "no bytes")
        producer.flush(20)
    assert reports == []


async def test_a_coroutine_gets_its_reports_in_the_event_loop(broker: EmbeddedBroker) -> None:
    reports: asyncio.Queue[tuple[DeliveryReport, int]] = asyncio.Queue()
    async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        sender = AsyncReportingProducer(producer, lambda report: reports.put_nowait((report, threading.get_ident())))
        future = await sender.send("t", b"async", opaque="x")
        report, thread = await asyncio.wait_for(reports.get(), 20)
        assert (await future).offset == report.offset
    assert thread == threading.get_ident()
    assert (report.value, report.opaque, report.error) == (b"async", "x", None)
