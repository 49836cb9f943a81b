"""Connections between the processes of an embedded cluster: Kafka's requests over Unix sockets in a private directory.

rules   what tests do to them: cuts and delays in each direction
link    the side that asks: one connection to one process, made again when it is needed
server  the side that answers, for the controller; brokers answer through `broker.server`
wire    controller events as requests, answers as responses, and back
"""
