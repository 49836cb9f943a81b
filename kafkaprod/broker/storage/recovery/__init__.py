"""After a crash: scanning segments, checkpoints, leader epochs."""
