"""The producer's network: sockets, TLS, proxies, and the connections of one client.

http_exchange  one HTTP request and its answer, for token endpoints and proxies of names
pool           the connections of one client: readiness of nodes, sending, and the outcomes of requests
connector      makes and ends the connections of a pool; decides when to try again, and keeps why they ended
traffic        the part of a pool that each request passes
known_nodes    the known brokers, and the failures of connections to the bootstrap servers
node_state     the state of a broker across its connections, and the choice of the least loaded one
node           one connection to one broker: a transport driving a `protocol.client.Connection`
proxy          connections through a SOCKS or HTTP proxy, by the library python-socks (extra `kafkaprod[proxy]`)
background     blocking calls off the I/O thread: name resolution, SCRAM key derivation, fetching OAuth tokens
settings       what the network layer needs to connect: the options, and what is made from them once
network        where connections come from
throttling     which answers ask the client to hold back, and for how long (KIP-219)
certificate_errors  which side refused whose certificate, by OpenSSL's error
tls_transport  non-blocking TLS byte streams over a socket
channel        the part of a broker's connection that each request passes
transport      non-blocking TCP byte streams: connect, send a chain of buffers, receive into a buffer
poller         readiness of sockets, and a wakeup that other threads may call
ready_files    the waiting half of a poller: which of its files are ready
socket_calls   the system calls of the sender's loop
"""
