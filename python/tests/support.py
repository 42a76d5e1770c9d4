"""What the tests of coppice_llm share.

    PYTHONPATH=python COPPICE_LIBRARY=build/libcoppice.so python3 -m unittest discover python/tests

COPPICE_PROGRAM names the program for comparisons; without it the library's own is used in another process.
"""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

from coppice_llm import LLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINI = ROOT / "models/coppice-mini-f16.gguf"
SMOL = ROOT / "models/fetched/SmolLM2-135M-Instruct.Q4_1.gguf"
DOCUMENT = (ROOT / "models/demo-document.txt").read_text(encoding="utf-8")
MESSAGES = [{"role": "user", "content": "Name a town."}]
PROMPT = "One day a fox went to the river. "
LONG = "The mill stood by the water, and nobody had a key. " * 40

needs_smol = unittest.skipUnless(SMOL.is_file(), f"{SMOL.name} was not fetched (make models)")


def mini(**options):
    return LLM(MINI, **{"ctx": 4096, "cache_ram": 256, "packed_ram": 0, **options})


def program(*arguments):
    """What the program writes to stdout."""
    named = os.environ.get("COPPICE_PROGRAM")
    line = [named] if named else [sys.executable, "-m", "coppice_llm"]
    return subprocess.run([*line, *map(str, arguments)], check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout.decode()


def python(code, *arguments, env=None):
    """A process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def post(server, path, body, key=None):
    """The status and the JSON of a request over HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {key}"} if key else {})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


class ModelCase(unittest.TestCase):
    """Tests of one model, which is loaded once."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.llm = mini(**cls.options)
        cls.addClassCleanup(cls.llm.close)

    def idle(self):
        """Whether no slot computes, soon: a cancelled request ends within a tile."""
        for _ in range(1200):
            if not any(slot["is_processing"] for slot in self.llm._get("/slots")):
                return True
            time.sleep(0.05)
        return False
