"""What the page of a load says of the load itself, so that it can be filed as a proof: when, where, by what."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from kafkaprod import __version__
from kafkaprod.admin.client import ClusterClient
from kafkaprod.cli.producer_arguments import make_config, read_options


def proof_of(options: argparse.Namespace, client: ClusterClient) -> dict[str, str]:
    """Return the lines by name, of a load that begins now; no secret is among them.

    Raises:
        KafkaError: The cluster does not answer.
    """
    config = make_config(read_options(options, compression_type=options.codec))
    cluster = client.metadata([options.topic])
    lines = {
        "begun": _now(),
        "kafkaprod": __version__,
        "cluster": cluster.cluster_id or "",
        "topic id": str(cluster.topics[0].topic_id or ""),
        "write id": options.write_id or "",
        "transactional id": config.transactional_id or options.transactional_id or "",
        "expected rows": "" if options.expect_rows is None else f"{options.expect_rows:,}",
        "expected bytes": "" if options.expect_bytes is None else f"{options.expect_bytes:,}",
        "expected SHA-256": options.expect_sha256 or "",
        "producer": repr(config),
    }
    return {name: text for name, text in lines.items() if text}


def ended(proof: dict[str, str]) -> dict[str, str]:
    """Return the lines of a load that ends now."""
    return {"begun": proof["begun"], "ended": _now()} | proof


def _now() -> str:
    return datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
