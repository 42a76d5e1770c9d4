"""The text that the model is trained on and tested on: books in the public domain, out of Debian packages.

    r-cran-janeaustenr               Jane Austen's six novels (1811 to 1818)                       training
    golang-github-pierrec-lz4-dev    Arthur Conan Doyle, The Adventures of Sherlock Holmes (1892)  training
                                     Mark Twain, The Adventures of Tom Sawyer (1876)               testing
    dict-devil                       Ambrose Bierce, The Devil's Dictionary (1911)                 training
    golang-github-andybalholm-brotli-dev  Isaac Newton, Opticks (1730)                             testing

All authors died before 1931 and all copyrights have expired. The packages are fetched with `apt-get download` and unpacked
beside each other; nothing is installed. Only paragraphs of plain ASCII prose are used.
"""

import gzip
import pathlib
import re
import struct
import subprocess
import sys
import zlib

PACKAGES = ["r-cran-janeaustenr", "golang-github-pierrec-lz4-dev", "dict-devil", "golang-github-andybalholm-brotli-dev"]
GO = "usr/share/gocode/src/github.com"
AUSTEN = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
DOYLE = f"{GO}/pierrec/lz4/testdata/pg1661.txt"
TWAIN = f"{GO}/pierrec/lz4/testdata/Mark.Twain-Tom.Sawyer.txt"
BIERCE = "usr/share/dictd/devil.dict.dz"
NEWTON = f"{GO}/andybalholm/brotli/testdata/Isaac.Newton-Opticks.txt"


def fetch(folder: pathlib.Path) -> None:
    """Downloads and unpacks what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not list(folder.glob(f"{package}_*.deb")):
            if subprocess.run(["apt-get", "download", package], cwd=folder).returncode != 0:
                sys.exit(f"{package}: not to be had from this machine's Debian mirror; put its .deb into {folder}")
        for deb in folder.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg-deb", "-x", deb.name, "root"], cwd=folder, check=True)


def r_strings(blob: bytes) -> list[str]:
    """The strings of a serialized R object, in order: each is a CHARSXP, type 9, with its length and bytes (R Internals,
    section 1.8, XDR form). Sizes, flags and what else the object holds are of no interest here."""
    found = []
    at = 0
    while (at := blob.find(b"\x00\x09", at)) >= 0:
        head = at - 2  # 32 bits of flags, big end first, the type in the last byte
        if head >= 0 and at + 6 <= len(blob):
            length = struct.unpack(">i", blob[at + 2:at + 6])[0]
            if 0 <= length <= len(blob) - at - 6:
                text = blob[at + 6:at + 6 + length]
                if text.isascii():
                    found.append(text.decode("ascii"))
                at += 6 + length
                continue
        at += 1
    return found


def austen(raw: bytes) -> str:
    """The lines of the novels. The file is a row of chunks: length of the content, and zlib data."""
    lines = []
    at = 0
    while (at := raw.find(b"\x78", at)) >= 0:  # zlib's first byte
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(raw[at:])
        except zlib.error:
            at += 1
            continue
        if not stream.eof:
            at += 1
            continue
        strings = r_strings(content)
        if len(strings) > 1000:
            lines += strings + [""]
        at = len(raw) - len(stream.unused_data)
    return "\n".join(lines)


def paragraphs(raw: str) -> list[str]:
    """Prose: wrapped lines joined, emphasis marks taken out; headings, verse, tables and what is not ASCII left out."""
    found = []
    for block in re.split(r"\n\s*\n", raw.replace("\r", "")):
        text = re.sub(r"\s+", " ", re.sub(r"(?<=\w)-\n\s*", "-", block)).replace("_", "").strip()
        is_prose = text.isascii() and len(text) > 150 and not any(c in text for c in "|[*{}<>") and "Gutenberg" not in text
        if is_prose:
            found.append(re.sub(r"\s*--\s*", "--", text))
    return found


def books(folder: pathlib.Path) -> dict[str, list[str]]:
    """Paragraphs by book; `train` is what is learned from."""
    root = folder / "root"
    read = lambda path: (root / path).read_bytes().decode("latin-1")
    train = paragraphs(austen((root / AUSTEN).read_bytes())) + paragraphs(read(DOYLE))
    train += paragraphs(gzip.decompress((root / BIERCE).read_bytes()).decode("latin-1"))
    return {"train": train, "twain": paragraphs(read(TWAIN)), "newton": paragraphs(read(NEWTON))}
