"""What the tests of `coppice serve` share: the program and the tree that the command line names, and a server per class.

    A_TEST.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # what the rooms share
from server_support import Server  # noqa: E402

PROGRAM = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1))
MODEL = SOURCE / "models/coppice-mini-f16.gguf"
PROMPT_2K = (SOURCE / "tests/data/prompt-2k.txt").read_text()
ANSWER_2K = (SOURCE / "tests/data/prompt-2k.answer").read_text().strip()
GREEDY = {"temperature": 0}
LONG = 16000  # tokens of a prompt that takes seconds
CTX = "20000"
LAYERS = 10


def run_json(*args):
    done = subprocess.run([PROGRAM, "run", "-m", str(MODEL), "--json", "--temp", "0", *args], capture_output=True,
                          stdin=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)


class Case(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        # Without the document cache (server_cache_test.py), so that every prompt takes its time.
        cls.server = Server(PROGRAM, MODEL, "-c", CTX, "--cache-ram", "0", *cls.options).wait_ready()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, code

    def setUp(self):
        self.server.wait_idle()

    def refused(self, path, body, status=400, param=None, kind=None, **kwargs):
        got, _, reply = self.server.ask(path, body, **kwargs)
        self.assertEqual(got, status, reply)
        error = reply["error"]
        self.assertIn(error["code"], (status, "context_length_exceeded"))
        if param is not None:
            self.assertEqual(error["param"], param, error)
            self.assertIn(param.split(".")[0], error["message"])
        if kind is not None:
            self.assertEqual(error["type"], kind)
        return error
