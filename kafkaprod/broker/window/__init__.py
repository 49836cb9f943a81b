"""The window: a page that shows a tester what is in an embedded broker or cluster, by a small server of its own.

It runs in its own process, so that it stays while a broker is killed, stopped or paused, and while a debugger holds the
test. It asks the brokers over their control sockets, and so it needs no login, and does not appear among the clients.

serving   addresses, and the server
guarding  who may ask: Host, Origin, token; the headers of each answer
streams   what a page is sent while it is open: only what has changed
sources   asks the brokers, and merges what they answer
showing   bytes as text, JSON or hexadecimal numbers; nothing that a browser would take for anything else
"""
