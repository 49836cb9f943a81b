from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.config.secret import LiveSecret, Secret
from kafkaprod.errors import ConfigError
from kafkaprod.security.tls import CertificateFiles, client_context, endpoint_context
from tests.support.config import unchecked_config
from tests.support.net.certificates import Authority, Pem


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Run a whole handshake in memory; raise what the client raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    is_done = [False, False]
    for _ in range(10):
        for index, end in enumerate(ends):
            if not is_done[index]:
                try:
                    end.do_handshake()
                    is_done[index] = True
                except ssl.SSLWantReadError:
                    pass
        if all(is_done):
            return
    raise AssertionError("the handshake does not end")


def trusting(authority: Authority, **options: object) -> ssl.SSLContext:
    return client_context(unchecked_config(ssl_cafile=authority.cafile, **options))


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (["broker.test"], "broker.test"),
        (["broker.test"], "BROKER.test"),
        (["*.brokers.test"], "b1.brokers.test"),
        (["127.0.0.1"], "127.0.0.1"),
        (["::1"], "::1"),
    ],
)
def test_a_certificate_that_names_the_host_is_accepted(authority: Authority, names: list[str], host: str) -> None:
    handshake(trusting(authority), authority.issue("good", names).server_context(), host)


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (["other.test"], "broker.test"),
        (["broker.test"], "127.0.0.1"),
        (["127.0.0.1"], "127.0.0.2"),
        (["*.test"], "b1.brokers.test"),
        (["*.brokers.test"], "brokers.test"),
        ([], "broker.test"),  # the name is in the common name only
    ],
)
def test_a_certificate_for_another_host_is_refused(authority: Authority, names: list[str], host: str) -> None:
    server = authority.issue("other", names, common_name="broker.test").server_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(trusting(authority), server, host)


def test_the_common_name_of_a_token_endpoint_does_not_count_either(authority: Authority) -> None:
    context = endpoint_context(unchecked_config(https_ca_location=authority.cafile))
    assert context is not None
    named = authority.issue("named", ["broker.test"]).server_context()
    handshake(context, named, "broker.test")
    common = authority.issue("common", [], common_name="broker.test").server_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, common, "broker.test")


@pytest.mark.parametrize(
    "flaws",
    [{"valid_days": -1}, {"is_self_signed": True}, {"is_for_clients": True}],
    ids=lambda flaws: next(iter(flaws)),
)
def test_a_flawed_certificate_is_refused(authority: Authority, flaws: dict[str, Any]) -> None:
    server = authority.issue("flawed", ["broker.test"], **flaws).server_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(trusting(authority), server, "broker.test")


def test_a_certificate_of_an_unknown_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("s", ["broker.test"]).server_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(trusting(authority), stranger, "broker.test")
    with pytest.raises(ssl.SSLCertVerificationError):  # the system's authorities do not know ours either
        handshake(
            client_context(unchecked_config()), authority.issue("g", ["broker.test"]).server_context(), "broker.test"
        )


def test_a_revoked_certificate_is_refused(authority: Authority) -> None:
    good, bad = authority.issue("good-r", ["broker.test"]), authority.issue("bad-r", ["broker.test"])
    context = trusting(authority, ssl_crlfile=authority.revocation_list(bad.certificate))
    handshake(context, good.server_context(), "broker.test")
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        handshake(context, bad.server_context(), "broker.test")


def test_the_host_name_check_can_be_turned_off_but_the_chain_is_still_checked(authority: Authority) -> None:
    context = trusting(authority, ssl_check_hostname=False)
    handshake(context, authority.issue("o", ["other.test"]).server_context(), "broker.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, authority.issue("s", ["x"], is_self_signed=True).server_context(), "broker.test")


def test_old_protocol_versions_are_refused(authority: Authority) -> None:
    assert client_context(unchecked_config()).minimum_version == ssl.TLSVersion.TLSv1_2
    context = trusting(authority)
    server = authority.issue("v", ["broker.test"]).server_context()
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    handshake(context, server, "broker.test")


def test_a_client_certificate_is_presented(authority: Authority) -> None:
    server = authority.issue("m", ["broker.test"]).server_context()
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(authority.cafile)
    server.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 the client finishes before the server has looked
    own = authority.issue("client", [], is_for_clients=True, password=b"canary")
    options = {"ssl_certfile": own.certfile, "ssl_keyfile": own.keyfile, "ssl_password": Secret("canary")}
    handshake(trusting(authority, **options), server, "broker.test")
    with pytest.raises(ssl.SSLError):
        handshake(trusting(authority), server, "broker.test")


@pytest.fixture
def encrypted(authority: Authority) -> Pem:
    return authority.issue("encrypted", ["x"], password=b"canary")


def test_a_missing_or_wrong_key_password_is_an_error_and_never_a_prompt(encrypted: Pem) -> None:
    with pytest.raises(ConfigError, match="ssl_password is not given"):
        client_context(unchecked_config(ssl_certfile=encrypted.certfile, ssl_keyfile=encrypted.keyfile))
    wrong = unchecked_config(
        ssl_certfile=encrypted.certfile, ssl_keyfile=encrypted.keyfile, ssl_password=Secret("wrong-canary")
    )
    with pytest.raises(ConfigError) as caught:
        client_context(wrong)
    assert "canary" not in str(caught.value) + repr(wrong)


def test_a_key_that_does_not_fit_is_refused(authority: Authority) -> None:
    one, two = authority.issue("one", ["x"]), authority.issue("two", ["x"])
    with pytest.raises(ConfigError, match="ssl_keyfile"):
        client_context(unchecked_config(ssl_certfile=one.certfile, ssl_keyfile=two.keyfile))


def test_unusable_files_and_ciphers_are_named(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not PEM")
    for options in (
        unchecked_config(ssl_cafile=garbage),
        unchecked_config(ssl_cafile=tmp_path / "absent"),
        unchecked_config(ssl_crlfile=garbage),
        unchecked_config(ssl_certfile=garbage),
        unchecked_config(ssl_keyfile=garbage),
        unchecked_config(ssl_ciphers="NO-SUCH-CIPHER"),
    ):
        with pytest.raises(ConfigError, match="ssl_"):
            client_context(options)


def test_changed_files_make_another_context_and_unusable_ones_leave_the_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (Authority(tmp_path, name) for name in ("one", "two"))
    paths = {name: tmp_path / name for name in ("ca", "certificate", "key")}

    def write(authority: Authority, *names: str) -> None:
        own = authority.issue("own", ["client"])
        for name, source in (("ca", authority.cafile), ("certificate", own.certfile), ("key", own.keyfile)):
            if not names or name in names:
                paths[name].write_bytes(source.read_bytes())

    write(first)
    options = unchecked_config(ssl_cafile=paths["ca"], ssl_certfile=paths["certificate"], ssl_keyfile=paths["key"])
    files = CertificateFiles(options)
    context = files.current()
    assert files.can_change
    assert files.current() is context
    write(second, "ca", "certificate")  # its key is not there yet
    assert files.current() is context
    assert "not used" in caplog.text
    paths["key"].unlink()
    assert files.current() is context
    write(second)
    renewed = files.current()
    assert renewed is not context
    assert [each["subject"] for each in renewed.get_ca_certs()] != [each["subject"] for each in context.get_ca_certs()]
    assert files.current() is renewed


def test_pem_text_in_a_file_is_read_again(tmp_path: Path) -> None:
    authorities = [Authority(tmp_path, name) for name in ("one", "two")]
    path = tmp_path / "ca"
    path.write_bytes(authorities[0].cafile.read_bytes())
    files = CertificateFiles(unchecked_config(ssl_ca_pem=LiveSecret(f"file:{path}")))
    context = files.current()
    path.write_bytes(authorities[1].cafile.read_bytes())
    assert files.current() is not context
    assert not CertificateFiles(unchecked_config(ssl_ca_pem=Secret(path.read_text()))).can_change


def test_the_system_s_store_is_read_again_after_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authorities = [Authority(tmp_path, name) for name in ("one", "two")]
    store = tmp_path / "store"
    monkeypatch.setenv("SSL_CERT_FILE", str(store))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "absent"))
    store.write_bytes(authorities[0].cafile.read_bytes())
    files = CertificateFiles(unchecked_config())
    assert files.can_change
    old = files.current()
    store.write_bytes(b"".join(authority.cafile.read_bytes() for authority in authorities))
    renewed = files.current()
    handshake(renewed, authorities[1].issue("own", ["broker.test"]).server_context(), "broker.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(old, authorities[1].issue("own", ["broker.test"]).server_context(), "broker.test")
