"""produce, tail, topics, doctor, perf and quickstart, as people call them."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.cli import perf_stats
from kafkaprod.cli.main import main
from tests.support.loader.load_rig import LoadRig, run_here

PERF_LINE = (
    r"\d+ records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, \d+\.\d\d ms max latency"
    r", \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
WINDOW_LINE = (
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, \d+\.\d ms max latency\."
)


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)
    rig.create(1)
    return rig


def produce(rig: LoadRig, *arguments: str, stdin: bytes = b"") -> list[tuple[bytes | None, bytes | None]]:
    """Run the command in a process of its own; return keys and values of the topic."""
    command = [sys.executable, "-m", "kafkaprod", "produce", "-b", rig.bootstrap, "-t", rig.topic, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return [(record.key, record.value) for records in rig.read().values() for record in records]


# The same as kcat -P does with these arguments and this input.
PRODUCED = [
    ((), b"a\n\nb", [(None, b"a"), (None, b"b")]),
    (("-K", ":"), b"k:v:w\nnone\n:x\n", [(b"k", b"v:w"), (None, b"none"), (b"", b"x")]),
    (("-K", ":", "-Z"), b"k:\n:v\n", [(b"k", None), (None, b"v")]),
    (("-k", "key"), b"a\n", [(b"key", b"a")]),
    (("-K", "=>", "-D", ";"), b"a=>1;a longer key than that=>and a longer value", [
        (b"a", b"1"), (b"a longer key than that", b"and a longer value")]),
    (("-c", "2"), b"1\n2\n3\n", [(None, b"1"), (None, b"2")]),
    (("--reader-property", "parse.key=true", "--reader-property", "null.marker=NULL"), b"a\tNULL\n", [(b"a", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "stdin", "expected"), PRODUCED)
def test_produce_sends_lines_as_kcat_does(
    rig: LoadRig, arguments: tuple[str, ...], stdin: bytes, expected: list[tuple[bytes | None, bytes | None]]
) -> None:
    assert produce(rig, *arguments, stdin=stdin) == expected


HEADERED = b"a:1,b:NULL\tkey\tvalue\nNULL\tkey\tNULL\n\n\tno key\n"


def test_produce_reads_headers_as_the_console_producer_does(rig: LoadRig) -> None:
    properties = [("--property", text) for text in ("parse.headers=true", "parse.key=true", "null.marker=NULL")]
    produce(rig, *(part for pair in properties for part in pair), "-H", "all=x", stdin=HEADERED)
    (records,) = rig.read().values()
    assert [(r.key, r.value, r.headers) for r in records] == [
        (b"key", b"value", [("all", b"x"), ("a", b"1"), ("b", None)]),
        (b"key", None, [("all", b"x")]),
        (None, b"no key", [("all", b"x")]),
    ]


def test_produce_takes_back_what_kcat_and_tail_print(rig: LoadRig, tmp_path: Path) -> None:
    lines = [
        {"topic": "old", "partition": 7, "offset": 3, "tstype": "create", "ts": 1_700_000_000_000, "broker": 1}
        | {"headers": ["h", "1", "h", None], "key": "k", "payload": "v"},
        {"key": None, "payload": None},
        {"payload": {"of": "Avro"}, "ts": -1},
        {"value_base64": "/w==", "headers": [{"name": "n", "value": "v"}], "timestamp": 5},
    ]
    file = tmp_path / "lines"
    file.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert run_here(["produce", "-b", rig.bootstrap, "-t", rig.topic, "-J", "-c", "4", str(file)]).code == 0
    (records,) = rig.read().values()
    assert [(r.key, r.value, r.headers) for r in records] == [
        (b"k", b"v", [("h", b"1"), ("h", None)]),
        (None, None, []),
        (None, b'{"of":"Avro"}', []),
        (None, b"\xff", [("n", b"v")]),
    ]
    assert [records[0].timestamp, records[3].timestamp] == [1_700_000_000_000, 5]
    assert min(records[1].timestamp, records[2].timestamp) > 1_700_000_000_000
    shown = run_here(["tail", rig.topic, "-b", rig.bootstrap, "--json"]).out
    file.write_text(shown, encoding="utf-8")
    assert run_here(["produce", "-b", rig.bootstrap, "-t", rig.topic, "-J", str(file)]).code == 0
    (twice,) = rig.read().values()
    assert twice[4:] == records


@pytest.mark.parametrize(
    ("arguments", "line", "words"),
    [
        (["-J"], b'\n{"key": 1}\n', "line 2 is no record as kcat -J prints it: it has no payload or value"),
        (["-J"], b"[1]\n", "line 1 is no record as kcat -J prints it: it is not a JSON object"),
        (["-J"], b'{"value": 1, "headers": ["a"]}\n', "headers is not a list of names and values in turn"),
        (["-J"], b'{"value": 1, "headers": 1}\n', "headers is not a list"),
        (["-J"], b'{"value": 1, "ts": "now"}\n', "ts is not a number of milliseconds"),
        (["-J", "-K", ":"], b"", "-J and -K exclude each other"),
        (
            ["--property", "parse.headers=true"],
            b"a:1\n",
            "line 1 has no headers.delimiter b'\\t' behind its headers: a:1",
        ),
        (["--property", "parse.headers=true"], b"a\tv\n", "line 1: header 'a' has no headers.key.separator b':'"),
        (["--property", "parse.headers=true", "-k", "k"], b"", "-k and parse.headers exclude each other"),
    ],
)
def test_produce_names_the_line_that_it_cannot_read(
    rig: LoadRig, tmp_path: Path, arguments: list[str], line: bytes, words: str
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(line)
    done = run_here(["produce", "-b", rig.bootstrap, "-t", rig.topic, *arguments, str(file)])
    assert done.code == 2
    assert words in done.err
    assert rig.read() in ({}, {0: []})


def test_produce_sends_files_whole_or_by_line_with_headers(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"1\n2\n")
    assert run_here(["produce", "-b", rig.bootstrap, "-t", rig.topic, "-H", "a=b", str(path)]).code == 0
    assert run_here(["produce", "-b", rig.bootstrap, "-t", rig.topic, "-l", str(path)]).code == 0
    (records,) = rig.read().values()
    assert [(r.value, r.headers) for r in records] == [(b"1\n2\n", [("a", b"b")]), (b"1", []), (b"2", [])]


def test_tail_shows_the_last_records_as_text_and_as_json(rig: LoadRig, capsys: pytest.CaptureFixture[str]) -> None:
    produce(rig, "-K", ":", "-H", "h=1", stdin=b"a:1\nb:2\nc:3\n")
    assert main(["tail", rig.topic, "-b", rig.bootstrap, "-n", "2"]) == 0
    assert capsys.readouterr().out == "0:1\tb\t2 [h=1]\n0:2\tc\t3 [h=1]\n"
    assert main(["tail", rig.topic, "-b", rig.bootstrap, "-o", "0", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["key"], first["value"], first["offset"]) == ("a", "1", 0)
    assert first["headers"] == [{"name": "h", "value": "1"}]


def test_tail_takes_the_flags_and_offsets_of_kcat(rig: LoadRig) -> None:
    for value in ("a", "b", "c"):
        assert (
            run_here(["produce", "-t", rig.topic, "-b", rig.bootstrap, "-p", "0", str(file_of(rig, value))]).code == 0
        )
    shown = run_here(["tail", "-t", rig.topic, "-b", rig.bootstrap, "-p", "0", "-o", "-2"])
    assert shown.out == "0:1\tb\n0:2\tc\n"
    assert run_here(["tail", "-b", rig.bootstrap]).code == 2


def file_of(rig: LoadRig, text: str) -> Path:
    rig.state_dir.mkdir(exist_ok=True)
    path = rig.state_dir / text
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("produce -t none", "topic 'none' does not exist: create it with `kafkaprod topics create none`"),
        ("perf --topic none --num-records 1 --record-size 1", "topic 'none' does not exist"),
        ("produce -t t -p 99", "topic 't' has 1 partition, but no partition 99"),
    ],
)
def test_a_topic_or_partition_that_is_not_there_is_told_before_anything_is_sent(
    tmp_path: Path, command: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkaprod.admin.topics.CREATION_MS", 200)  # it makes none
    with EmbeddedBroker(topics={"t": 1}, auto_create_topics=False) as broker:
        done = run_here([*command.split(), "-b", broker.bootstrap_servers])
    assert done.code in (1, 2)
    assert message in done.err


def test_topics_are_made_listed_described_and_deleted(rig: LoadRig, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{rig.topic}-more"
    assert main(["topics", "create", name, "-b", rig.bootstrap, "--partitions", "2"]) == 0
    assert main(["topics", "create", name, "-b", rig.bootstrap]) == 1
    assert main(["topics", "create", name, "-b", rig.bootstrap, "--if-not-exists"]) == 0
    capsys.readouterr()
    assert main(["topics", "list", "-b", rig.bootstrap]) == 0
    assert name in capsys.readouterr().out.splitlines()
    assert main(["topics", "describe", name, "-b", rig.bootstrap, "--json"]) == 0
    assert [p["partition"] for p in json.loads(capsys.readouterr().out)["partitions"]] == [0, 1]
    assert main(["topics", "delete", name, "-b", rig.bootstrap]) == 0
    assert main(["topics", "delete", name, "-b", rig.bootstrap]) == 1


def test_changes_of_topics_are_printed_as_json(rig: LoadRig, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{rig.topic}-json"
    for action, expected in (
        (["create", "--partitions", "2"], {"outcome": "created", "partitions": 2}),
        (["create", "--if-not-exists"], {"outcome": "exists"}),
        (["delete"], {"outcome": "deleted"}),
        (["delete", "--if-exists"], {"outcome": "does not exist"}),
    ):
        capsys.readouterr()
        assert main(["topics", action[0], name, *action[1:], "-b", rig.bootstrap, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"name": name, **expected}


def test_doctor_names_a_missing_topic_and_a_missing_broker(rig: LoadRig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-b", rig.bootstrap, "-t", "no-such-topic"]) == 1
    assert "kafkaprod topics create no-such-topic" in capsys.readouterr().out
    assert main(["doctor", "-b", "127.0.0.1:1", "-X", "request.timeout.ms=500"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().out


def test_doctor_finds_nothing_that_will_fail_in_a_good_topic(rig: LoadRig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-b", rig.bootstrap, "-t", rig.topic, "--json"]) == 0
    findings = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["connection"]["level"] == "ok"
    assert findings["memory"]["level"] == "ok"


@pytest.mark.parametrize("payload", [("--record-size", "100"), ("--payload-monotonic",)])
def test_perf_prints_the_lines_of_the_java_tool(rig: LoadRig, payload: tuple[str, ...]) -> None:
    done = run_here([
        *("perf", "--topic", rig.topic, "--num-records", "20000", *payload, "--throughput", "-1"),
        *("--reporting-interval", "0", "--producer-props", f"bootstrap.servers={rig.bootstrap}", "linger.ms=0"),
    ])  # fmt: skip
    *windows, last = done.out.splitlines()
    assert re.fullmatch(PERF_LINE, last)
    assert windows
    assert all(re.fullmatch(WINDOW_LINE, line) for line in windows)
    assert sum(map(len, rig.read().values())) == 20_000


def test_perf_keeps_to_a_throughput_and_tells_of_the_steady_state(rig: LoadRig) -> None:
    done = run_here([
        *("perf", "--topic", rig.topic, "--num-records", "2000", "--record-size", "10", "--throughput", "4000"),
        *("--warmup-records", "500", "--json", "-b", rig.bootstrap),
    ])  # fmt: skip
    report = json.loads(done.out)
    assert report["records"] == 2000
    assert report["records_per_second"] < 4500
    assert report["steady_state"]["records"] == 1500


def test_perf_measures_latency_at_given_rates_and_draws_it(rig: LoadRig, tmp_path: Path) -> None:
    path = tmp_path / "curve.svg"
    arguments = ["perf", "--topic", rig.topic, "--record-size", "100", "-b", rig.bootstrap, "--curve", "400,200"]
    done = run_here([*arguments, "--curve-seconds", "0.5", "--svg", str(path)])
    assert done.code == 0, done.err
    head, *lines = done.out.splitlines()
    assert head.split()[:2] == ["target/s", "reached/s"]
    assert [line.split()[0] for line in lines] == ["200", "400"]
    assert path.read_text().startswith("<?xml")
    points = json.loads(run_here([*arguments, "--curve-seconds", "0.5", "--json"]).out)
    assert [point["target_records_per_second"] for point in points] == [200, 400]
    # A fifth is the warm-up; a process that was held up in it sends a part of that fifth later, and it counts.
    assert all(0 < point["records"] <= point["target_records_per_second"] * 0.5 for point in points)
    assert all(0 < point["latency_ms"]["p50"] <= point["latency_ms"]["p99.9"] for point in points)


def test_the_curve_ends_with_the_first_rate_that_is_not_reached(rig: LoadRig) -> None:
    arguments = ["perf", "-t", rig.topic, "--record-size", "10", "-b", rig.bootstrap, "--curve-seconds", "0.1"]
    *_, last = run_here([*arguments, "--curve", "100000000,200000000"]).out.splitlines()
    assert last.startswith("100,000,000 ")
    assert last.endswith("  saturated")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --num-records N, or --curve"),
        (["--num-records", "5", "--svg", "f.svg"], "--svg draws what --curve measures"),
        (["--num-records", "5", "--curve"], "leave out --num-records"),
        (["--curve", "10,x"], "'x' is not a whole number above 0"),
        (["--curve", "--curve-seconds", "0"], "is not in 0.1..3600"),
    ],
)
def test_perf_refuses_what_does_not_fit_together(rig: LoadRig, arguments: list[str], message: str) -> None:
    done = run_here(["perf", "-t", rig.topic, "--record-size", "9", "-b", rig.bootstrap, *arguments])
    assert done.code == 2
    assert message in done.err


@pytest.mark.external
def test_perf_and_the_java_tool_print_the_same_lines(kafka: object, kafka_tools: str, topic_name: str) -> None:
    bootstrap = kafka.bootstrap()  # type: ignore[attr-defined]
    arguments = [
        *("--topic", topic_name, "--num-records", "5000", "--record-size", "50", "--throughput", "-1"),
        *("--reporting-interval", "50", "--command-property", f"bootstrap.servers={bootstrap}"),
    ]
    assert main(["topics", "create", topic_name, "-b", bootstrap]) == 0
    java = ["java", "-cp", kafka_tools, "org.apache.kafka.tools.ProducerPerformance"]
    warm = ["--warmup-records", "2000"]
    theirs = subprocess.run([*java, *arguments, *warm], capture_output=True, text=True, timeout=120, check=True).stdout
    ours = run_here(["perf", *arguments, *warm]).out
    for text in (theirs, ours):
        *windows, total, steady = [line for line in text.splitlines() if "records sent" in line]
        assert all(re.fullmatch(WINDOW_LINE, line) for line in windows), text
        assert rebuilt(total) == total
        assert rebuilt(steady, is_steady_state=True) == steady
        assert " steady state " in steady


def rebuilt(line: str, *, is_steady_state: bool = False) -> str:
    """The line that we print for the numbers in a line of the Java tool."""
    records, rate, mb, average, highest, *percentiles = re.findall(r"(?<!\w)\d+(?:\.\d+)?(?= )", line)
    whole = tuple(map(int, percentiles))
    assert len(whole) == 4, line
    numbers = (int(records), float(rate), float(mb), float(average), float(highest))
    return perf_stats.total_line(*numbers, whole, is_steady_state=is_steady_state)


@pytest.mark.external
def test_perf_has_the_formats_of_the_java_tool(kafka_tools: str) -> None:
    jar = next(path for path in kafka_tools.split(os.pathsep) if Path(path).name.startswith("kafka-tools-4"))
    with zipfile.ZipFile(jar) as classes:
        stats = classes.read("org/apache/kafka/tools/ProducerPerformance$Stats.class")
    assert f"{perf_stats.WINDOW_LINE}%n".encode() in stats
    assert f"{perf_stats.TOTAL_LINE}%n".encode() in stats


@pytest.mark.external
def test_numbers_are_rounded_as_java_rounds_them(kafka_tools: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    halves = [number / 8 for number in range(1, 100)] + [number / 1000 for number in range(5, 3000, 10)]
    numbers = [*halves, *(draw.uniform(0, 10.0 ** draw.randrange(8)) for _ in range(500))]
    program = tmp_path / "Numbers.java"
    program.write_text(
        "class Numbers { public static void main(String[] a) throws Exception {"
        " for (String text : java.nio.file.Files.readAllLines(java.nio.file.Path.of(a[0]))) {"
        " double number = Double.parseDouble(text);"
        ' System.out.printf(java.util.Locale.ROOT, "%.1f %.2f %f%n", number, number, number); } } }'
    )
    (tmp_path / "numbers").write_text("\n".join(map(repr, numbers)))
    java = ["java", str(program), str(tmp_path / "numbers")]
    theirs = subprocess.run(java, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert theirs == [
        f"{perf_stats.half_up(n, 1):.1f} {perf_stats.half_up(n, 2):.2f} {perf_stats.half_up(n, 6):f}" for n in numbers
    ]
