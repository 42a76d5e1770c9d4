"""`coppice serve` killed without warning while it saves a document, writes its folder, or reads a document back.

    server_kill_test.py PROGRAM SOURCE_DIR [ROUNDS [unittest arguments]]

After each kill another server starts over the same folders. A document there is whole and gives the answer of a fresh run, or
is not used; and nothing unfinished stays. Each test counts the kills that fell into the work, and fails where none did.
"""

import math
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
import unittest

from server_case import CTX, MODEL, PROGRAM, PROMPT_2K
from server_support import Server, readable

ROUNDS = int(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1].isdigit() else 6
SLIMINFER = "sliminfer:layers=4/6/8,keep=512/256/128,min=0"
SEED = random.randrange(1 << 32)


def unfinished(folder):
    return sorted(p.name for p in pathlib.Path(folder).glob("*.part"))


def is_open(pid, folder):
    """Whether a process has a file of the folder open."""
    links = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:  # closed meanwhile
            pass
    return any(link.startswith(f"{folder}/") for link in links)


class Killed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.choose = random.Random(SEED)
        home = tempfile.TemporaryDirectory()
        cls.addClassCleanup(home.cleanup)
        cls.home = pathlib.Path(home.name).resolve()
        cls.slots = cls.home / "slots"
        cls.slots.mkdir()
        server = cls.start()
        ids = server.good("/tokenize", {"content": PROMPT_2K})["tokens"]
        cls.documents = {"a": (ids * 2)[:3000], "b": (ids[500:] * 2)[:3100]}
        first, cls.question = [server.good("/tokenize", {"content": t})["tokens"] for t in ["\nWho is it?", "\nWhat is the secret code?"]]
        shared = len(os.path.commonprefix([first, cls.question]))
        cls.known = {name: len(document) + shared for name, document in cls.documents.items()}  # tokens of the second question
        cls.fresh, cls.saved, bytes_of = {}, {}, {}
        for name, document in cls.documents.items():
            cls.fresh[name] = cls.ask(server, name, cache_prompt=False)
            server.good("/v1/completions", {"prompt": document + first, "max_tokens": 1, "prune": SLIMINFER})
            start = time.monotonic()
            saved = server.good("/slots/0?action=save", {"filename": name})
            cls.seconds = time.monotonic() - start  # that a save takes
            cls.saved[name], bytes_of[name] = saved["n_saved"], saved["n_written"]
        assert cls.saved["a"] != cls.saved["b"], "the test could not tell them apart"
        cls.one_fits = str(math.ceil(max(bytes_of.values()) / (1 << 20)))  # MiB in which two do not
        assert sum(bytes_of.values()) > int(cls.one_fits) << 20, bytes_of
        assert server.stop() == 0

    @classmethod
    def start(cls, *options):
        return Server(PROGRAM, MODEL, "-c", CTX, "-np", "1", "--slot-save-path", str(cls.slots), *options).wait_ready()

    def begin(self, *options):
        server = self.start(*options)
        self.addCleanup(lambda: (server.process.kill(), server.process.wait()))  # where the test fails
        return server

    @classmethod
    def ask(cls, server, name, **fields):
        return server.good("/v1/completions", {"prompt": cls.documents[name] + cls.question, "max_tokens": 4, "temperature": 0,
                                               "logprobs": 2, "ignore_eos": True, "prune": SLIMINFER, **fields})

    def restore(self, server, name):
        reply = server.good("/slots/0?action=restore", {"filename": name})
        self.assertEqual(reply["n_restored"], self.saved[name], f"{name} is not whole")

    def check(self, server, name, cached):
        """The answer of a fresh run, with or without what was kept."""
        reply = self.ask(server, name)
        taken = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(taken, self.known[name] if cached else 0, f"tokens of document {name} from the cache")
        for key in ["choices", "prune"]:
            if key == "choices" or not cached:  # the account is of what was computed
                self.assertEqual(reply[key], self.fresh[name][key], f"document {name}, {taken} tokens from the cache")

    def end(self, server):
        self.assertEqual(server.stop(), 0)

    def wait(self, server, began, plain=None):
        """Until something has begun and a random part of a save's time has passed, or until it is over."""
        deadline = time.monotonic() + 60
        while not began() and server.process.poll() is None and not (plain and readable(plain, 0)):
            self.assertLess(time.monotonic(), deadline, "it neither begins nor ends")
        if self.choose.random() < 0.6:  # the others at once
            time.sleep(self.choose.random() * self.seconds)

    def kill(self, server, plain=None):
        code = server.stop(signal.SIGKILL)
        self.assertIn(code, (-signal.SIGKILL, 0), "it ended by itself, and badly")
        if plain:
            plain.close()

    def some(self, hits, what, rounds=ROUNDS):
        print(f"{what}: {hits} of {rounds} kills fell into it", file=sys.stderr)
        self.assertGreater(hits, 0, f"no kill fell into {what}: nothing was tested (seed {SEED})")

    def test_while_a_slot_is_saved(self):
        report = self.slots / "report"
        there, hits = None, 0
        for number in range(ROUNDS):
            name = "ab"[number % 2]
            if number % 4 == 0:  # else over what the last rounds left
                report.unlink(missing_ok=True)
                there = None
            server = self.begin()
            self.restore(server, name)
            self.check(server, name, True)  # now the slot's prompt is this one
            plain = server.send_only("/slots/0?action=save", {"filename": "report"})
            self.wait(server, lambda: unfinished(self.slots), plain)
            self.kill(server, plain)
            hits += len(unfinished(self.slots))
            server = self.begin()
            self.assertEqual(unfinished(self.slots), [], "left behind")
            if there is None and not report.exists():
                status, _, reply = server.ask("/slots/0?action=restore", {"filename": "report"})
                self.assertEqual(status, 400, reply)
                self.assertRegex(reply["error"]["message"], r"\A.*report: cannot open: .*\Z")
            else:
                restored = server.good("/slots/0?action=restore", {"filename": "report"})["n_restored"]
                found = {tokens: name for name, tokens in self.saved.items()}.get(restored)
                self.assertIn(found, {name, there} - {None}, f"{restored} tokens: neither the old document nor the new one")
                self.check(server, found, True)
                there = found
            self.end(server)
        self.some(hits, "a save")

    def test_while_the_folder_is_written(self):
        hits = 0
        for number in range(ROUNDS):
            with tempfile.TemporaryDirectory(dir=self.home) as folder:
                options = "--doc-cache", folder, "--cache-ram", self.one_fits
                server, plain = self.begin(*options), None
                self.restore(server, "a")
                if number % 2 == 0:  # "a" makes room, by a thread of its own
                    plain = server.send_only("/slots/0?action=restore", {"filename": "b"})
                    self.wait(server, lambda: os.listdir(folder))
                else:  # what is in memory is written when the server ends
                    server.process.terminate()
                    self.wait(server, lambda: unfinished(folder))
                self.kill(server, plain)
                hits += len(unfinished(folder))
                server = self.begin(*options)
                self.assertEqual(unfinished(folder), [], "left behind")
                whole = server.metrics()["coppice_documents"]
                self.assertEqual(whole, len(os.listdir(folder)))
                self.check(server, "a", whole == 1)
                self.end(server)
        self.some(hits, "writing the folder")

    def test_while_a_read_is_completed(self):
        hits, rounds = 0, (ROUNDS + 1) // 2  # each takes as long as three of the others
        document = (self.documents["a"] * 4)[:12000]
        ask = {"prompt": document + self.question, "max_tokens": 4, "temperature": 0, "logprobs": 2, "ignore_eos": True}
        server = self.begin()
        fresh = {prune: server.good("/v1/completions", {**ask, "prune": prune, "cache_prompt": False})["choices"]
                 for prune in [SLIMINFER, "none"]}
        self.end(server)
        for number in range(rounds):
            with tempfile.TemporaryDirectory(dir=self.home) as folder:
                options = "--doc-cache", folder, "--complete", "--prune", SLIMINFER
                server = self.begin(*options)
                self.assertEqual(server.good("/v1/completions", ask)["choices"], fresh[SLIMINFER])
                completing = lambda: any(slot.get("is_completing") for slot in server.slots())
                server.wait_for(completing, 600)
                time.sleep(self.choose.random() * (0.5 if number % 2 else 4))
                hits += completing()
                server.process.send_signal(signal.SIGSTOP)  # so that what is seen now is what it dies of
                os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
                before = {name.name for name in pathlib.Path(folder).iterdir() if name.suffix != ".part"}
                self.kill(server)
                server = self.begin(*options)
                self.assertEqual(unfinished(folder), [], "left behind")
                self.assertEqual({name.name for name in pathlib.Path(folder).iterdir()}, before, "something whole is lost")
                reply = server.good("/v1/completions", ask)
                self.assertEqual(reply["choices"], fresh[SLIMINFER if reply["prune"]["active"] else "none"])
                self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, bool(before))
                if reply["prune"]["active"]:
                    server.wait_for(lambda: server.metrics()["coppice_documents_completed_total"] == 1, 600)
                self.assertEqual(server.good("/v1/completions", ask)["choices"], fresh["none"])
                self.end(server)
        self.some(hits, "completing a read", rounds)

    def test_while_a_document_is_read(self):
        folder = self.home / "documents"
        options = "--doc-cache", str(folder)
        server = self.begin(*options)
        self.restore(server, "a")
        self.end(server)  # and now it lies in the folder as well
        files = [*folder.iterdir(), self.slots / "a"]
        self.assertEqual(len(files), 2)
        before = [file.read_bytes() for file in files]
        hits = 0
        for number in range(ROUNDS):
            if number % 2 == 0:
                server = self.begin()
                plain = server.send_only("/slots/0?action=restore", {"filename": "a"})
                place = self.slots
            else:
                server = self.begin(*options)
                plain = server.send_only("/v1/completions", {"prompt": self.documents["a"] + self.question, "prune": SLIMINFER})
                place = folder
            self.wait(server, lambda: is_open(server.process.pid, place), plain)
            server.process.send_signal(signal.SIGSTOP)  # so that what is seen now is what it dies of
            os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
            hits += is_open(server.process.pid, place)
            self.kill(server, plain)
            self.assertEqual([file.read_bytes() == data for file, data in zip(files, before)], [True, True], files)
            server = self.begin(*(options if number % 2 else ()))
            if number % 2 == 0:
                self.restore(server, "a")
            self.check(server, "a", True)
            self.end(server)
        self.assertEqual(len(list(folder.iterdir())), 1)
        self.some(hits, "reading")


if __name__ == "__main__":
    unittest.main()
