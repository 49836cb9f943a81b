"""The command line as a whole."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import __version__
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.cli.documentation import cli_page
from kafkaprod.cli.main import COMMANDS, EXAMPLES, build_parser, main

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"


def test_the_page_of_commands_is_what_the_parsers_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == cli_page(), "python -m kafkaprod.cli > docs/cli.md"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: kafkaprod {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "loaded"), [("--version", []), ("help topics", ["topics"]), ("topics list --help", ["topics"])]
)
def test_only_the_command_that_is_named_is_loaded(arguments: str, loaded: list[str]) -> None:
    program = (
        "import sys\nfrom kafkaprod.cli.main import COMMANDS, main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print([command for command in COMMANDS if f'kafkaprod.cli.{command}' in sys.modules])"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed.splitlines()[-1] == repr(loaded)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["help", "nonsense"], ["load"], ["load", "f", "-t", "t", "--format", "xml"]]
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("load f -t t --kye id", "kafkaprod load: unknown option --kye; did you mean --key?"),
        (
            "topics create t --partitons 3",
            "kafkaprod topics create: unknown option --partitons; did you mean --partitions?",
        ),
        ("load f -t t --rate 0", "--rate: '0' is not a number above 0"),
        ("load f -t t --rate nan", "--rate: 'nan' is not a number above 0"),
        ("load f -t t --checkpoint-interval -1", "'-1' is not a number above 0"),
        ("load f -t t --dry-run=f", "--dry-run: 'f' is not a whole number above 0"),
        ("load f -t t -p -3", "'-3' is not a whole number"),
        ("perf --topic t --num-records 0 --record-size 9", "--num-records: '0' is not a whole number above 0"),
        ("tail t -n -1", "'-1' is not a whole number"),
    ],
)
def test_wrong_arguments_are_named_in_two_lines(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 2


@pytest.mark.parametrize("flag", ["dry_run", "create_topic"])
@pytest.mark.parametrize(
    ("order", "has_number"),
    [("FLAG f -t t", False), ("-t t FLAG f g", False), ("-t t FLAG -- f", False), ("FLAG 7 f -t t", True),
     ("FLAG=7 f -t t", True), ("f -t t FLAG", False)],
)  # fmt: skip
def test_an_optional_value_leaves_the_file(flag: str, order: str, has_number: bool) -> None:
    bare = {"dry_run": 5, "create_topic": -1}[flag]
    given = order.replace("FLAG", f"--{flag.replace('_', '-')}").split()
    options = build_parser(["load"]).parse_args(["load", *given])
    assert options.files[0] == "f"
    assert getattr(options, flag) == (7 if has_number else bare)


def test_the_command_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "quickstart" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["help"], ["help", "tail"], ["help", "topics", "create"]])
def test_help_is_a_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    assert f"usage: {' '.join(['kafkaprod', *arguments[1:]])} " in capsys.readouterr().out


def command_examples() -> Iterator[str]:
    (children,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    for name, parser in children.choices.items():
        lines = (parser.epilog or "").partition(EXAMPLES)[2].splitlines()
        assert lines or name == "load", f"{name} --help has no examples"
        yield from (line.strip() for line in lines)


@pytest.mark.parametrize("example", list(command_examples()))
def test_the_examples_in_a_help_can_be_parsed(example: str) -> None:
    *_, command = example.split("|")
    _, *arguments = shlex.split(command.partition("<")[0])
    assert build_parser().parse_args(arguments).command == arguments[0]


CLUSTER_COMMANDS = ["load f --format lines -t t", "produce -t t", "tail t", "topics list", "topics delete t", "doctor"]
CLUSTER_COMMANDS += ["perf -t t --num-records 1 --record-size 1"]


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_options_of_the_cluster_are_taken_from_everywhere(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f").write_bytes(b"x\n")
    Path("file").write_text("bootstrap.servers=127.0.0.1:1\nrequest.timeout.ms=100\n")
    Path("other").write_text("bootstrap.servers=127.0.0.1:2\nrequest.timeout.ms=100\n")
    ways = [
        (["-F", "file"], "127.0.0.1:1"),
        (["-F", "file", "-X", "bootstrap.servers=127.0.0.1:3"], "127.0.0.1:3"),
        (["-F", "file", "-X", "bootstrap.servers=127.0.0.1:3", "-b", "127.0.0.1:4"], "127.0.0.1:4"),
        ([], "127.0.0.1:2"),
    ]
    monkeypatch.setenv("KAFKAPROD_CONFIG", "other")
    for flags, address in ways:
        assert main([*command.split(), *flags]) in (1, 75)
        output = capsys.readouterr()
        assert address in output.out + output.err


@pytest.mark.parametrize("flags", [["--connect-timeout", "0.2"], ["-X", "max.block.ms=200"]])
@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_the_wait_for_the_first_broker_can_be_set(command: str, flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x\n")
    arguments = [str(tmp_path / "f") if part == "f" else part for part in command.split()]
    started_s = time.monotonic()
    assert main([*arguments, "-b", "127.0.0.1:1", *flags]) in (1, 75)
    assert time.monotonic() - started_s < 20  # 30 s without them


def test_a_load_without_a_cluster_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(b"x\n")
    assert main(["load", str(path), "-t", "t"]) == 2
    assert "-b HOST:PORT" in capsys.readouterr().err


def test_a_file_of_options_is_read_and_a_flag_goes_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(b"x\n")
    options = tmp_path / "producer.properties"
    options.write_text("bootstrap.servers=127.0.0.1:1\nacks=all\nrequest.timeout.ms=300\n")
    assert main(["load", str(path), "-t", "t", "-F", str(options), "-b", "127.0.0.1:2"]) == 75
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_only_the_command_that_is_called_is_imported() -> None:
    code = "import sys; from kafkaprod.cli.main import build_parser; build_parser(['tail']); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kafkaprod.cli.tail" in modules
    assert not {"kafkaprod.broker.server.server", "kafkaprod.loader.load", "pyarrow", "polars", "tqdm"} & set(modules)


def test_the_package_runs_as_a_program() -> None:
    """The module `kafkaprod.__main__` is the command line."""
    done = subprocess.run([sys.executable, "-m", "kafkaprod", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kafkaprod {__version__}\n"


@pytest.mark.parametrize("flag", ["--separator", "--quote", "--comment", "--elements"])
def test_an_argument_that_is_not_utf_8_is_named_by_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    path = tmp_path / ("a.json" if flag == "--elements" else "a.csv")
    path.write_text("a,b\n1,2\n")
    with EmbeddedBroker(topics={"t": 1}) as broker:
        given = ["load", "-t", "t", "-b", broker.bootstrap_servers, flag, "\udcff", str(path)]
        assert main(given) == 2
    assert "argument 7 of the command line is not UTF-8" in capsys.readouterr().err
