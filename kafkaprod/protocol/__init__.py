"""Kafka's wire protocol without I/O: bytes in, objects out, and back.

    primitives     Reader and Writer for the types of the protocol
    field_types    the same types as parts of a declaration
    schema         messages as declarations with version ranges
    plans          a declaration at one version, compiled into decoder and encoder steps
    api_keys       numbers of the APIs                  error_codes   every error code a broker answers
    messages       one module per API, both directions
    frames         headers, and the splitting of a byte stream into frames
    client         the client's side of a connection    server        the broker's side

Nothing in here opens a socket, starts a thread or reads a clock. Records are opaque: `kafkaprod._core` writes and
reads them. Source of every layout: Apache Kafka protocol guide and the message definitions of Kafka 4.4.
"""
