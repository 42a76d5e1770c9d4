"""Files of the Hugging Face hub, and whether what lies on the disk is what was published.

The cache of huggingface_hub names a file by its checksum: the SHA-256 of a large file, Git's SHA-1 of a small one. A
download that was cut off, a disk that lost a bit, or a file that somebody changed does not have that sum.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import time
from typing import Any

from ._progress import ProgressOption, closed, reporter
from .errors import InvalidRequest, ModelError

PIECE = 4 << 20  # bytes that are read at once: Ctrl-C is noticed between two pieces
KINDS = {64: "SHA-256", 40: "Git SHA-1"}


def file_of(repo: str | os.PathLike[str], file: str | None, sha256: str | None, progress: ProgressOption) -> pathlib.Path:
    """The path of a model: of a local folder, or of the hub. What came from the hub, or has a `sha256`, is checked."""
    expected = _given(sha256, file)
    folder = pathlib.Path(repo)
    if folder.is_dir():
        path = folder / file if file else folder
        if expected:
            check(path, expected, "sha256=", progress)
        return path
    try:
        import huggingface_hub
    except ImportError as error:
        raise ModelError(f"{repo}: is no local folder, and the package huggingface_hub is not installed; "
                         "pip install huggingface_hub", param="repo") from error
    if not file:
        path = pathlib.Path(huggingface_hub.snapshot_download(os.fspath(repo)))
        for part in sorted(path.rglob("*")):
            published = _published(huggingface_hub, None, part)
            if published and part.is_file():
                check(part, published, "the hub", progress)
        return path
    path = pathlib.Path(huggingface_hub.hf_hub_download(os.fspath(repo), file))
    published = _published(huggingface_hub, (os.fspath(repo), file), path)
    if published and published != expected:
        check(path, published, "the hub", progress)
    if expected:
        check(path, expected, "sha256=", progress)
    return path


def _given(sha256: str | None, file: str | None) -> str | None:
    if sha256 is None:
        return None
    found = re.fullmatch(r"(?:sha256:)?([0-9a-fA-F]{64})", sha256.strip()) if isinstance(sha256, str) else None
    if not found:
        raise InvalidRequest(f"sha256: {sha256!r} is no SHA-256, which has 64 hexadecimal digits", param="sha256")
    if not file:
        raise InvalidRequest("sha256: is the checksum of one file, and no file is named: give file= as well", param="sha256")
    return found.group(1).lower()


def _published(hub: Any, named: tuple[str, str] | None, path: pathlib.Path) -> str | None:
    """The checksum under which the hub has a file; None where neither the cache nor the hub tells."""
    name = os.path.basename(os.path.realpath(path))
    if _is_sum(name):
        return name
    if named is None:
        return None
    # A cache without symbolic links, as huggingface_hub makes it on file systems that have none.
    try:
        etag = hub.get_hf_file_metadata(hub.hf_hub_url(*named)).etag
    except Exception:  # no network, or HF_HUB_OFFLINE: whatever its HTTP library raises
        return None
    return etag if _is_sum(etag) else None


def _is_sum(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def check(path: pathlib.Path, expected: str, source: str, progress: ProgressOption = None) -> None:
    """Raises ModelError if a file does not have its checksum. A file that had it and did not change is not read again."""
    kind = KINDS[len(expected)]
    try:
        mark = _mark(path)
        stamp = _stamp(expected)
        if _read(stamp) == mark:
            return
        found = _sum(path, len(expected), reporter(True, "checksum", "B") if progress is True else None)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}", param="file") from error
    if found != expected:
        raise ModelError(f"{path}: its {kind} is {found}, but {source} says {expected}: the file is damaged, incomplete or "
                         f"another one; delete {os.path.realpath(path)}, and fetch it anew",
                         param="sha256" if source == "sha256=" else "file")
    _write(stamp, mark)


def _sum(path: pathlib.Path, digits: int, report: Any) -> str:
    size, done, began = path.stat().st_size, 0, time.monotonic()
    digest = hashlib.sha256() if digits == 64 else hashlib.sha1(b"blob %d\0" % size)
    try:
        with path.open("rb") as file:
            while data := file.read(PIECE):
                digest.update(data)
                done += len(data)
                if report:
                    report(done, size, (time.monotonic() - began) * (size - done) / done)
    finally:
        closed(report)
    return digest.hexdigest()


def _mark(path: pathlib.Path) -> list[Any]:
    """What changes when a file does: `ctime` cannot be set back by a program."""
    found = os.stat(path)
    return [os.path.realpath(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _stamp(expected: str) -> pathlib.Path:
    """Not in the hub's cache, which may be another user's, and which its own tools scan."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache, "coppice", "checked", expected)


def _read(stamp: pathlib.Path) -> Any:
    try:
        return json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(stamp: pathlib.Path, mark: list[Any]) -> None:
    """A folder that cannot be written means that the next load checks again."""
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        part = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        part.write_text(json.dumps(mark), encoding="utf-8")
        os.replace(part, stamp)
    except OSError:
        pass
