"""A partition's log: appending, reading, segments, retention, and the directory that holds them."""
