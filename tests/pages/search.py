"""Whether the search of the built documentation finds what people type: `python -m tests.pages.search build/docs [WORDS]`.

WORDS asks for the first results of a search. Without: every search of SEARCHES must have its page, with the place in
it, among the first three results; exit status 0 if so. The order is that of Sphinx's searchtools.js (9.0): index
entries, titles, objects and words of the text, each with its score.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from docutils.nodes import make_id
from sphinx.search.en import SearchEnglish

from tests.pages.documentation import ROOT

FIRST = 3
WORDS = tomllib.loads((ROOT / "docs" / "search.toml").read_text(encoding="utf-8"))
# What is typed -> page#place that must be among the first results; the place is left out where the page is enough.
SEARCHES: Mapping[str, str] = {
    **{
        word: f"{page}#{make_id(heading)}"
        for page, headings in WORDS.items()
        for heading, words in headings.items()
        for word in words
    },
    "KafkaException": "from-confluent-kafka",
    "DeliveryTimeoutError": "api-errors#kafkaprod.errors.DeliveryTimeoutError",
    "send_table": "api-producer#kafkaprod.Producer.send_table",
    "AsyncProducer": "api-async-producer#kafkaprod.AsyncProducer",
    "asyncio": "api-async-producer",
    "celery": "deployment#celery",
    "django": "deployment#django",
    "airflow": "deployment#airflow",
    "faststream": "frameworks#faststream",
    "opentelemetry": "frameworks#opentelemetry",
    "systemd": "deployment#systemd",
    "prometheus": "metrics",
    "grafana": "metrics",
    "headers": "api-rows",
    "exactly once": "exactly-once",
    "macos": "platforms",
    "UNKNOWN_TOPIC_OR_PARTITION": "errors",
    "partition by key": "configuration",
}
_LANGUAGE = SearchEnglish({})


class Result(NamedTuple):
    """A line of the results.

    Attributes:
        page: Name, without ".html".
        place: Behind "#" in its address; "" for the page.
        score: Higher comes first.
        shown: Its title, or the name of an object.
    """

    page: str
    place: str
    score: float
    shown: str


def read_index(directory: Path) -> dict[str, Any]:
    """Return the search index of built pages."""
    text = (directory / "searchindex.js").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    return found


def search(index: Mapping[str, Any], query: str) -> list[Result]:
    """Return what is found, in the order in which the page shows it."""
    query = query.lower().strip()
    words = [word for word in re.findall(r"[\w]+", query) if not word.isdigit()]
    normal = [*_titles(index, query), *_entries(index, query, main=True)]
    for word in words:
        normal += _objects(index, word, words)
    normal += _texts(index, [_LANGUAGE.stem(word) for word in words if word not in _LANGUAGE.stopwords])
    ordered = sorted(normal, key=_order) + sorted(_entries(index, query, main=False), key=_order)
    found: dict[tuple[str, str, str], Result] = {}
    for result in ordered:
        found.setdefault((result.page, result.place, result.shown), result)
    return list(found.values())


def _order(result: Result) -> tuple[float, str]:
    return -result.score, result.shown.lower()


def _titles(index: Mapping[str, Any], query: str) -> Iterator[Result]:
    for title, places in index["alltitles"].items():
        if query in title.lower() and len(query) >= len(title) / 2:
            for page, place in places:
                top = index["titles"][page]
                shown = title if top == title else f"{top} > {title}"
                yield Result(
                    index["docnames"][page], place or "", round(15 * len(query) / len(title)) + (top == title), shown
                )


def _entries(index: Mapping[str, Any], query: str, main: bool) -> Iterator[Result]:
    for entry, places in index["indexentries"].items():
        if query in entry and len(query) >= len(entry) / 2:
            for page, place, is_main in places:
                if bool(is_main) == main:
                    yield Result(
                        index["docnames"][page], place, round(100 * len(query) / len(entry)), index["titles"][page]
                    )


def _objects(index: Mapping[str, Any], word: str, words: Iterable[str]) -> Iterator[Result]:
    for prefix, found in index["objects"].items():
        for page, kind, priority, anchor, name in found:
            full = f"{prefix}.{name}" if prefix else name
            last = full.lower().rpartition(".")[2]
            text = f"{prefix} {name} {index['objnames'][str(kind)][2]} {index['titles'][page]}".lower()
            if word not in full.lower() or any(other not in text for other in words if other != word):
                continue
            score = 11 if word in (last, full.lower()) else 6 if word in last else 0
            place = {"": full, "-": f"{index['objnames'][str(kind)][1]}-{full}"}.get(anchor, anchor)
            yield Result(index["docnames"][page], place, score + {0: 15, 1: 5, 2: -5}.get(priority, 0), full)


def _texts(index: Mapping[str, Any], words: list[str]) -> Iterator[Result]:
    scores: dict[int, dict[str, int]] = {}
    for word in words:
        for name, exact, partial in (("terms", 5, 2), ("titleterms", 15, 7)):
            terms = index[name]
            found = [(exact, terms[word])] if word in terms else []
            if not found and len(word) > 2:
                found = [(partial, pages) for term, pages in terms.items() if word in term]
            for score, pages in found:
                for page in [pages] if isinstance(pages, int) else pages:
                    scores.setdefault(page, {})[word] = score
    for page, of_word in scores.items():
        if len(of_word) in (len(words), sum(len(word) > 2 for word in words)):
            yield Result(index["docnames"][page], "", max(of_word.values()), index["titles"][page])


def missing(index: Mapping[str, Any], searches: Mapping[str, str]) -> Iterator[str]:
    """Yield the searches that do not lead to their page, with what they lead to."""
    for query, wanted in searches.items():
        first = [f"{result.page}#{result.place}" for result in search(index, query)[:FIRST]]
        if not any(place == wanted or ("#" not in wanted and place.startswith(f"{wanted}#")) for place in first):
            yield f"{query!r} does not lead to {wanted}, but to {', '.join(first) or 'nothing'}"


def main() -> int:
    """Search and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages.search", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="of the built pages")
    parser.add_argument("words", nargs="*", help="a search")
    options = parser.parse_args()
    index = read_index(options.directory)
    if options.words:
        for result in search(index, " ".join(options.words))[:10]:
            print(f"{result.score:4.0f} {result.page}#{result.place}  {result.shown}")
        return 0
    wrong = list(missing(index, SEARCHES))
    print("\n".join([*wrong, f"{len(SEARCHES)} searches: {len(wrong)} do not lead to their page"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
