"""The positions of one transactional id: which of many inputs are loaded, where each load has its place."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.prefix import DIGEST_DIGITS, END_MARK
from kafkaprod.loader.positions.committed_position import ENDS_CHARS, CommittedPosition
from kafkaprod.loader.positions.manifest import Position
from kafkaprod.loader.positions.positions import (
    ANY_NAME,
    EARLIER_CHARS,
    FILE_CHARS,
    KEY_CHARS,
    MOST_FILES,
    MOST_NAMES,
    TIMES_CHARS,
    Inputs,
    LoadedInput,
    Positions,
)

TOPIC_ID = "5e7a"


def inputs(number: int, name: str = "") -> Inputs:
    """Inputs of one file."""
    return Inputs(f"{number:032x}"[::-1], "time", name or f"{number:05d}")


def stopped(given: Inputs, **changes: object) -> CommittedPosition:
    """A position after ten rows."""
    position = CommittedPosition(
        partition_count=3,
        run_rows=4096,
        topic_id=TOPIC_ID,
        inputs=given.digest,
        options="cd" * 16,
        record_limit=1 << 20,
        needs_keys=False,
        times=given.times,
        names=given.names,
        sent_count=10,
    ).moved(Position(0, 10, 100, 0))
    return replace(position, **changes)  # type: ignore[arg-type]


def load_all(count: int, places: int) -> dict[int, CommittedPosition]:
    """Load so many inputs one after the other, as far as there is room; return the positions."""
    found: dict[int, CommittedPosition] = {}
    for number in range(count):
        place, earlier = Positions("id", found, TOPIC_ID, places).place(inputs(number), restarts=False)
        found = {**place.others, place.partition: stopped(inputs(number), earlier=earlier).finished()}
    return found


def test_all_inputs_that_were_loaded_one_after_the_other_are_known() -> None:
    positions = Positions("id", load_all(50, places=1), TOPIC_ID, 1)
    for number in range(50):
        known = positions.find(inputs(number))
        assert known is not None
        assert known.done_at
        assert known.sent_count == 10
    assert positions.find(inputs(50)) is None


def test_a_full_list_continues_on_another_partition_and_then_is_refused() -> None:
    found = load_all(150, places=2)
    assert sorted(found) == [0, 1]
    positions = Positions("id", found, TOPIC_ID, 2)
    assert all(positions.find(inputs(number)) for number in range(150))
    with pytest.raises(LoadRefusedError, match="as many inputs as its committed positions have room for"):
        load_all(400, places=2)


def test_the_largest_position_with_a_full_list_is_smaller_than_the_metadata_that_brokers_take() -> None:
    names = ("source", "row", "offset", "rows_before", "sent_count", "sent_bytes", "bad_count", "dead_letter_bytes")
    largest = stopped(
        inputs(1),
        **dict.fromkeys(names, 2**62),
        next_row=2**62,
        topic_id="x" * 36,
        cluster_id="y" * 22,
        names="n" * 5 * MOST_NAMES,
        files="f" * FILE_CHARS * MOST_FILES,
        earlier="e" * EARLIER_CHARS,
        ends="3" * ENDS_CHARS,
        read_bytes=2**62,
        pipes="p" * DIGEST_DIGITS,
        digest="d" * (DIGEST_DIGITS + len(END_MARK)),
    ).finished()
    assert len(largest.to_text()) < 4096


def test_a_load_that_stopped_keeps_its_place_while_others_are_loaded() -> None:
    place, _ = Positions("id", {0: stopped(inputs(1))}, TOPIC_ID, 3).place(inputs(2), restarts=False)
    assert place.partition == 1
    offsets = place.offsets("t", stopped(inputs(2)))
    assert {partition for _, partition in offsets} == {0, 1}
    assert CommittedPosition.from_text(offsets["t", 0][1]) == stopped(inputs(1))


def test_a_topic_of_one_partition_has_room_for_one_load_that_stopped() -> None:
    positions = Positions("id", {0: stopped(inputs(1))}, TOPIC_ID, 1)
    with pytest.raises(LoadRefusedError, match="continue them first with --resume"):
        positions.place(inputs(2), restarts=False)


@pytest.mark.parametrize("known", ["00002", "0000100002", ANY_NAME, ""])
def test_changed_inputs_of_a_load_that_stopped_are_refused(known: str) -> None:
    positions = Positions("id", {0: stopped(inputs(1), names=known)}, TOPIC_ID, 3)
    with pytest.raises(LoadRefusedError, match="the input is not what it was"):
        positions.find(inputs(2))
    place, _ = positions.place(inputs(2), restarts=True)
    assert place.partition == 0


def test_another_topic_of_the_same_name_has_none_of_the_inputs() -> None:
    done = stopped(inputs(2), earlier=LoadedInput.of(stopped(inputs(1)).finished()).to_text()).finished()
    positions = Positions("id", {0: done}, "another", 1)
    place, earlier = positions.place(inputs(3), restarts=False)
    assert (place.partition, earlier) == (0, "")


def test_a_load_that_begins_again_is_taken_off_the_list() -> None:
    found = load_all(3, places=1)
    _, earlier = Positions("id", found, TOPIC_ID, 1).place(inputs(1), restarts=True)
    assert len(earlier.split()) == 2
    assert LoadedInput.of(stopped(inputs(1)).finished()).key not in earlier


@pytest.mark.parametrize("files", ["", "abc_-0123456"])
def test_a_listed_load_is_read_back_as_it_was_written(files: str) -> None:
    loaded = LoadedInput("a-_b" * 2, "time", "cdcd", 10**9, 36, date(2026, 11, 26), files)
    assert LoadedInput.from_text(loaded.to_text()) == loaded


def folder(path: Path, *names: str) -> Inputs:
    """The inputs in a folder that gets files."""
    path.mkdir(exist_ok=True)
    for name in names:
        (path / name).write_text(f"row of {name}\n")
    return Inputs.of(find_sources([str(path)]))


@pytest.mark.parametrize("loaded", [["m"], ["m", "n"], ["k", "l", "m", "n", "o", "p"]])
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_folder_that_got_a_file_after_it_was_loaded_is_refused(
    tmp_path: Path, loaded: list[str], is_listed: bool
) -> None:
    before = folder(tmp_path / "a", *(f"{name}.txt" for name in loaded))
    done = stopped(before, files=before.files).finished()
    if is_listed:
        done = stopped(inputs(7), earlier=LoadedInput.of(done).to_text()).finished()
    positions = Positions("id", {0: done}, TOPIC_ID, 1)
    assert positions.find(before) is not None
    for name in ("a.txt", "z.txt"):
        after = folder(tmp_path / "a", name)
        with pytest.raises(LoadRefusedError, match=r"some of \d files are already loaded, with 10 records on 20"):
            positions.find(after)
        assert Positions("id", {0: done}, "another", 1).find(after) is None
    other = folder(tmp_path / "b", *(f"of another {name}.txt" for name in loaded))
    assert positions.find(other) is None


def test_inputs_are_known_by_names_without_directories_and_by_seconds(tmp_path: Path) -> None:
    found: list[Any] = []
    for directory in ("one", "two"):
        path = tmp_path / directory / "a.txt"
        path.parent.mkdir()
        path.write_bytes(b"1\n")
        os.utime(path, ns=(0, 5_000_000_000 + len(found)))
        found.append(Inputs.of(find_sources([str(path)])))
    assert found[0] == found[1]
    assert (len(found[0].key), len(found[0].times)) == (KEY_CHARS, TIMES_CHARS)
    os.utime(tmp_path / "two" / "a.txt", ns=(0, 6_000_000_000))
    assert Inputs.of(find_sources([str(tmp_path / "two" / "a.txt")])).times != found[0].times
