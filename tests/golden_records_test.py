"""What people and programs see, held to text files: help texts, specs of methods, replies of every route.

    golden_records_test.py PROGRAM SOURCE_DIR [--write] [unittest arguments]

A change that should change nothing changes no file of tests/golden. One that should is seen in their diff: --write writes them
anew. The server computes with plain fp32 loops, so that the answers are those of any machine; what differs from run to run (ids,
times) is replaced by its kind.
"""

import difflib
import json
import pathlib
import re
import subprocess
import sys
import unittest

WRITE = "--write" in sys.argv
if WRITE:
    sys.argv.remove("--write")

from golden_requests import ALONE, WITH_KEYS  # noqa: E402
from server_support import Server  # noqa: E402

PROGRAM = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
GOLDEN = SOURCE / "tests/golden"
MODEL = SOURCE / "models/coppice-mini-f16.gguf"
SHAPES = ("llama-3.2-1b", "qwen2.5-7b", "gemma-3-270m", "bloom-7b")
LENGTHS = (4096, 8192)


def run(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError((arguments, done.stderr.decode()))
    return done.stdout.decode()


class Masks:
    """Replaces what differs from run to run; the same id is the same text again."""

    def __init__(self):
        self.ids = {}

    def text(self, text):
        def number(match):
            return self.ids.setdefault(match[0], f"{match[1]}{match[2]}<{len(self.ids)}>")
        text = re.sub(r"\b(chatcmpl|cmpl|msg|resp|req|call|fc|rs|reasoning|embd|toolu)([-_])[0-9A-Za-z]{8,}", number, text)
        return text.replace(str(SOURCE), "<source>")

    def value(self, value, key=""):
        if isinstance(value, dict):
            return {self.text(name): self.value(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.value(one, key) for one in value]
        if isinstance(value, str):
            return "<build>" if key in ("build_info", "system_fingerprint", "version", "commit", "build", "compiler", "isa") else self.text(value)
        if isinstance(value, bool) or value is None:
            return value
        if re.search(r"created|completed_at|_ms$|_per_second|seconds", key):
            return f"<{type(value).__name__}>"
        return round(value, 2) if isinstance(value, float) else value

    def body(self, kind, text):
        if "json" in kind:
            return json.dumps(self.value(json.loads(text)), indent=1, ensure_ascii=False).split("\n")
        if "event-stream" in kind:
            return [self.event(line) for line in text.split("\n") if line]
        if "text/plain" in kind:  # metrics: the names, and what each is
            return sorted({re.sub(r"^([^#\s]+) .*", r"\1 <number>", line) for line in text.split("\n") if line})
        return [f"<{kind}>"]

    def event(self, line):
        name, _, content = line.partition(": ")
        return f"{name}: " + json.dumps(self.value(json.loads(content)), ensure_ascii=False) if content.startswith("{") else line


def transcript(server, requests):
    """Requests and replies, in their order."""
    masks = Masks()
    lines = []
    for method, path, *rest in requests:
        body, headers = (*rest, None, None)[:2]
        lines += [f"> {method} {path}" + (f" {json.dumps(headers)}" if headers else "")]
        if body is not None:
            lines.append("> " + (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)))
        with server.connection(60) as connection:
            data = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            text = reply.read().decode()
            kind = reply.getheader("Content-Type", "")
            kept = [f"{name}: {reply.getheader(name)}" for name in ("WWW-Authenticate", "Allow", "Retry-After") if reply.getheader(name)]
        lines += ["< " + line for line in [f"{reply.status} {kind}", *kept, *(masks.body(kind, text) if text else [])]] + [""]
    return "\n".join(lines)


class Records(unittest.TestCase):
    maxDiff = None

    def hold(self, name, text):
        path = GOLDEN / name
        if WRITE:
            GOLDEN.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        golden = path.read_text(encoding="utf-8")
        if text != golden:
            lines = difflib.unified_diff(golden.split("\n"), text.split("\n"), str(path), "now", lineterm="", n=1)
            self.fail("\n".join([*lines][:60]) + "\ngolden_records_test.py PROGRAM SOURCE_DIR --write writes the files anew")

    def test_help(self):
        names = re.findall(r"^  (\w+) {2,}", run("--help").split("Subcommands:")[1], re.MULTILINE)
        self.assertIn("serve", names)
        texts = [run("--help"), *(run(name, "--help") for name in names if name != "train"), run("methods")]
        self.hold("help.txt", re.sub(r" \(built [^()]*\)", "", "\n".join(texts)))

    def test_specs(self):
        """Every method's whole spec and account, by shape and length: closed forms, with random scores."""
        methods = re.findall(r"^([a-z0-9]+): ", run("methods"), re.MULTILINE)
        lines = []
        for shape in SHAPES:
            for method in methods:
                command = ["bench", "--dry-run", "--backend", "reference", "--shape", shape, "-p", ",".join(map(str, LENGTHS)), "-o", "json", "--prune", method]
                done = subprocess.run([PROGRAM, *command], capture_output=True, stdin=subprocess.DEVNULL)
                if done.returncode != 0:
                    lines.append(f"{shape} {method}: {done.stderr.decode().strip()}")
                    continue
                for row in json.loads(done.stdout):
                    if row["prune"] == "none" and method != methods[0]:
                        continue
                    lines.append(f"{shape}, {row['prompt']} tokens: {row['prune']}")
                    lines += [f"  {key}: {value}" for key, value in row.items() if key not in ("model", "prompt", "prune")]
        self.hold("specs.txt", "\n".join(lines) + "\n")

    def test_replies(self):
        server = Server(PROGRAM, MODEL, "--backend", "reference", "-c", "2048", "-np", "2", "-t", "1", "--temp", "0", "--no-next-turn",
                        "--alias", "mini").wait_ready()
        try:
            self.hold("http.txt", transcript(server, ALONE))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_replies_with_keys(self):
        server = Server(PROGRAM, MODEL, "--backend", "reference", "-c", "2048", "-t", "1", "--temp", "0", "--api-key", "one,two",
                        "--no-next-turn", "--alias", "mini").wait_ready()
        try:
            self.hold("http-keys.txt", transcript(server, WITH_KEYS))
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
