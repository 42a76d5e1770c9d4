"""Where a model comes from, whether its file is the one that was published, and Ctrl-C while it loads."""

import hashlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

from coppice_llm import LLM, InvalidRequest, ModelError, _hub, _library
from support import MINI, python

MINI_SUM = hashlib.sha256(MINI.read_bytes()).hexdigest()
LOADS = """
import os, sys, tempfile, threading
from coppice_llm import LLM, _library

real, gate, closed = _library.Model, threading.Event(), []

class Slow(real):
    def __init__(self, options):
        super().__init__(options)
        print("loading", flush=True)
        gate.wait()

    def close(self):
        closed.append(self._handle)
        super().close()

_library.Model = Slow
try:
    LLM(sys.argv[1], ctx=256)
except KeyboardInterrupt:
    print("interrupted" if not gate.is_set() else "late")
gate.set()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
print("freed" if len(closed) == 1 and closed[0] else closed)
print(os.listdir(tempfile.gettempdir()))
_library.Model = real
with LLM(sys.argv[1], ctx=256) as llm:
    print(len(llm.generate("A", max_tokens=2, ignore_eos=True).token_ids))
"""


class Interrupt(unittest.TestCase):
    def test_ctrl_c_while_a_model_loads(self):
        """The caller gets it before the load has ended. What was loaded is freed then, and the next load works."""
        with tempfile.TemporaryDirectory() as folder:
            process = python(LOADS, MINI, env={"TMPDIR": folder})
            self.assertEqual(process.stdout.readline().strip(), b"loading")
            process.send_signal(signal.SIGINT)
            said, error = process.communicate(timeout=300)
            self.assertEqual(said.split(), [b"interrupted", b"freed", b"[]", b"2"], error)
            self.assertEqual(os.listdir(folder), [])

    def test_ctrl_c_while_the_thread_starts(self):
        """start() waits until the thread runs; the interrupt comes there, and here the model is in memory by then."""
        started, opened, closed = [], [], []

        class Counted(_library.Model):
            def __init__(self, options):
                super().__init__(options)
                opened.append(self)

            def close(self):
                super().close()
                closed.append(self)

        def start(thread, plain=threading.Thread.start):
            plain(thread)
            started.append(thread)
            thread.join()
            raise KeyboardInterrupt

        with mock.patch.object(_library, "Model", Counted), tempfile.TemporaryDirectory() as folder, \
                mock.patch("tempfile.tempdir", folder):
            with mock.patch("threading.Thread.start", start), self.assertRaises(KeyboardInterrupt):
                LLM(MINI, ctx=256)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual((len(started), len(opened)), (1, 1))
        self.assertEqual(closed, opened)


def stand_in(cache, published=None):
    """huggingface_hub with a cache of its layout: snapshots of links to blobs, which have their checksum as names."""
    hub = types.ModuleType("huggingface_hub")
    hub.asked = []

    def download(repo, file):
        hub.asked.append((repo, file))
        return str(cache / "snapshots/main" / file)

    def metadata(url):
        hub.asked.append(url)
        if published is None:
            raise ConnectionError("no network")
        return types.SimpleNamespace(etag=published)

    hub.hf_hub_download, hub.get_hf_file_metadata = download, metadata
    hub.hf_hub_url = lambda repo, file: f"{repo}/{file}"
    hub.snapshot_download = lambda repo: hub.asked.append(repo) or str(cache / "snapshots/main")
    return mock.patch.dict(sys.modules, {"huggingface_hub": hub})


class Pretrained(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "cache")}))
        self.repo = self.folder / "hub/models--some--repo"
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "snapshots/main").mkdir(parents=True)

    def blob(self, name, content, digest=None):
        """As a download leaves it; `digest` names the blob."""
        digest = digest or hashlib.sha256(content).hexdigest()
        (self.repo / "blobs" / digest).write_bytes(content)
        (self.repo / "snapshots/main" / name).symlink_to(f"../../blobs/{digest}")
        return self.repo / "blobs" / digest

    def load(self, file="model.gguf", **options):
        with LLM.from_pretrained("some/repo", file, **options) as llm:
            return llm.path

    def test_folder(self):
        with LLM.from_pretrained(MINI.parent, MINI.name, ctx=256) as llm:
            self.assertEqual(llm.path, MINI)

    def test_without_hub(self):
        with mock.patch.dict(sys.modules, {"huggingface_hub": None}):
            with self.assertRaisesRegex(ModelError, r"pip install huggingface_hub"):
                LLM.from_pretrained("some/repo", "model.gguf")

    def test_what_was_published_loads_and_is_read_for_its_checksum_once(self):
        blob = self.blob("model.gguf", MINI.read_bytes())
        with stand_in(self.repo), mock.patch.object(_hub, "_sum", wraps=_hub._sum) as read:
            self.assertEqual(self.load(ctx=256), self.repo / "snapshots/main/model.gguf")
            self.load(ctx=256)
            self.assertEqual(read.call_count, 1)
            self.assertEqual(sys.modules["huggingface_hub"].asked, [("some/repo", "model.gguf")] * 2, "the cache tells the checksum")
            os.utime(blob, (1, 1))
            self.load(ctx=256, sha256=MINI_SUM)
            self.assertEqual(read.call_count, 2, "the file changed")

    def test_a_damaged_download_is_refused_until_it_is_whole(self):
        content = bytearray(MINI.read_bytes())
        blob = self.blob("model.gguf", content, MINI_SUM)
        with stand_in(self.repo):
            self.load(ctx=256)  # and has its stamp
            content[-1] ^= 1
            blob.write_bytes(content)
            for _ in range(2):
                with self.assertRaises(ModelError) as caught:
                    self.load()
                for part in ("snapshots/main/model.gguf", MINI_SUM, hashlib.sha256(content).hexdigest(), f"delete {blob.resolve()}"):
                    self.assertIn(part, str(caught.exception))
            shutil.copyfile(MINI, blob)
            self.load(ctx=256)

    def test_a_checksum_of_the_caller(self):
        self.blob("model.gguf", MINI.read_bytes())
        other = "0" * 64
        with stand_in(self.repo):
            self.load(sha256="sha256:" + MINI_SUM.upper(), ctx=256)
            with self.assertRaisesRegex(ModelError, f"{MINI_SUM}, but sha256= says {other}") as caught:
                self.load(sha256=other)
            self.assertEqual(caught.exception.param, "sha256")
        with self.assertRaisesRegex(ModelError, f"{MINI_SUM}, but sha256= says {other}"):
            LLM.from_pretrained(MINI.parent, MINI.name, sha256=other)
        with self.assertRaisesRegex(ModelError, "nix.gguf: cannot be read: No such file"):
            LLM.from_pretrained(MINI.parent, "nix.gguf", sha256=other)
        for wrong in ("12", 7, other + "0"):
            with self.assertRaises(InvalidRequest) as refused:
                LLM.from_pretrained(MINI.parent, MINI.name, sha256=wrong)
            self.assertEqual(refused.exception.param, "sha256")
        with self.assertRaisesRegex(InvalidRequest, "no file is named"):
            LLM.from_pretrained(MINI.parent, sha256=other)

    def test_a_cache_without_links_asks_the_hub(self):
        file = self.repo / "snapshots/main/model.gguf"
        shutil.copyfile(MINI, file)
        for published in (MINI_SUM, None, '"strange"'):  # None: no network
            with stand_in(self.repo, published):
                self.load(ctx=256)
                self.assertIn("some/repo/model.gguf", sys.modules["huggingface_hub"].asked)
        with stand_in(self.repo, "0" * 64), self.assertRaisesRegex(ModelError, MINI_SUM):
            self.load()

    def test_a_whole_repository(self):
        """Small files have Git's checksum, which begins with their size."""
        config = b'{"architectures": ["Nix"]}\n'
        git = hashlib.sha1(b"blob %d\0" % len(config) + config).hexdigest()
        blob = self.blob("config.json", config, git)
        self.blob("model.safetensors", b"no tensors")
        with stand_in(self.repo):
            with self.assertRaisesRegex(ModelError, "snapshots/main") as caught:
                self.load(None)
            self.assertNotIn("SHA", str(caught.exception))  # the engine's own words
            blob.write_bytes(config[:-1])
            with self.assertRaisesRegex(ModelError, f"config.json: its Git SHA-1 is [0-9a-f]{{40}}, but the hub says {git}"):
                self.load(None)
            blob.write_bytes(config)
            (self.repo / "blobs" / hashlib.sha256(b"no tensors").hexdigest()).write_bytes(b"No tensors")
            with self.assertRaisesRegex(ModelError, "model.safetensors: its SHA-256 is"):
                self.load(None)

    def test_a_cache_that_cannot_be_written(self):
        self.blob("model.gguf", MINI.read_bytes())
        (self.folder / "cache").write_text("a file, where the folder would be")
        with stand_in(self.repo):
            self.load(ctx=256)
            self.load(ctx=256)

    def test_progress(self):
        self.blob("model.gguf", MINI.read_bytes())
        said = []
        with stand_in(self.repo), mock.patch.object(_hub, "PIECE", 1 << 20), \
                mock.patch.object(_hub, "reporter", lambda *words: said.append(words) or (lambda *what: said.append(what))):
            self.load(progress=True, ctx=256)
        self.assertEqual(said[0], (True, "checksum", "B"))
        size = MINI.stat().st_size
        self.assertEqual([(done, total) for done, total, _ in said[1:]],
                         [(min(end, size), size) for end in range(1 << 20, size + (1 << 20), 1 << 20)])


if __name__ == "__main__":
    unittest.main()
