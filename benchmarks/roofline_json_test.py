"""The roofline program from outside: roofline_json_test.py PROGRAM"""

import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


def run(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, timeout=120)


class Roofline(unittest.TestCase):
    def test_json(self):
        done = run("--rounds", "2", "--threads", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual((out["rounds"], out["threads"]), (2, 2))
        self.assertEqual(set(out["gigabytes_per_second"]), {"read", "triad", "triad_non_temporal"})
        for group in ["gigaops_per_second", "gigabytes_per_second"]:
            for name, by_threads in out[group].items():
                self.assertEqual(set(by_threads), {"1", "2"}, name)
                for spread in by_threads.values():
                    self.assertTrue(0 < spread["min"] <= spread["median"] <= spread["max"], name)

    def test_without_memory(self):
        out = json.loads(run("--rounds", "1", "--threads", "1", "--no-memory").stdout)
        self.assertEqual(out["gigabytes_per_second"], {})
        self.assertTrue(out["gigaops_per_second"])

    def test_wrong_usage(self):
        for args in [["--rounds", "0"], ["--rounds", "x"], ["--threads"], ["walk"]]:
            done = run(*args)
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertIn(args[0].encode(), done.stderr)


if __name__ == "__main__":
    unittest.main()
