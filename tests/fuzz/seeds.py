"""Write the seeds of the corpus: small batches of every codec and kind. `python -m tests.fuzz.seeds`."""

from __future__ import annotations

from pathlib import Path

from kafkaprod.compression import make_codec
from tests.core_model import ModelRecord, encode_batch, encode_record

CORPUS = Path(__file__).parent / "corpus"
RECORDS = [
    ModelRecord(b"k", b"v"),
    ModelRecord(None, None, (("h", None), ("h2", b"x" * 70))),
    ModelRecord(b"", b"y" * 100, (), 1_700_000_000_300),
]


def main() -> None:
    """Write one file per seed."""
    CORPUS.mkdir(exist_ok=True)
    plain = b"".join(encode_record(r, r.timestamp - RECORDS[0].timestamp, i) for i, r in enumerate(RECORDS))
    seeds = {
        "plain": encode_batch(RECORDS),
        "numbered": encode_batch(RECORDS, 4000, 1, 7),
        "append-time": encode_batch(RECORDS, attributes=0x08),
        "two": encode_batch(RECORDS) + encode_batch(RECORDS[:1]),
        "control": encode_batch([ModelRecord(b"\x00\x00\x00\x01", bytes(6))], 4000, 1, -1, attributes=0x30),
    }
    for name in ("gzip", "snappy", "lz4", "zstd"):
        codec = make_codec(name)
        assert codec is not None
        seeds[name] = encode_batch(RECORDS, attributes=codec.codec_id, payload=codec.compress([plain]))
    for name, batch in seeds.items():
        (CORPUS / name).write_bytes(batch)


if __name__ == "__main__":
    main()
