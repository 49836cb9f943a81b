"""Connections between the processes of an embedded cluster: Kafka's requests over Unix sockets in a private directory.

link    the side that asks: one connection to one process, made again when it is needed
pace    how many bytes may pass where a test limits them
rules   what tests do to them: cuts, delays and rates in each direction
server  the side that answers, for the controller; brokers answer through `broker.server`
"""
