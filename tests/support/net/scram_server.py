"""The server's half of a SCRAM login, written without ours, to be told lies about."""

from __future__ import annotations

import base64
import hashlib
import hmac

SALT = b"0123456789abcdef"


class ScramServer:
    """The server's half, written from RFC 5802; every field it sends can be overridden."""

    def __init__(self, password: str = "pencil", *, hash_name: str = "sha256", iterations: int = 4096) -> None:
        self.hash_name = hash_name
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, iterations)

    def server_first(self, client_first: bytes) -> bytes:
        self.client_first_bare = client_first.decode().removeprefix("n,,")
        self.nonce = dict(field.split("=", 1) for field in self.client_first_bare.split(","))["r"] + "server"
        self.server_first_message = f"r={self.nonce},s={base64.b64encode(SALT).decode()},i={self.iterations}"
        return self.server_first_message.encode()

    def server_final(self, client_final: bytes) -> bytes:
        without_proof, proof = client_final.decode().rsplit(",p=", 1)
        assert without_proof == f"c=biws,r={self.nonce}"
        auth_message = f"{self.client_first_bare},{self.server_first_message},{without_proof}".encode()
        stored_key = hashlib.new(self.hash_name, hmac.digest(self.salted, b"Client Key", self.hash_name)).digest()
        signature = hmac.digest(stored_key, auth_message, self.hash_name)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash_name, client_key).digest() != stored_key:
            return b"e=invalid-proof"
        server_key = hmac.digest(self.salted, b"Server Key", self.hash_name)
        return b"v=" + base64.b64encode(hmac.digest(server_key, auth_message, self.hash_name))
