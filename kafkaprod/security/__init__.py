"""Client security: SASL mechanisms and TLS contexts. Imports only configuration and errors of this package."""
