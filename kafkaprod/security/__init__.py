"""Client security: SASL mechanisms and TLS contexts. Imports only configuration and errors of this package.
`engine/wiring.py` chooses the mechanism; the broker's half of a login is in `broker/calls`.

kerberos         GSSAPI: login with a Kerberos ticket
kerberos_errors  what failed of a login with Kerberos, with its remedy
single_call      a call that may hang: one at a time, each on a thread of its own, with a bound
msk              AWS_MSK_IAM: tokens of OAUTHBEARER for Amazon MSK
plugins          SASL mechanisms of other packages, by their entry points
sasl             SASL mechanisms: the client's half of a login, as bytes in and bytes out
scram            SCRAM-SHA-256 and SCRAM-SHA-512
tls              an `ssl.SSLContext` from options
token_cache      keeps a token for most of its life
token_endpoint   tokens from an identity provider's endpoint
assertions       signed JSON web tokens by which a client proves who it is (RFC 7523)
oauthbearer      OAUTHBEARER: login with a bearer token that the caller's provider fetches
"""
