"""AWS_MSK_IAM from SQL and from a stream: options alone, keys of the environment, a broker that verifies the tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import aws_msk_iam_sasl_signer  # noqa: F401 -- without the package this file is left out
import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.net.msk_broker import REGION, msk_brokers

TOPIC, USER, SECRET = "t", "AKIDEXAMPLE", "canary"
SOURCE = Path(__file__).resolve().parents[2]


def test_sql_and_a_stream_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with msk_brokers({USER: SECRET}), EmbeddedBroker(topics={TOPIC: 1}, sasl_oauthbearer=True) as broker:
        login = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.aws.region": REGION,
        }
        options = {f"kafka.{name}": value for name, value in login.items()} | {"topic": TOPIC}
        command = [sys.executable, "-m", "tests.spark.msk_program", str(tmp_path), json.dumps(options)]
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=360, check=False)
        assert done.returncode == 0, done.stderr
        with Producer(login) as producer:
            assert producer.send(TOPIC, b"after").result(30).offset == 20
