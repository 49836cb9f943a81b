"""The alerts of the demo: they fire when they should, and not otherwise; see also `test_dashboard`.

Their own tests run where `promtool` is on the PATH, or `KAFKAPROD_PROMTOOL` names it (Debian's package prometheus has
it).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DEMO = Path(__file__).resolve().parents[3] / "docs" / "demo"
PROMTOOL = os.environ.get("KAFKAPROD_PROMTOOL") or shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool on this machine")
@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_finds_the_rules_right(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=DEMO, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    rules = yaml.safe_load((DEMO / "alerts.yml").read_text(encoding="utf-8"))
    cases = yaml.safe_load((DEMO / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    checks = [check for case in cases for check in case["alert_rule_test"]]
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {check["alertname"] for check in checks if "exp_alerts" in check} == names
    assert {check["alertname"] for check in checks if "exp_alerts" not in check} == names
