"""The page of a load says when, where and by what it was made, and no secret."""

from __future__ import annotations

from pathlib import Path

from kafkaprod import __version__
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.cli.main import main


def test_the_page_of_a_load_can_be_filed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    page = tmp_path / "report.html"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": "ada", "sasl.password": "s3cret"}
    with EmbeddedBroker(topics={"t": 1}, sasl_users={"ada": "s3cret"}) as broker:
        line = ["load", str(tmp_path / "a.csv"), "-t", "t", "-b", broker.bootstrap_servers, "--report", str(page)]
        line += ["--expect-rows", "2", "--write-id", "day-7", "-q"]
        line += [word for name, value in login.items() for word in ("-X", f"{name}={value}")]
        assert main(line) == 0
        address = broker.bootstrap_servers
    text = page.read_text()
    for part in ("begun", "ended", __version__, "cluster", "topic id", "day-7", "expected rows", address):
        assert part in text
    assert "s3cret" not in text
