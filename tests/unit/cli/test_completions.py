"""Completions and manual page: what shells and man make of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafkaprod.cli.completions import SCRIPTS
from kafkaprod.cli.main import COMMANDS, main
from kafkaprod.cli.man import manual
from tests.support.programs import program


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    for shell in SCRIPTS:
        assert main(["completions", shell]) == 0
        (tmp_path / f"kafkaprod.{shell}").write_text(capsys.readouterr().out)
    (tmp_path / "rows.csv").write_text("")
    return tmp_path


def bash_completes(scripts: Path, *words: str) -> set[str]:
    """Return what bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in ("kafkaprod", *words))
    script = (
        f"source ./kafkaprod.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}\n"
        "$(complete -p kafkaprod | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", script], cwd=scripts, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return set(done.stdout.split())


def fish_completes(scripts: Path, *words: str) -> set[str]:
    line = " ".join(("kafkaprod", *words))
    script = f"source ./kafkaprod.fish; complete -C '{line}'"
    done = subprocess.run(
        [program("fish"), "--no-config", "-c", script], cwd=scripts, capture_output=True, text=True, timeout=30
    )
    assert done.stderr == ""
    return {offer.partition("\t")[0] for offer in done.stdout.splitlines()}


CASES = [
    (("",), set(COMMANDS)),
    (("lo",), {"load"}),
    (("topics", ""), {"list", "create", "describe", "delete"}),
    (("topics", "create", "--partit"), {"--partitions"}),
    (("load", "--format", "j"), {"jsonl", "json"}),
    (("load", "rows.csv", "-X", "linger"), {"linger.ms="}),
    (("load", "ro"), {"rows.csv"}),
    (("load", "--schema", "ro"), {"rows.csv"}),
    (("completions", ""), set(SCRIPTS)),
]


@pytest.mark.parametrize(("words", "offers"), CASES, ids=lambda part: " ".join(part) if isinstance(part, tuple) else "")
def test_bash_completes(scripts: Path, words: tuple[str, ...], offers: set[str]) -> None:
    assert bash_completes(scripts, *words) == offers


@pytest.mark.parametrize(("words", "offers"), CASES, ids=lambda part: " ".join(part) if isinstance(part, tuple) else "")
def test_fish_completes(scripts: Path, words: tuple[str, ...], offers: set[str]) -> None:
    assert offers <= fish_completes(scripts, *words)


def test_zsh_reads_the_script(scripts: Path) -> None:
    script = "autoload -U compinit; compinit -u -D; source ./kafkaprod.zsh; print $_comps[kafkaprod]"
    done = subprocess.run([program("zsh"), "-f", "-c", script], cwd=scripts, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("_kafkaprod\n", "")


def test_bash_offers_nothing_for_a_value_that_is_free(scripts: Path) -> None:
    assert bash_completes(scripts, "load", "--key", "") == set()


def test_the_manual_names_every_command_and_flag() -> None:
    page = manual()
    for command in COMMANDS:
        assert f".SH {command.upper()}\n" in page
    assert "\\fB\\-t, \\-\\-topic\\fR" in page


def test_man_shows_the_manual_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "kafkaprod.1"
    path.write_text(manual())
    command = [program("man"), "--warnings", "-E", "UTF-8", "-l", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "Kafka" in done.stdout
