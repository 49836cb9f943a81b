"""Reports of tasks add up to that of the write."""

from kafkaprod.spark.report import OffsetRange, WriteReport


def test_reports_add_up_and_survive_the_way_as_text() -> None:
    one = WriteReport(rows=3, bytes=30, batches=1, seconds=0.5, partition=0, attempt=1)
    one.add_range("t", 0, 10, 12, 3)
    other = WriteReport(rows=2, bytes=5, batches=2, retries=1, seconds=0.25, partition=1)
    other.add_range("t", 0, 5, 5, 1)
    other.add_range("t", 4, 0, 0, 1)
    total = WriteReport.sum(WriteReport.from_json(task.to_json()) for task in (one, other))
    assert (total.rows, total.bytes, total.batches, total.retries, total.seconds) == (5, 35, 3, 1, 0.75)
    assert total.offsets == {"t": {0: OffsetRange(5, 12, 4), 4: OffsetRange(0, 0, 1)}}
    assert total.tasks == [one, other]
