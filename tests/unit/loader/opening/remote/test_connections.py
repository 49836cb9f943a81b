"""A server chooses where its redirects lead: not to hosts of this machine's network, and never with credentials."""

from __future__ import annotations

import argparse
import pickle
import traceback
from collections.abc import Iterator

import pytest

from kafkaprod.cli.load_arguments import add_load_arguments
from kafkaprod.cli.main import main
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.remote import connections
from kafkaprod.loader.opening.remote.access import Access, HeaderSource
from kafkaprod.loader.opening.remote.addresses import identity
from kafkaprod.loader.opening.remote.connections import next_address
from kafkaprod.loader.opening.remote.objects import RangePatience
from tests.support.loader.object_server import ObjectServer, object_server, redirect, status

NAME = "/rows.txt"
SECRET = "canary7d31"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server({NAME: b"row\n" * 100}) as running:
        yield running


def access(*headers: HeaderSource) -> Access:
    return Access(headers, RangePatience(read_s=5, connect_s=1, all_s=0.1, first_pause_s=0.001))


def load(address: str, *headers: HeaderSource) -> bytes:
    (source,) = find_sources([address], access=access(*headers))
    with open_source(source) as stream:
        return stream.readall()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fd00:ec2::254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.1", "private"),
        ("192.168.1.1", "private"),
        ("172.16.0.1", "private"),
        ("100.64.0.1", "private"),
        ("0.0.0.0", "private"),
        ("224.0.0.1", "private"),
        ("fc00::1", "private"),
        ("8.8.8.8", ""),
        ("2001:4860:4860::8888", ""),
    ],
)
def test_each_network_that_is_not_public_is_known(number: str, kind: str) -> None:
    assert connections._kind_of(number) == kind


def test_a_redirect_to_the_credentials_of_a_cloud_is_refused_before_it_is_followed(server: ObjectServer) -> None:
    server.faults.append(redirect("http://169.254.169.254/latest/meta-data/"))
    with pytest.raises(LoadError, match=r"redirects to http://169\.254\.169\.254.*a link-local address"):
        load(server.url(NAME))


def test_a_public_server_may_not_lead_into_a_private_network(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = connections._numbers_of
    asked: list[str] = []

    def numbers_of(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8"] if host == "127.0.0.1" and len(asked) > 1 else found(host, port)

    with object_server({NAME: b"inside\n"}, host="127.0.0.2") as inside:
        server.faults.append(redirect(inside.url(NAME)))
        monkeypatch.setattr(connections, "_numbers_of", numbers_of)
        with pytest.raises(LoadError, match="a loopback address, which its server may not choose"):
            load(server.url(NAME))
        assert inside.asked == []


def test_headers_go_to_the_first_host_only(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    with object_server({NAME: b"there\n" * 100}, host="127.0.0.2") as there:
        server.faults.append(redirect(there.url(NAME)))
        assert load(server.url(NAME), HeaderSource("Authorization", "TOKEN")) == b"there\n" * 100
        assert all("authorization" not in asked.headers for asked in there.asked)
    assert {asked.headers["authorization"] for asked in server.asked} == {SECRET}


def test_a_circle_of_redirects_ends(server: ObjectServer) -> None:
    server.faults.append(redirect(NAME))
    with pytest.raises(LoadError, match="more than 5 times"):
        load(server.url(NAME))
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    "location",
    ["http://a.example/x", "ftp://a.example/x", "https://u:p@a.example/", "https://a/x y", "file:///etc"],
)
def test_a_redirect_out_of_tls_or_to_what_is_no_address_is_refused(location: str) -> None:
    with pytest.raises(LoadError, match="redirects"):
        next_address("https://first.example/x", "https://first.example/x", location, 0)


def test_the_bound_of_the_process_holds_for_addresses_and_redirects(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKAPROD_ALLOWED_URLS", server.url("/"))
    assert load(server.url(NAME))
    with object_server({NAME: b"there\n"}) as there:
        with pytest.raises(LoadError, match="is not allowed: allowed_urls, or the variable KAFKAPROD_ALLOWED_URLS"):
            load(there.url(NAME))
        server.faults.append(redirect(there.url(NAME)))
        with pytest.raises(LoadError, match="is not allowed"):
            load(server.url(NAME))
        assert there.asked == []


def test_the_option_bounds_addresses_and_redirects_of_one_load(
    server: ObjectServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with object_server({NAME: b"there\n"}) as there:
        command = ["load", "-t", "t", "--dry-run", "1", "-X", f"allowed.urls={server.url('/')}", "--format", "lines"]
        assert main([*command, server.url(NAME)]) == 0
        assert main([*command, there.url(NAME)]) == 2
        assert f"{there.url(NAME)} is not allowed: allowed_urls" in capfd.readouterr().err
        server.faults.append(redirect(there.url(NAME)))
        assert main([*command, server.url(NAME)]) == 1
        assert "is not allowed: allowed_urls" in capfd.readouterr().err
        assert there.asked == []


def test_what_is_sent_to_another_process_keeps_the_bound() -> None:
    bounded = Access(allowed_urls=("https://host/",))
    assert pickle.loads(pickle.dumps(bounded)).allowed_urls == ("https://host/",)


@pytest.mark.parametrize("code", [0, 302, 403, 404, 412, 500])
def test_no_error_has_what_is_secret_in_an_address(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    address = f"{server.url(NAME)}?X-Amz-Signature={SECRET}&token={SECRET}&sig={SECRET}"
    if code:
        server.faults.append(status(code, Location=f"http://169.254.169.254/?sig={SECRET}"))
    else:
        address = address.replace("http://", f"http://{SECRET}:{SECRET}@")
    with pytest.raises(LoadError) as caught:
        load(address, HeaderSource("X-Token", "TOKEN"))
    assert SECRET not in "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.__cause__)
    assert SECRET not in identity(address)


def test_a_signature_is_not_part_of_what_an_object_is_and_another_query_is() -> None:
    assert identity("https://H.example:443/a.csv?X-Amz-Date=1&x-amz-signature=2#x") == "https://h.example/a.csv"
    assert identity("https://h.example/a.csv?page=1") != identity("https://h.example/a.csv?page=2")


def test_a_header_is_given_by_a_variable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_load_arguments(parser)
    assert parser.parse_args(["--http-header", "X-A=env:B"]).http_header == [HeaderSource("X-A", "B")]
    monkeypatch.setenv("KAFKAPROD_ALLOWED_SECRET_SOURCES", "env:OTHER")
    for wrong in ("X-A=env:B", "X-A=secret", "X A=env:B", "Range=env:B", "=env:B"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--http-header", wrong])
    assert "does not name that place" in capsys.readouterr().err
    monkeypatch.delenv("B", raising=False)
    with object_server({NAME: b"x\n"}) as server, pytest.raises(LoadRefusedError, match="no variable B"):
        load(server.url(NAME), HeaderSource("X-A", "B"))
