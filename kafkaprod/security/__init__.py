"""Client security: SASL mechanisms and TLS contexts. Imports nothing of this package but errors."""
