"""An embedded broker with a durable log, for development and tests. Never imports the producer side.

One request's way: `server` (sockets, event loop) -> `session` (one connection) -> `dispatcher` (login, faults, lane)
-> `router` (API key -> handler) -> `handlers/<api>` -> `broker` (topics, groups, offsets, ids) -> `storage` (the log)
and back. Waiting fetches stay in `purgatory`, waiting joins and syncs in their `coordinator/group`.

    thread             owns
    event loop         sockets, sessions, purgatory, timers; runs the handlers of produce, fetch and other reads
    control thread     groups, offsets, producer ids, changes of topics; runs their handlers
    sync pool          syncs that must precede an acknowledgement (flush policy "each")
    maintenance        syncs by time, checkpoints, retention
`embedded` runs all of it in a process of its own (`child`), `cli.broker` as a command.
"""
