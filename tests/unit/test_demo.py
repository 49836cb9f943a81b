"""The demo for Docker and the forms of the forge: what of them can be tried without an engine."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
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
from tests.pages.documentation import blocks

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


def test_the_images_user_is_a_number_and_the_last_stage_runs_any_command() -> None:
    stages = [stage.splitlines() for stage in (DEMO / "Dockerfile").read_text().split("\nFROM ")[1:]]
    runtime, broker, last = stages[1:]
    assert [line for line in runtime if line.startswith("USER")] == ["USER 10001"]
    assert any("useradd --uid 10001" in line for line in runtime)
    assert [line for line in broker if line.startswith("HEALTHCHECK")]
    assert [line.split()[0] for line in last[1:]] == ["CMD"]
    (command,) = (line.partition(" CMD ")[2] for line in broker if line.startswith("HEALTHCHECK"))
    with EmbeddedBroker(topics={"orders": 1}) as running:
        words = [running.bootstrap_servers if word == "localhost:9092" else word for word in json.loads(command)[1:]]
        assert subprocess.run([sys.executable, "-m", "kafkaprod", *words], check=False).returncode == 0
    done = subprocess.run([sys.executable, "-m", "kafkaprod", *words], check=False, stderr=subprocess.DEVNULL)
    assert done.returncode == 1


def pages_block(page: str, beginning: str) -> str:
    (found,) = (block.text for block in blocks(ROOT / "docs" / page) if block.text.startswith(beginning))
    return found


def test_the_pod_of_the_page_runs_without_rights() -> None:
    spec = yaml.safe_load(pages_block("deployment.md", "spec:"))["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert f"USER {spec['securityContext']['runAsUser']}" in (DEMO / "Dockerfile").read_text()
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def test_the_unit_of_the_page_has_known_directives_only(tmp_path: Path) -> None:
    unit = tmp_path / "orders.service"
    unit.write_text(pages_block("deployment.md", "[Unit]").replace("/opt/orders/bin/python", sys.executable))
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    service = parser["Service"]
    assert service["Type"] == "exec"
    assert service["RestartPreventExitStatus"] == "2"
    name, _, path = service["LoadCredential"].partition(":")
    assert path.startswith("/")
    assert f'"file:/run/credentials/orders.service/{name}"' in unit.read_text()
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:  # part of systemd, which containers lack
        done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
        assert "orders.service" not in done.stderr, done.stderr


def test_the_loggers_of_the_page_exist() -> None:
    page = (ROOT / "docs" / "logs.md").read_text()
    named = set(re.findall(r"^\| .*", page, re.MULTILINE))
    loggers = {name for row in named for name in re.findall(r"`(kafkaprod[.\w]+)`", row.split("|")[1])}
    assert len(loggers) > 10
    paths = [path for pattern in ("*.py", "*.pyx") for path in (ROOT / "kafkaprod").rglob(pattern)]
    sources = {path: path.read_text() for path in paths}
    explicit = {name for text in sources.values() for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}
    by_module = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path, text in sources.items()
        if "getLogger(__name__)" in text
    }
    for logger in loggers:
        assert any(name == logger or name.startswith(f"{logger}.") for name in explicit | by_module), logger


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
