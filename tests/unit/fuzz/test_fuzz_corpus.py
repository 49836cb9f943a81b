"""Every input that fuzzing found worth keeping, in every test run."""

from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import response_targets
from tests.fuzz.targets import read_batch

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
TARGETS = {
    "read_batch": read_batch,
    "read_response": response_targets.read_response,
    "settle_response": response_targets.settle_response,
    "receive_bytes": response_targets.receive_bytes,
}
KEPT = [path for target in TARGETS for path in sorted((CORPUS / target).iterdir())]


def test_corpus_is_kept_and_small() -> None:
    assert {path.parent.name for path in KEPT} == {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in KEPT) < 500_000


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_kept_input_is_read_or_refused(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_seeds_reach_what_they_are_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that refuses its input at once would find nothing."""
    reached: list[str] = []
    mechanism = response_targets.ScramMechanism
    step = mechanism.step

    def noted(*arguments: Any) -> bytes | None:
        reached.append("challenge")
        return step(*arguments)

    monkeypatch.setattr(mechanism, "step", noted)
    response_targets.receive_bytes((CORPUS / "receive_bytes" / "login").read_bytes())
    assert reached == ["challenge"]
    response_targets.settle_response((CORPUS / "settle_response" / "version-9-layout-2-code-6").read_bytes())
    request = response_targets._requests[9, 2]
    response_targets.settle_response((CORPUS / "settle_response" / "version-9-layout-2-code-0").read_bytes())
    assert all(future.succeeded() for future in request.futures)
