"""What a mark says survives its text; what is no mark, or of a later format, is refused and never believed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.errors import ConfigError, WriteConflictError, WriteError, WriteStaleError
from kafkaprod.marks import verdict
from kafkaprod.marks.mark import Mark
from kafkaprod.marks.place import mark_name

MARK = Mark(
    write_id="orders 2026/11 ü & %",
    rows=1000,
    digest="00ff" * 8,
    topics={"orders": "QQ-1", "audit.log": ""},
    cluster="c-1",
    written_by="etl@node-3:77",
    written_ms=1_795_877_680_312,
    attempt="ab12cd34",
)


def test_a_mark_is_its_text() -> None:
    text = MARK.to_text()
    assert text.isascii()
    assert text.startswith("kpw1 ")
    assert Mark.from_text(text, "g") == MARK
    assert MARK.offset == 1001


def test_a_mark_of_a_write_with_parts_is_its_text() -> None:
    for parts, is_done in ((3, False), (3, True), (1, False)):
        mark = replace(MARK, parts=parts, is_done=is_done)
        assert Mark.from_text(mark.to_text(), "g") == mark


def test_a_mark_of_no_rows_has_an_offset() -> None:
    assert replace(MARK, rows=0).offset == 1


def test_a_mark_that_no_offset_can_keep_is_refused() -> None:
    topics = {f"{number:02d}" + "x" * 247: "A" * 22 for number in range(12)}
    assert len(replace(MARK, topics=topics).to_text()) < 4096
    with pytest.raises(ConfigError, match=r"an offset keeps 4096: it names 20 topics\. Give each topic a write"):
        replace(MARK, topics={f"{number:02d}" + "x" * 247: "" for number in range(20)}).to_text()


@given(st.text(max_size=300))
def test_no_text_raises_anything_but_a_sentence(text: str) -> None:
    for tried in (text, f"kpw1 {text}", f"kpw1 id=a&rows={text}&sum=&topics=&cluster=&by=&at=1&try=x"):
        try:
            mark = Mark.from_text(tried, "g")
        except ConfigError:
            continue
        assert mark.rows >= 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "something else uses this group"),
        ("kp1 rows=1", "something else uses this group"),
        ("kpw1 id=a", "something else uses this group"),
        ("kpw1 id=a&rows=-1&sum=&topics=&cluster=&by=&at=1&try=x", "something else uses this group"),
        ("kpw1 id=a&rows=\u0661&sum=&topics=&cluster=&by=&at=1&try=x", "something else uses this group"),
        ("kpw2 anything", "a mark of format kpw2, which a later version of kafkaprod has written"),
    ],
)
def test_what_is_no_mark_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Mark.from_text(text, "g")


@pytest.mark.parametrize(
    ("write_id", "name"),
    [
        ("orders-2026-11-28", "p.orders-2026-11-28"),
        ("dag/task/run:1", "p.dag/task/run:1"),
        ("a b", "p.a%20b"),
        ("a%20b", "p.a%2520b"),
        ("ü", "p.%C3%BC"),
        ("x" * 200, "p." + "x" * 200),
    ],
)
def test_one_id_is_one_name(write_id: str, name: str) -> None:
    assert mark_name("p.", write_id) == name


@pytest.mark.parametrize("write_id", ["", None, 5, b"a", "x" * 201, "ü" * 40, "\ud800"])
def test_what_is_no_id_is_refused(write_id: object) -> None:
    with pytest.raises(ConfigError, match="write_id"):
        mark_name("p.", write_id)


IDS = {"orders": "QQ-1", "audit.log": ""}


@pytest.mark.parametrize(
    ("cluster", "ids", "is_ours"),
    [
        ("c-1", IDS, True),
        ("", IDS, True),
        ("c-2", IDS, False),
        ("c-1", IDS | {"orders": "QQ-2"}, False),
        ("c-1", IDS | {"orders": ""}, True),
        ("c-1", {}, True),
    ],
)
def test_a_mark_of_elsewhere_is_refused(cluster: str, ids: dict[str, str], is_ours: bool) -> None:
    if is_ours:
        verdict.check_cluster(MARK, cluster, ids)
    else:
        with pytest.raises(WriteStaleError, match="Nothing was written"):
            verdict.check_cluster(MARK, cluster, ids)


@pytest.mark.parametrize(
    ("verify", "topics", "rows", "digest", "reason"),
    [
        ("content", IDS, 1000, MARK.digest, ""),
        ("content", IDS, 999, MARK.digest, "rows"),
        ("content", IDS, 1000, "0" * 32, "content"),
        ("content", ["orders"], 1000, MARK.digest, "topic"),
        ("count", IDS, 1000, "0" * 32, ""),
        ("count", IDS, 1001, "0" * 32, "rows"),
        ("none", [], 0, "", ""),
        ("content", [], 0, "", "rows"),
    ],
)
def test_other_rows_are_a_conflict(verify: str, topics: list[str], rows: int, digest: str, reason: str) -> None:
    if not reason:
        verdict.check_rows(MARK, verify, topics, rows, digest)
        return
    with pytest.raises(WriteConflictError, match=r"committed at 2026-11-28 14:54:40 UTC by etl@node-3:77") as caught:
        verdict.check_rows(MARK, verify, topics, rows, digest)
    assert (caught.value.reason, caught.value.write_id) == (reason, MARK.write_id)
    assert isinstance(caught.value, WriteError)
