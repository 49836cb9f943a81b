"""The broker's front: sockets, sessions, and the way of a request to its handler.

process           what a process of its own does before it runs a broker
server            the broker's sockets: accept, read, hand to handlers, write
accepting         the sockets that listen, and what becomes of the connections they accept
admission         who may be connected, and for how long
connection_rates  how many connections a second there may be, of an address and in all
dispatcher        what happens to one request between its arrival and its answer: login, faults, handler, outcome
fault_parts       faults for parts of a request: how the rest of it works
throttling        quotas of clients, enforced: how long a connection waits after an answer
read_budget       how much of unfinished requests the broker holds in memory
router            API key -> handler: what is announced, where it runs, and what happens when it fails
session           one client's connection: its socket, its protocol state, its requests in line
calm_log          keeps what clients can cause from filling the log
tls               the broker's side of TLS as an `ssl.SSLContext`
"""
