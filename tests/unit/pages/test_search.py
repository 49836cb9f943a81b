"""The order in which the documentation's search shows what it finds, on an index of three pages."""

from __future__ import annotations

from typing import Any

from tests.pages.search import missing, search

INDEX: dict[str, Any] = {
    "docnames": ["configuration", "deployment", "history"],
    "titles": ["Configuration", "Deployment", "History"],
    "alltitles": {
        "Configuration": [[0, None]],
        "retries": [[0, "retries"]],
        "Deployment": [[1, None]],
        "Docker images": [[1, "docker-images"]],
        "History": [[2, None]],
    },
    "indexentries": {"docker": [[1, "search-images", "main"]], "retries (method)": [[2, "p.retries", ""]]},
    "objects": {"kafkaprod.Producer": [[2, 0, 1, "", "send"], [2, 0, 1, "p.send_many", "send_many"]]},
    "objnames": {"0": ["py", "method", "Python method"]},
    "terms": {"docker": [1, 2], "retri": 0, "imag": 1, "wait": [0, 2]},
    "titleterms": {"configur": 0, "deploy": 1, "histori": 2},
}


def places(query: str) -> list[str]:
    return [f"{result.page}#{result.place}" for result in search(INDEX, query)]


def test_an_entry_of_the_index_comes_before_titles_and_the_text() -> None:
    assert places("docker") == ["deployment#search-images", "deployment#", "history#"]
    assert places("docker images") == ["deployment#docker-images", "deployment#"]


def test_words_are_searched_by_their_stems_and_all_of_them_count() -> None:
    assert places("Retrying") == ["configuration#"]
    assert places("retries") == ["configuration#retries", "configuration#"]
    assert places("wait retry") == ["configuration#"]
    assert places("configuration") == ["configuration#"]
    assert places("nothing") == []


def test_a_method_is_found_by_its_name_and_by_a_part_of_it() -> None:
    assert places("send") == ["history#kafkaprod.Producer.send", "history#p.send_many"]
    assert places("producer send_many") == ["history#p.send_many"]


def test_what_does_not_lead_to_its_page_is_named() -> None:
    assert list(missing(INDEX, {"docker": "deployment#search-images", "retry": "configuration"})) == []
    assert list(missing(INDEX, {"docker": "configuration", "nothing": "history#"})) == [
        "'docker' does not lead to configuration, but to deployment#search-images, deployment#, history#",
        "'nothing' does not lead to history#, but to nothing",
    ]
