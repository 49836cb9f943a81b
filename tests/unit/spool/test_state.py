"""What the entries of a journal say of its partitions."""

from __future__ import annotations

from kafkaprod.spool.entries import SpooledPartition, progress_entry, topic_entry
from kafkaprod.spool.state import JournalState


def test_progress_does_not_go_back() -> None:
    state = JournalState()
    state.apply(topic_entry(0, SpooledPartition("orders", bytes(16), 0, 1)))
    for rank in (5, 3):
        state.apply(progress_entry({0: (rank, rank + 50)}))
    assert state.table[0].resolved_rank == 5
