"""The README's first command."""

from pathlib import Path

import pytest

from kafkaprod.cli.main import main


def test_the_standard_library_comes_back_as_sent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "-q"]) == 0
    assert "Every record is in its place" in capsys.readouterr().out


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_table_comes_back_as_sent(codec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,name\n" + "".join(f"{i},name {i}\n" for i in range(20_000)))
    assert main(["quickstart", "-q", str(path), "--compression-type", codec]) == 0
    assert "20,000 records" in capsys.readouterr().out


def test_lines_of_a_file_come_back_as_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\n\n" + b"x" * 100_000 + b"\n" + b"\n".join(b"%d" % i for i in range(5000)))
    assert main(["quickstart", "-q", str(path)]) == 0
    assert "5,003 records" in capsys.readouterr().out


def test_an_unreadable_file_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "/nonexistent/file"]) == 2
    assert "/nonexistent/file" in capsys.readouterr().err
