"""The demo for Docker and the forms of the forge: what of them can be tried without an engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "docs" / "demo"
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("compose-spec", DEMO / "compose.yaml"),
        ("github-issue-config", FORMS / "config.yml"),
        ("github-issue-forms", FORMS / "bug.yml"),
        ("github-issue-forms", FORMS / "wish.yml"),
        ("dependabot", ROOT / ".github" / "dependabot.yml"),
    ],
    ids=lambda part: part.name if isinstance(part, Path) else part,
)
def test_a_file_has_the_form_that_its_reader_wants(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_demo_mounts_files_that_exist_and_scrapes_what_the_program_serves() -> None:
    services = yaml.safe_load((DEMO / "compose.yaml").read_text())["services"]
    mounts = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    assert len(mounts) == 6
    assert all((DEMO / mount).is_file() for mount in mounts)
    (job,) = yaml.safe_load((DEMO / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in services
    assert f'"METRICS_PORT", "{port}"' in (DEMO / "orders.py").read_text()


def test_the_dockerfile_copies_what_a_build_needs() -> None:
    lines = (DEMO / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    allowed = {line[1:] for line in (DEMO / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "kafkaprod", "pyspark_kafkaprod"} <= copied


def test_the_program_of_the_demo_sends_shows_metrics_and_ends_by_sigterm() -> None:
    (port,) = free_ports(1)
    with EmbeddedBroker(topics={"orders": 3}) as broker:
        environment = os.environ | {
            "BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "METRICS_PORT": str(port),
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen([sys.executable, str(DEMO / "orders.py")], env=environment)
        try:
            assert sent(port) > 0
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def sent(port: int) -> float:
    """Return how many records the program has sent, when there are some; 0 after a minute without."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            text = urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10).read().decode()
        except OSError:
            continue
        lines = [line for line in text.splitlines() if line.startswith("kafka_producer_record_send_total{")]
        if lines and float(lines[0].split()[-1]) > 0:
            return float(lines[0].split()[-1])
    return 0


def test_the_devcontainer_and_the_hooks_can_be_read() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert ".[dev,load]" in container["postCreateCommand"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
