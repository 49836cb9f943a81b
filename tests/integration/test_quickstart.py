"""The README's first command."""

from pathlib import Path

import pytest

from kafkaprod.cli.main import main


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_made_up_records_come_back_as_sent(codec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--records", "30000", "--compression-type", codec]) == 0
    assert "every record is in its place" in capsys.readouterr().out


def test_lines_of_a_file_come_back_as_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\n\n" + b"x" * 100_000 + b"\n" + b"\n".join(b"%d" % i for i in range(5000)))
    assert main(["quickstart", str(path)]) == 0
    assert "5,003 records" in capsys.readouterr().out


def test_an_unreadable_file_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "/nonexistent/file"]) == 1
    assert "/nonexistent/file" in capsys.readouterr().err
