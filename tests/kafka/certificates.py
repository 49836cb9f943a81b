"""A certificate authority for one test cluster: broker and client certificates as PEM files.

Made anew for each cluster (elliptic curve keys: a few milliseconds), valid for one day.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of PEM files.

    Attributes:
        ca: the authority that signed broker and client.
        broker_store: key (PKCS 8) and certificate of the broker in one file, for `ssl.keystore.location`.
        client_certificate: certificate of the principal ``CN=test-client``.
        client_key: its unencrypted key.
        other_ca: an authority that signed nothing: a client trusting only it must refuse the broker.
    """

    ca: Path
    broker_store: Path
    client_certificate: Path
    client_key: Path
    other_ca: Path


def make_certificates(directory: Path) -> CertificateFiles:
    """Write a new authority and what it signed into ``directory``; the broker is ``localhost`` and ``127.0.0.1``."""
    directory.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(
        ca=directory / "ca.pem",
        broker_store=directory / "broker.pem",
        client_certificate=directory / "client.pem",
        client_key=directory / "client.key",
        other_ca=directory / "other-ca.pem",
    )
    ca_key, ca = _authority("kafkaprod test authority")
    files.ca.write_bytes(_pem(ca))
    files.other_ca.write_bytes(_pem(_authority("another test authority")[1]))

    broker_key, broker = _signed("localhost", ca_key, ca, ExtendedKeyUsageOID.SERVER_AUTH)
    files.broker_store.write_bytes(_pem_key(broker_key) + _pem(broker) + _pem(ca))
    client_key, client = _signed("test-client", ca_key, ca, ExtendedKeyUsageOID.CLIENT_AUTH)
    files.client_key.write_bytes(_pem_key(client_key))
    files.client_certificate.write_bytes(_pem(client))
    return files


def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _signed(
    name: str, ca_key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, purpose: x509.ObjectIdentifier
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    certificate = (
        _builder(_name(name), ca.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return key, certificate


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
