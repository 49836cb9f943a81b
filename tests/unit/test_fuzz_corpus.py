"""Every input that fuzzing found worth keeping, in every test run."""

from pathlib import Path

import pytest

from tests.fuzz.targets import read_batch

CORPUS = sorted((Path(__file__).parents[1] / "fuzz" / "corpus").iterdir())


def test_corpus_is_kept_and_small():
    assert CORPUS
    assert sum(path.stat().st_size for path in CORPUS) < 200_000


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_kept_input_is_read_or_refused(path):
    read_batch(path.read_bytes())
