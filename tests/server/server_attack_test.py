"""server_attack_test.py PROGRAM ROOT: tools/attack_server.py against a server with two keys, and one with none."""

import pathlib
import sys
import time
import unittest

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import attack_server  # noqa: E402
from server_support import Server  # noqa: E402


class Attacks(unittest.TestCase):
    def attack(self, keys, *options):
        server = Server(PROGRAM, ROOT / "models/coppice-mini-f16.gguf", *options).wait_ready()
        lines = []
        try:
            self.assertEqual(attack_server.run(attack_server.Target(server.host, server.port, keys), lines.append), 0, "\n".join(lines))
            return [line for line in lines if "skipped" in line]
        finally:
            self.assertEqual(server.stop(), 0)

    def test_with_keys(self):
        self.assertLessEqual(len(self.attack(["first", "second"], "--api-key", "first,second")), 2)

    def test_without_keys(self):
        self.assertLessEqual(len(self.attack([])), 4)

    def test_a_server_that_does_not_hold(self):
        """An attack that finds nothing must be able to."""
        class Careless(attack_server.Target):
            def ask(self, path, body=None, **more):
                if isinstance(body, dict) and body.get("prompt", "").startswith("b"):
                    time.sleep(0.02)  # it takes its time for what nobody has sent
                if isinstance(body, dict) and "{100000}" in body.get("grammar", ""):
                    return 500, {}
                return 200, {"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}, "eos_token": "</s>",
                             "chat_template": "x"}

            def open(self, *arguments, **more):
                raise ConnectionRefusedError

            def raw(self, data):
                return b"HTTP/1.1 200 OK\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n{\"tokenizer_class\":1}"

        for keys, skipped in ((["a", "b"], 1), ([], 3)):
            self.assertEqual(attack_server.run(Careless("localhost", 1, keys), lambda line: None), len(attack_server.ATTACKS) - skipped)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
