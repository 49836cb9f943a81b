"""The exit code of every command follows the rule of docs/cli.md: 0, 1, 2, 3, 75."""

from pathlib import Path

import pytest

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.cli.main import COMMANDS, main

# Command, what it is given, and its exit code. {there} is a topic, {gone} is none, {lines} and {csv} are files, the
# second with a bad row; -b is added where the command has it.
CASES: dict[str, list[tuple[str, int]]] = {
    "quickstart": [
        ("{lines} -q", 0),
        ("{csv} -q --format csv", 1),
        ("{csv} -q --format csv --on-error skip", 3),
        ("{csv} -q --format csv --on-error dead-letter={aside}", 3),
        ("{lines} --on-error dead-letter=topic:t", 2),
        ("{lines} --on-error leave", 2),
        ("{lines} --on-error dead-letter={missing}/file", 2),
        ("{missing}", 2),
        ("{lines} -z brotli", 2),
    ],
    "load": [
        ("{lines} -t {there} -q", 0),
        ("{lines} -t {there} -q", 2),  # already loaded
        ("{lines} -t {there} -q --resume", 0),
        ("{lines} -t {there} -q --resume -k other", 2),
        ("{csv} -t {there} -q", 1),
        ("{csv} -t {there} -q", 2),  # it stopped
        ("{csv} -t {there} -q --resume --on-error skip", 3),
        ("{csv} -t {there} --dry-run", 1),
        ("{csv} -t {there} --dry-run 1", 0),
        ("{csv} -t {there} --dry-run --on-error skip", 3),
        ("{csv} -t {there} --dry-run --on-error dead-letter={aside}", 3),
        ("{csv} -t {there} --restart --key none", 2),
        ("{lines} -t {there} --restart -p 99", 2),
        ("{missing} -t {there}", 2),
        ("{lines} -t {gone}", 1),
        ("{lines} -t {there} --restart --on-error dead-letter={missing}/file", 2),
        ("{lines} -t {there} --no-such-flag", 2),
    ],
    "produce": [
        ("{lines} -l -t {there}", 0),
        ("{missing} -t {there}", 2),
        ("{lines} {missing} -t {there}", 2),
        ("{lines} -t {there} -X acks=5", 2),
        ("{lines} -t {gone}", 1),
        ("{lines} -t {there} -p 99", 2),
    ],
    "tail": [("{there}", 0), ("{gone}", 1), ("{there} -p 99", 2), ("{there} -o x", 2), ("", 2)],
    "topics": [
        ("list", 0),
        ("describe {there}", 0),
        ("describe {gone}", 1),
        ("create {there}", 1),
        ("create {there} --if-not-exists", 0),
        ("create {gone} --config x", 2),
        ("create {gone} --partitions 0", 2),
        ("delete {gone}", 1),
        ("delete {gone} --if-exists", 0),
        ("rename", 2),
    ],
    "writes": [("list", 0), ("show no-such-id", 1), ("forget no-such-id", 1), ("show", 2)],
    "transactions": [("list", 0), ("describe no-such-id", 1), ("describe", 2)],
    "doctor": [("-t {there}", 0), ("-t {gone}", 1), ("-X acks=5", 2)],
    "perf": [
        ("--topic {there} --num-records 10 --record-size 10 --throughput -1", 0),
        ("--topic {gone} --num-records 10 --record-size 10 --throughput -1", 1),
        ("--topic {there} --record-size x", 2),
    ],
    "spool": [
        ("status {spool}", 0),
        ("verify {spool}", 0),
        ("export {spool}", 0),
        ("drain {spool} -b 127.0.0.1:1", 0),  # nothing is left, so no broker is asked
        ("status {missing}", 2),
        ("drain {missing} -b 127.0.0.1:1", 2),
        ("export {spool} --output {lines}", 2),
        ("verify", 2),
    ],
    "broker": [("--port x", 2), ("--no-such-flag", 2)],
    "cluster": [("--no-such-flag", 2)],
    "completions": [("bash", 0), ("tcsh", 2)],
    "man": [("", 0), ("page", 2)],
}
WITHOUT_CLUSTER = ("quickstart", "spool", "broker", "cluster", "completions", "man")


def test_every_command_has_cases() -> None:
    assert set(CASES) == set(COMMANDS)


@pytest.mark.parametrize("command", CASES)
def test_exit_codes(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "rows.csv").write_bytes(b"id,name\n1,a\n2\n3,c\n")
    (tmp_path / "spool").mkdir(mode=0o700)
    places = {
        "spool": str(tmp_path / "spool"),
        "there": "there",
        "gone": "gone",
        "lines": str(tmp_path / "lines.txt"),
        "csv": str(tmp_path / "rows.csv"),
        "aside": str(tmp_path / "aside.jsonl"),
        "missing": str(tmp_path / "missing.txt"),
    }
    with EmbeddedBroker(topics={"there": 2}, auto_create_topics=False) as broker:
        for text, expected in CASES[command]:
            arguments = [command, *text.format_map(places).split()]
            is_parsed_by_broker = command not in WITHOUT_CLUSTER and "rename" not in arguments
            if is_parsed_by_broker:
                arguments += ["-b", broker.bootstrap_servers]
            try:
                code = main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
            output = capsys.readouterr()
            assert code == expected, (arguments, output.out[-500:], output.err)
            assert code in (0, 3) or output.err or command == "doctor", arguments


def test_a_broker_that_is_down_may_be_up_later(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\n")
    assert main(["load", str(path), "-t", "t", "-b", "127.0.0.1:1", "--connect-timeout", "0.2"]) == 75


def test_a_missing_topic_is_named_in_plain_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        for command in ("tail none", "topics describe none", "topics delete none"):
            assert main([*command.split(), "-b", broker.bootstrap_servers]) == 1
            assert "topic 'none' does not exist" in capsys.readouterr().err


def test_a_connection_is_logged_and_a_bootstrap_server_named_by_its_address(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker() as broker, caplog.at_level("INFO", "kafkaprod.net"):
        assert main(["topics", "list", "-b", broker.bootstrap_servers]) == 0
        assert f"connected to bootstrap server {broker.bootstrap_servers}" in caplog.messages
