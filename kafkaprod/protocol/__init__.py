"""Kafka's wire protocol without I/O: bytes in, objects out, and back.

Nothing in here opens a socket, starts a thread or reads a clock. Records are opaque: `kafkaprod._core` writes and
reads them. Source of every layout: Apache Kafka protocol guide and the message definitions of Kafka 4.4.

client         the client's side of a connection, as pure state
exchange       the requests of a connection and their answers, as pure state
handshake      the handshake of a connection: ApiVersions, the SASL login, and later logins
client_events  events of a client connection as a whole
in_flight      requests from `send` to their outcome, in the order they were sent
login          requests and responses of a client's SASL login
long_messages  error messages of an answer that quote too much to be encoded, cut
negotiation    negotiates the version of each API
server         one connection, broker's side, as pure state
error_codes    the error codes of brokers, in one table
frames         frames of a connection: the headers before a body, and the splitting of a byte stream
messages       every message kafkaprod knows: one module per API, both directions, all versions
outgoing       the queue of bytes for a socket: buffers that are consumed from the front, at any byte
schema         messages as declarations: fields with their version ranges, for both directions and every version
api_keys       the numbers of Kafka's APIs
plans          compiles a declaration at one version into the steps that read and write it
field_types    the types of fields in message declarations
primitives     a Reader and a Writer for the types of Kafka's protocol, classic and compact
"""
