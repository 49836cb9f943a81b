"""Certificates for TLS tests, made on the spot."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass
class Pem:
    """Files of a certificate chain and its key."""

    certfile: Path
    keyfile: Path
    certificate: x509.Certificate

    def server_context(self) -> ssl.SSLContext:
        """A server's context that presents this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certfile, self.keyfile)
        return context


class Authority:
    """A certificate authority living in `directory`."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self.certificate = builder.sign(self._key, hashes.SHA256())
        self.cafile = directory / f"{name.replace(' ', '-')}.pem"
        self.cafile.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file_name: str,
        names: list[str],
        *,
        common_name: str = "broker",
        valid_days: int = 7,
        is_self_signed: bool = False,
        is_for_clients: bool = False,
        password: bytes | None = None,
    ) -> Pem:
        """A certificate for DNS names and IP addresses; negative `valid_days`: expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if is_for_clients else ExtendedKeyUsageOID.SERVER_AUTH
        signing_key = key if is_self_signed else self._key
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name))
            .issuer_name(_name(common_name) if is_self_signed else self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 60 * DAY)
            .not_valid_after(NOW + valid_days * DAY)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False
            )
        certificate = builder.sign(signing_key, hashes.SHA256())
        certfile, keyfile = self._directory / f"{file_name}.pem", self._directory / f"{file_name}.key"
        certfile.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        keyfile.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return Pem(certfile, keyfile, certificate)

    def revocation_list(self, *revoked: x509.Certificate) -> Path:
        """A revocation list naming `revoked`."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(NOW - DAY).next_update(NOW + DAY)
        for certificate in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(NOW - DAY)
            builder = builder.add_revoked_certificate(entry.build())
        path = self._directory / f"revoked-{len(revoked)}.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
