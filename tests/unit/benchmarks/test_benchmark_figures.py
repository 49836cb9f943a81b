"""What benchmarks compute from what they measured, and the files and texts they make of it."""

import contextlib
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import guard
from benchmarks.compare import turns
from benchmarks.compare.cases import BARE_SEND, CASES, FRANZ_GO, JAVA, SEND, YARDSTICK, Case
from benchmarks.compare.chart import chart
from benchmarks.compare.figures import CaseFigures, Spread
from benchmarks.compare.grid import GRID, grid_table
from benchmarks.compare.ranges import range_rows
from benchmarks.compare.report import (
    README_BEGIN,
    README_END,
    all_cases_page,
    case_lines,
    markdown_table,
    readme_section,
    write_readme,
)
from benchmarks.link.table import section, with_section
from benchmarks.macro import growth
from benchmarks.macro.frames import Turn as FrameTurn
from benchmarks.macro.frames import lines_of
from benchmarks.macro.latency import Percentiles
from benchmarks.peers.build import PeerUnavailableError
from benchmarks.peers.run import Peer
from benchmarks.peers.task import Figures, Task, read_records, write_records
from benchmarks.workloads import HEADERS, make_workload

HERE = {"processor": "P", "cores": 2, "python": "3.11.7", "kernel": "6.1.2"}
BASELINE = {"machine": HERE, "multiples": {"send": 2.0, "send_many": 5.0, "send_columns": 3.0}}


def _figures(rate: float, cpu_ns: float) -> Figures:
    return Figures(1000, 1000 / rate, cpu_ns * 1000 / 1e9, 10.0, 1000, "1.0", {"acks": "all"})


def _costs(send: float, noise: float = 0.0) -> dict[str, guard.Cost]:
    costs = {"send": send, "send_many": 50.0, "send_columns": 30.0, "pack": 6.0, "copy": 6.0, "wire": 4.0}
    return {name: guard.Cost(cost, noise) for name, cost in costs.items()}


def test_task_is_the_same_after_the_command_line() -> None:
    task = Task("host:1", "t", "/r", "send", topics=3, seconds=0.5, idempotence=False, linger_ms=0, compression="lz4")
    assert Task.from_arguments(task.arguments()) == task
    assert task.topic_names() == ["t-0", "t-1", "t-2"]


def test_task_refuses_an_unknown_field() -> None:
    with pytest.raises(ValueError, match="lingerms"):
        Task.from_arguments(["lingerms=5"])


@pytest.mark.parametrize("keyed", [True, False])
def test_records_file_gives_back_the_workload(tmp_path: Path, keyed: bool) -> None:
    workload = make_workload(50, 30, keyed=keyed, headers=True)
    write_records(tmp_path / "records", workload)
    records = read_records(str(tmp_path / "records"))
    assert records.values == workload.values.as_list()
    assert records.keys == (workload.keys.as_list() if workload.keys is not None else None)
    assert records.headers == list(HEADERS)


def test_percentiles_are_nearest_ranks_in_ms() -> None:
    assert Percentiles.of(range(1000, 0, -1)).values == (0.501, 0.991, 1.0)
    assert Percentiles.of([7000]).values == (7.0, 7.0, 7.0)


def test_ratio_is_the_median_of_the_ratios_within_each_turn() -> None:
    # The machine halves its speed in the second turn: the medians of the rates would say 2.5.
    runs = {YARDSTICK: [_figures(100, 1000), _figures(50, 1000)], SEND: [_figures(300, 100), _figures(150, 100)]}
    case = CaseFigures.of(CASES[0], "sink", runs, {JAVA: "java is not on the PATH\nmore"})
    ours = next(peer for peer in case.peers if peer.label == SEND.label)
    assert case.ratio(ours, lambda turn: turn.rate) == Spread(3.0, 3.0, 3.0)
    spread = case.ratio(ours, lambda turn: turn.cpu_ns)
    assert spread is not None
    assert spread.median == pytest.approx(0.1)
    assert len(case.measured()) == 2
    assert CaseFigures.from_json(json.loads(json.dumps(dataclasses.asdict(case)))) == case


def test_cpu_time_is_a_multiple_of_the_bare_send_of_the_same_turn() -> None:
    runs = {BARE_SEND: [_figures(1e6, 20), _figures(1e6, 40)], SEND: [_figures(1e6, 100), _figures(1e6, 200)]}
    case = CaseFigures.of(CASES[0], "sink", runs, {})
    ours = next(peer for peer in case.peers if peer.label == SEND.label)
    multiple = case.multiple(ours)
    assert multiple is not None
    assert dataclasses.astuple(multiple) == pytest.approx((5.0, 5.0, 5.0))
    assert "5.0" in "\n".join(case_lines(case)).partition(SEND.label)[2].split("\n")[0]
    without = CaseFigures.of(CASES[0], "sink", {SEND: runs[SEND]}, {})
    assert without.multiple(without.measured()[0]) is None
    assert all(
        BARE_SEND in case.peers for case in CASES if case.far_end == "sink" and "compression" not in case.options
    )


def test_tables_name_who_was_not_measured_and_why() -> None:
    case = CaseFigures.of(CASES[0], "sink", {YARDSTICK: [_figures(1e6, 1000)]}, {JAVA: "java is not on the PATH\nmore"})
    for text in ("\n".join(case_lines(case)), "\n".join(markdown_table(case))):
        assert "1.00 M (1.00-1.00)" in text
        assert "java is not on the PATH" in text
        assert "more" not in text


def test_client_that_fails_is_left_out_from_then_on_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    turns_of = {YARDSTICK: iter([1e6, 2e6]), SEND: iter([3e6]), JAVA: iter([])}

    def run_once(_case: Case, peer: Peer, *_: object) -> Figures:
        rate = next(turns_of[peer], None)
        if rate is None:
            raise PeerUnavailableError("no more")
        return _figures(rate, 100)

    monkeypatch.setattr(turns, "run_once", run_once)
    monkeypatch.setattr(turns, "far_end", lambda *_: contextlib.nullcontext(SimpleNamespace(description="sink")))
    figures = turns.run_case(Case("x", "x", (YARDSTICK, SEND, JAVA), records=10), turns=2, seconds=1)
    assert [(peer.label, len(peer.turns), peer.missing) for peer in figures.peers] == [
        (YARDSTICK.label, 2, ""),
        (SEND.label, 1, "no more"),
        (JAVA.label, 0, "no more"),
    ]


def test_growth_is_taken_within_each_turn() -> None:
    base = [growth.Point(_figures(1e6, 100).turn(), 10.0), growth.Point(_figures(1e6, 200).turn(), 10.0)]
    here = [growth.Point(_figures(5e5, 150).turn(), 2.0), growth.Point(_figures(5e5, 300).turn(), 2.0)]
    cell = growth.Cell.of("many", here, base)
    assert dataclasses.astuple(cell.growth) == pytest.approx((1.5, 1.5, 1.5))
    assert cell.text() == "0.50 M/s 225 ns x1.50 (2.0)"


def test_cases_of_many_topics_have_rows_enough_to_reach_each() -> None:
    cases = [case for table in growth.TABLES.values() for case in table if "topics" in case.options] + list(CASES)
    for case in cases:
        assert case.records >= case.options.get("call_records", 1) * case.options.get("topics", 1), case.title


def test_ranges_keep_each_comparisons_own_ratio() -> None:
    slow = CaseFigures.of(CASES[0], "sink", {YARDSTICK: [_figures(1e6, 1000)], SEND: [_figures(4e6, 500)]}, {})
    fast_runs = {YARDSTICK: [_figures(4e6, 400)], SEND: [_figures(8e6, 100)], BARE_SEND: [_figures(4e7, 20)]}
    fast = CaseFigures.of(CASES[0], "sink", fast_runs, {})
    rows = {row[0]: row[1:] for row in range_rows([slow, fast])}
    # The lowest rate of ours to the highest of theirs would be 1.0: no comparison showed that.
    assert rows[SEND.label] == ["4.00-8.00 M", "100-500", "2.0-4.0", "2.0-4.0", "5.0", "10"]
    assert rows[YARDSTICK.label][:3] == ["1.00-4.00 M", "400-1,000", "1.0"]
    assert rows[BARE_SEND.label][:2] == ["40.00 M", "20"]
    assert list(range_rows([])) == []


def test_kept_comparisons_are_what_the_figures_page_shows() -> None:
    root = Path(__file__).parents[3]
    results = [json.loads(path.read_text()) for path in sorted((root / "benchmarks" / "results").glob("20*.json"))]
    cases: dict[str, list[CaseFigures]] = {}
    for case in (CaseFigures.from_json(value) for result in results for value in result["cases"]):
        cases.setdefault(case.name, []).append(case)
    links = [json.loads(path.read_text()) for path in sorted((root / "benchmarks" / "results").glob("link-*.json"))]
    page = with_section(all_cases_page(results, cases), section(links))
    assert (root / "docs" / "figures.md").read_text() == page
    assert readme_section(results, cases) in (root / "README.md").read_text()


def test_readme_section_is_replaced_and_the_rest_is_kept(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{README_BEGIN}\nold\n{README_END}\nafter\n")
    write_readme(f"{README_BEGIN}\nnew\n{README_END}", readme)
    assert readme.read_text() == f"before\n{README_BEGIN}\nnew\n{README_END}\nafter\n"


def test_readme_of_the_project_has_the_markers() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert 0 < readme.index(README_BEGIN) < readme.index(README_END)


def test_chart_has_a_bar_for_each_client_largest_first() -> None:
    bars = [("slow & old", Spread(1e6, 0.5e6, 1.5e6), False), ("ours", Spread(2e6, 2e6, 2e6), True)]
    root = ElementTree.fromstring(chart(bars, "title"))
    rectangles = root.findall("{http://www.w3.org/2000/svg}rect")
    assert [float(rectangle.attrib["width"]) for rectangle in rectangles] == [420.0, 210.0]


def test_case_names_are_unique_and_every_case_has_its_topics() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert Case("x", "x", partitions=2, options={"topics": 2}).topics() == {"bench-0": 2, "bench-1": 2}


def test_pytest_collects_the_micro_benchmarks(pytestconfig: pytest.Config) -> None:
    micro = Path(__file__).parents[3] / "benchmarks" / "micro"
    assert list(micro.glob("bench_*.py"))
    assert "bench_*.py" in pytestconfig.getini("python_files")


@pytest.mark.parametrize(("send_ns", "noise", "has_failed"), [(22.9, 0, False), (23.1, 0, True), (23.1, 0.01, False)])
def test_guard_fails_beyond_what_is_allowed_and_the_noise(send_ns: float, noise: float, has_failed: bool) -> None:
    send, *others = guard.judge(_costs(send_ns, noise), BASELINE, HERE)
    assert send.has_failed is has_failed
    assert not any(verdict.has_failed for verdict in others)
    assert ("REGRESSION" in send.line()) is has_failed
    assert "2.000" in send.line()


def test_guard_allows_more_on_another_kind_of_machine() -> None:
    elsewhere = HERE | {"processor": "Q"}
    assert not guard.judge(_costs(31), BASELINE, elsewhere)[0].has_failed
    assert guard.judge(_costs(33), BASELINE, elsewhere)[0].has_failed
    assert guard.judge(_costs(31), BASELINE, HERE | {"python": "3.11.9", "kernel": "6.1.9-x"})[0].has_failed


def test_guard_asks_for_a_new_baseline_when_the_producer_became_faster() -> None:
    assert guard.judge(_costs(16), BASELINE, HERE)[0].is_outdated
    assert not guard.judge(_costs(18), BASELINE, HERE)[0].is_outdated


def test_guard_takes_the_cheap_windows_and_their_distance() -> None:
    cost = guard.Cost.of([float(window) for window in range(100, 200)])
    assert cost.cpu_ns == 110
    assert cost.noise == pytest.approx(130 / 110 - 1)


@pytest.mark.parametrize(
    ("load", "environment", "is_too_busy"),
    [(30.0, {}, True), (2.9, {}, False), (30.0, {"CI": "true"}, False)],
)
def test_guard_does_not_judge_on_a_busy_machine_outside_continuous_integration(
    load: float, environment: dict[str, str], is_too_busy: bool
) -> None:
    assert guard.is_too_busy(load, 2, environment) is is_too_busy


def test_guard_compares_with_the_bare_socket_of_the_same_run() -> None:
    costs = _costs(20) | {"wire": guard.Cost(14.0, 0.1)}
    spread: Any = pytest.approx(0.07)
    assert guard.yardstick(costs, "send") == guard.Cost(20.0, spread)
    assert guard.judge(costs, BASELINE, HERE)[0].multiple == 1.0


def test_kept_baseline_has_every_way() -> None:
    assert set(json.loads(guard.BASELINE.read_text())["multiples"]) == set(guard.YARDSTICKS)


def test_every_cell_of_the_grid_has_a_name_of_its_own() -> None:
    assert len({case.name for case in GRID}) == len(GRID) == 2 * 2 * 3 * 4
    assert sum(BARE_SEND in case.peers for case in GRID) == 2 * 3  # neither behind TLS nor compressed


def test_grid_names_who_is_before_the_best_of_ours() -> None:
    cell = next(case for case in GRID if BARE_SEND in case.peers)
    runs = {
        YARDSTICK: [_figures(1e6, 800)],
        SEND: [_figures(2e6, 400)],
        FRANZ_GO: [_figures(3e6, 500)],
        JAVA: [_figures(1e6, 200)],
        BARE_SEND: [_figures(9e6, 100)],
    }
    *_, row = grid_table([CaseFigures.of(cell, "the sink", runs, {})])
    assert "| 2.00 M, 400 ns |" in row
    assert row.endswith("| franz-go (Go) (rate, x1.50), Java producer (CPU, x2.00) |")


def test_page_of_all_cases_has_the_grid_as_one_table() -> None:
    cases = {case.name: [CaseFigures.of(case, "the sink", {SEND: [_figures(2e6, 400)]}, {})] for case in GRID[:2]}
    page = all_cases_page([], cases)
    assert page.count("## Sizes, codecs") == 1
    assert "## 100 B" not in page
    assert page.count("### Plain, idempotent\n") == 1
    assert all(f"| {case.title.removesuffix(', plain, idempotent')} |" in page for case in GRID[:2])
    assert "- **CPU ns a record**" in page


def test_a_frame_has_a_line_for_each_way_and_the_median_of_its_turns() -> None:
    turns = [
        FrameTurn("polars DataFrame", way, 1000, seconds, cpu_s, 1.0)
        for way, seconds, cpu_s in (("send_table", 1, 0.5), ("loop", 4, 5), ("send_table", 2, 1), ("send_table", 1, 2))
    ]
    assert lines_of("polars DataFrame", turns) == [
        "| polars DataFrame | send_table | 1,000 (500-2,000) | 1,000 |  |",
        "|  | loop | 200 (200-200) | 250 | x5.0 |",
    ]
