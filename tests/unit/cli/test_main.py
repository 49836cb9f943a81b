"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkaprod.cli.documentation import cli_page
from kafkaprod.cli.main import COMMANDS, main

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"


def test_the_page_of_commands_is_what_the_parsers_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == cli_page(), "python -m kafkaprod.cli > docs/cli.md"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: kafkaprod {command}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["load"], ["load", "f", "-t", "t", "--format", "xml"]])
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("load f -t t --kye id", "kafkaprod load: --kye is not known: is it --key?"),
        ("topics create t --partitons 3", "kafkaprod topics create: --partitons is not known: is it --partitions?"),
        ("load f -t t --rate 0", "--rate: '0' is not a number above 0"),
        ("load f -t t --rate nan", "--rate: 'nan' is not a number above 0"),
        ("load f -t t --checkpoint-interval -1", "'-1' is not a number above 0"),
        ("load -t t --dry-run f", "--dry-run: 'f' is not a whole number above 0"),
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
    assert main(["load", str(path), "-t", "t", "-F", str(options), "-b", "127.0.0.1:2"]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_only_the_command_that_is_called_is_imported() -> None:
    code = "import sys; from kafkaprod.cli.main import build_parser; build_parser(['tail']); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kafkaprod.cli.tail" in modules
    assert not {"kafkaprod.broker.server.server", "kafkaprod.loader.load", "pyarrow", "polars", "tqdm"} & set(modules)
