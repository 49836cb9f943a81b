"""What a power cut leaves of a load with bad rows: no manifest is ahead of the dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.loader.positions.manifest import Manifest
from tests.support.loader.load_rig import LoadRig
from tests.support.power_cuts import Image, power_cuts

FILES, ROWS = 5, 60


def bad_rows_of(image: Image, name: str) -> int:
    """How many whole dead letters there are."""
    return (image.get(name) or b"").count(b"\n")


def noted_of(image: Image) -> int | None:
    """The bytes of dead letters that the manifest notes; None without a manifest."""
    found = [content for name, content in image.items() if name.endswith(".load.json") and content is not None]
    return Manifest.from_json(found[0].decode()).dead_letter_bytes if found else None


@pytest.mark.parametrize("aside", ["dead.jsonl", "aside/dead.jsonl"])
@pytest.mark.parametrize("interval", ["0.000001", "60"])
def test_no_manifest_is_ahead_of_the_bad_rows_that_are_kept(tmp_path: Path, aside: str, interval: str) -> None:
    (work := tmp_path / "work").mkdir()
    (work / aside).parent.mkdir(exist_ok=True)
    paths = [tmp_path / f"{number}.jsonl" for number in range(FILES)]
    for path in paths:
        path.write_text("".join('{"a": 1}\n' if row % 3 else "no\n" for row in range(ROWS)))
    with EmbeddedBroker(topics={"t": 1}) as broker, power_cuts(work) as cuts:
        rig = LoadRig(broker.bootstrap_servers, work / "state", "t")
        options = ("--on-error", f"dead-letter={work / aside}", "--checkpoint-interval", interval)
        done = rig.run(*map(str, paths), "--key", "a", *options)
    assert done.code == 3, done.err  # bad rows
    noted = {noted_of(image) for image in cuts.images}
    assert len(noted) > 2
    for image in cuts.images:
        assert len(image.get(aside) or b"") >= (noted_of(image) or 0)
    for image in cuts.last_images:
        assert bad_rows_of(image, aside) == FILES * ROWS / 3
        assert noted_of(image) == len(image[aside] or b"")
