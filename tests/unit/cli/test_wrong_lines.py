"""The commonest wrong command lines: each is refused with exit code 2, and the first line says what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kafkaprod.cli.main import main

LINES = [
    # commands by another name, or misspelt
    ("topic list", "unknown command 'topic'; did you mean topics?"),
    ("consume -t orders", "unknown command 'consume'; did you mean tail?"),
    ("list", "unknown command 'list'; did you mean topics list?"),
    ("create orders", "unknown command 'create'; did you mean topics create?"),
    ("prodcue -t orders", "unknown command 'prodcue'; did you mean produce?"),
    ("send orders", "unknown command 'send'; did you mean produce?"),
    ("import f.csv", "unknown command 'import'; did you mean load?"),
    ("version", "unknown command 'version'; did you mean --version?"),
    ("bench", "unknown command 'bench'; did you mean perf?"),
    ("serve", "unknown command 'serve'; did you mean broker?"),
    ("help topic", "unknown command 'topic'; did you mean topics?"),
    ("frobnicate", "unknown command 'frobnicate': there are quickstart, load, produce, "),
    ("topics ls", "topics: unknown action 'ls'; did you mean list?"),
    ("topics rm orders", "topics: unknown action 'rm'; did you mean delete?"),
    ("topics show orders", "topics: unknown action 'show'; did you mean describe?"),
    ("topics orders", "topics: unknown action 'orders': there are list, create, describe, delete"),
    ("topics", "required: ACTION"),
    # options in front of the command, and kcat's modes
    ("-b a:9092 topics list", "-b stands before the command: options come after it, `kafkaprod topics list -b ...`"),
    ("-X sasl.password=s3cret tail orders", "-X stands before the command: options come after it, `kafkaprod tail"),
    ("--brokers=a:9092 load", "--brokers stands before the command: options come after it, `kafkaprod load --brokers"),
    ("topics -b a:9092", "-b stands before the action: options come after it, `kafkaprod topics ACTION -b ...`"),
    ("-L -b a:9092", "unknown option -L; did you mean topics list?"),
    ("-P -t orders -b a:9092", "unknown option -P; did you mean produce?"),
    ("-C -t orders -b a:9092", "unknown option -C; did you mean tail?"),
    ("--verison", "unknown option --verison; did you mean --version?"),
    # options that are misspelt, shortened or left out
    ("load f.csv --topc t", "load: unknown option --topc; did you mean --topic?"),
    ("load f.csv -t t --rest", "load: unknown option --rest; did you mean --restart?"),
    ("load f.csv -t t --resum", "load: unknown option --resum; did you mean --resume?"),
    ("load f.csv -t t --sep=;", "load: unknown option --sep; did you mean --separator?"),
    ("tail orders --broker a:9092", "tail: unknown option --broker; did you mean --brokers?"),
    ("perf -t t --num 5 --record-size 9", "perf: unknown option --num; did you mean --num-records?"),
    ("topics create t --partition 3", "topics create: unknown option --partition; did you mean --partitions?"),
    ("tail orders -x", "tail: unknown option -x"),
    ("tail orders payments", "tail: unknown argument payments"),
    ("load f.csv", "required: -t/--topic"),
    ("topics list -b", "-b/--bootstrap-server/--brokers: expected one argument"),
    # values
    ("load f.csv -t t --format xml", "--format: invalid choice: 'xml'"),
    ("load missing.csv -t t --dry-run", "missing.csv"),
    ("load f.csv -t t --rate fast", "--rate: 'fast' is not a number above 0"),
    ("tail", "name one topic: kafkaprod tail TOPIC"),
    ("produce", "name one topic: kafkaprod produce TOPIC"),
    ("produce .", "which topic? '.' is a file; name the topic first: kafkaprod produce TOPIC FILE"),
    ("tail orders --from yesterday", "--from: 'yesterday' is not a time such as 2026-11-28T09:00"),
    ("tail orders --from 5 -o end", "--from and -o exclude each other"),
    ("tail orders -b a:9092 -X linger", "-X 'linger' is not NAME=VALUE"),
    ("tail orders", "no broker address: use -b HOST:PORT"),
]


@pytest.mark.parametrize(("line", "said"), LINES, ids=[line for line, _ in LINES])
def test_a_wrong_line_is_answered_with_the_way_out(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKAPROD_CONFIG", raising=False)
    try:
        code: object = main(shlex.split(line.replace(";", r"\;")))
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    assert code == 2
    assert said in printed.err.splitlines()[0]
    assert "s3cret" not in printed.err
    assert printed.out == ""


def test_there_are_forty_lines() -> None:
    assert len({line for line, _ in LINES}) >= 40
