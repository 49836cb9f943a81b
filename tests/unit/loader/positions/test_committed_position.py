"""The committed position of a transactional load: what is read back, what is refused, which inputs are the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.positions.committed_position import (
    DIGEST_BYTES,
    CommittedPosition,
    digests_of_inputs,
    read_position,
)
from kafkaprod.loader.positions.manifest import Position

COMMITTED = CommittedPosition(
    partition_count=3,
    run_rows=4096,
    topic_id="7d0a",
    inputs="ab" * 16,
    options="cd" * 16,
    record_limit=1 << 20,
    needs_keys=True,
)


def test_a_committed_position_is_read_back_as_it_was_written() -> None:
    committed = COMMITTED.moved(Position(2, 10, 500, 70), 15)
    assert read_position(committed.to_text(), "g") == committed
    assert (committed.rank, committed.position) == (85, Position(2, 10, 500, 70))
    assert committed.finished().done_at


def test_the_largest_committed_position_is_smaller_than_the_metadata_that_brokers_take() -> None:
    names = ("source", "row", "offset", "rows_before", "sent_count", "sent_bytes", "bad_count", "dead_letter_bytes")
    counts: dict[str, Any] = dict.fromkeys(names, 2**62)
    largest = replace(COMMITTED, next_row=2**62, **counts).finished()
    assert len(largest.to_text()) < 4096


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"row": -1}, "row is -1"),
        ({"row": True}, "row is True"),
        ({"row": 9, "next_row": 8}, "do not agree"),
        ({"run_rows": 0}, "do not agree"),
        ({"inputs": None}, "inputs is None"),
        ({"more": 1}, "not those of a committed position"),
        ({"kafkaprod-load": True}, "no load of this version"),
        ({"kafkaprod-load": 0}, "no load of this version"),
        ({"kafkaprod-load": 4}, "no load of this version"),
        ({"inputs": "x"}, "inputs is 'x'"),
        ({"done_at": "yesterday"}, "done_at is 'yesterday'"),
        ({"ends": "0:x"}, "ends is '0:x'"),
    ],
)
def test_a_committed_position_that_no_load_wrote_is_refused(change: dict[str, object], why: str) -> None:
    text = json.dumps(json.loads(COMMITTED.to_text()) | change)
    with pytest.raises(LoadError, match=why):
        read_position(text, "g")


@pytest.mark.parametrize("version", [1, 2])
def test_a_position_of_an_earlier_version_is_continued(version: int) -> None:
    new = {
        "files",
        *(("cluster_id", "times", "names", "ends", "earlier", "digest", "read_bytes") if version == 1 else ()),
    }
    old = {name: value for name, value in json.loads(COMMITTED.to_text()).items() if name not in new}
    assert read_position(json.dumps(old | {"kafkaprod-load": version}), "g") == COMMITTED


def test_the_newest_ends_of_partitions_are_kept_as_far_as_there_is_room() -> None:
    committed = COMMITTED.ending_at({0: 5, 1: 7}).ending_at({1: 9})
    assert committed.known_ends() == {0: 5, 1: 9}
    many = committed.ending_at(dict.fromkeys(range(100, 300), 10**9))
    assert 20 < len(many.known_ends()) < 200
    assert 100 in many.known_ends()


@pytest.mark.parametrize("text", ["", "kp1 b=7", "[" * 10_000, "3"])
def test_metadata_of_others_is_refused(text: str) -> None:
    with pytest.raises(LoadError, match="the committed offset of group 'g' is not one of a load"):
        read_position(text, "g")


def test_a_copy_of_a_file_is_the_same_input_and_changed_bytes_at_its_ends_are_not(tmp_path: Path) -> None:
    content = bytes(3 * DIGEST_BYTES)

    def digest(directory: str, data: bytes) -> str:
        path = tmp_path / directory / "a.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return digests_of_inputs(find_sources([str(path)]))[0]

    first = digest("one", content)
    assert digest("two", content) == first
    assert digest("three", b"x" + content[1:]) != first
    assert digest("four", content[:-1] + b"x") != first
    assert digest("five", content + b"x") != first
