"""What the broker knows and decides: topics, leaders, producer ids, upkeep."""
