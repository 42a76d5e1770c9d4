"""server_router_test.py PROGRAM SOURCE_DIR [VLLM_ROUTER]: two servers of one model behind packaging/vllm-router.sh, and behind
packaging/haproxy.cfg. Parts skip where vllm-router (tools/setup_router.sh) or HAProxy is absent.

Eight documents, four questions each: how many questions reach the server that holds the document, and what it takes from its
cache; then a server is killed, and comes back.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from server_support import Server, has_events  # noqa: E402

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
ROUTER = shutil.which(sys.argv[3] if len(sys.argv) > 3 else "vllm-router") or ""
HAPROXY = shutil.which("haproxy", path="/usr/sbin:" + os.environ["PATH"])
MODEL = ROOT / "models/coppice-mini-f16.gguf"
DOCUMENTS, QUESTIONS = 8, 4


def free_ports(count):
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


KEY = {"Authorization": "Bearer one-key"}  # of the servers; clients send it, and the router passes it on


def ask(port, prompt):
    """The reply, which must be a good one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        body = {"prompt": prompt, "model": "model", "max_tokens": 6, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **KEY})
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, (reply.status, text[:500])
        return json.loads(text)
    finally:
        connection.close()


def texts(seed, count):
    """Documents that differ from their first word on, each some 6 KB, more than HAProxy's 4 KiB."""
    numbers = random.Random(seed)
    words = sorted(set(re.findall(r"[a-z]+", (ROOT / "models/demo-prompt.txt").read_text())))
    return [" ".join(numbers.choices(words, k=1000)) for _ in range(count)]


def questions(documents):
    return [(d, f"{text}\nQuestion {q}: which word comes {q + 2} times?") for d, text in enumerate(documents) for q in range(QUESTIONS)]


class Replica:
    """A server at a fixed port, whose access log says which answers were its own."""

    def __init__(self, folder, name, events):
        self.port, self.events = free_ports(2)
        self.log = pathlib.Path(folder, f"{name}.log")
        self.options = ["-c", "8192", "--alias", "model", "--access-log", str(self.log), "--api-key", "one-key"]
        if events:
            self.options += ["--kv-events", f"tcp://127.0.0.1:{self.events}"]
        self.start()

    def start(self):
        self.server = Server(PROGRAM, MODEL, *self.options, port=self.port).wait_ready()

    def kill(self):
        self.server.stop(signal.SIGKILL)


class Behind(unittest.TestCase):
    events = False

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.documents, cls.later = texts(1, DOCUMENTS), texts(2, DOCUMENTS)
        alone = Server(PROGRAM, MODEL, "-c", "8192", "--no-cache-prompt").wait_ready()
        prompts = [prompt for _, prompt in questions(cls.documents + cls.later)]
        cls.expected = {prompt: ask(alone.port, prompt)["choices"][0]["text"] for prompt in prompts}
        alone.stop()

    def setUp(self):
        self.replicas = [Replica(self.folder.name, f"{self.id()}-{name}", self.events) for name in "ab"]
        self.addCleanup(lambda: [replica.server.stop(signal.SIGKILL) for replica in self.replicas])
        self.port = free_ports(1)[0]

    def start_front(self, command, **environment):
        log = open(pathlib.Path(self.folder.name, "front.log"), "w+b")
        self.addCleanup(log.close)
        front = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        self.addCleanup(front.wait)
        self.addCleanup(front.kill)
        for _ in range(300):
            with contextlib.suppress(ConnectionError, AssertionError, http.client.HTTPException):
                ask(self.port, "ready?")
                return
            self.assertIsNone(front.poll(), pathlib.Path(log.name).read_text())
            time.sleep(0.1)
        self.fail(pathlib.Path(log.name).read_text())

    def where(self, reply):
        """Which server's answer it is."""
        end = time.monotonic() + 5  # the line is written when the reply was sent
        while time.monotonic() < end:
            for at, replica in enumerate(self.replicas):
                if f"id={reply['id']} " in replica.log.read_text().replace("\n", " "):
                    return at
            time.sleep(0.01)
        raise AssertionError(f"no server has logged {reply['id']}")

    def ask(self, prompt):
        reply = ask(self.port, prompt)
        self.assertEqual(reply["choices"][0]["text"], self.expected[prompt])
        return reply

    def first_questions(self, documents, at_once=4):
        """Asks one question about each document; returns who holds which."""
        prompts = [prompt for _, prompt in questions(documents)[::QUESTIONS]]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            holders = [self.where(reply) for reply in pool.map(self.ask, prompts)]
        time.sleep(1)
        return holders

    def measure(self, documents, holders, seed):
        """Asks all questions in another order. Returns the share that reached the holder, and the share of the documents'
        tokens that were taken from its cache."""
        asked = questions(documents)
        random.Random(seed).shuffle(asked)
        reached = cached = tokens = 0
        for at, prompt in asked:
            reply = self.ask(prompt)
            reached += self.where(reply) == holders[at]
            cached += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            tokens += self.lengths[documents[at]]
        return reached / len(asked), cached / tokens

    def count_tokens(self, documents):
        server = self.replicas[0].server
        return {text: len(server.good("/tokenize", {"prompt": text}, headers=KEY)["tokens"]) for text in documents}

    def check(self):
        self.lengths = self.count_tokens(self.documents + self.later)
        holders = self.first_questions(self.documents)
        self.assertEqual(set(holders), {0, 1}, "both have work")
        before = self.measure(self.documents, holders, 1)
        print(f"\n{self.id()}: holders {holders}; {before[0]:.1%} reached the holder, {before[1]:.1%} of its tokens cached", flush=True)
        self.assertGreaterEqual(before[0], 0.95)
        self.assertGreater(before[1], 0.9)

        self.replicas[0].kill()
        began = time.monotonic()
        asked = questions(self.documents)
        random.Random(2).shuffle(asked)
        times = []
        for _, prompt in asked:
            start = time.monotonic()
            self.assertEqual(self.where(self.ask(prompt)), 1)
            times.append(time.monotonic() - start)
        print(f"after the kill: {len(asked)} of {len(asked)} answered in {time.monotonic() - began:.1f} s, the slowest in "
              f"{max(times):.2f} s", flush=True)

        self.replicas[0].start()
        self.wait_until_back()
        holders = self.first_questions(self.later)
        self.assertEqual(set(holders), {0, 1}, "both have work again")
        after = self.measure(self.later, holders, 3)
        print(f"after its restart: holders {holders}; {after[0]:.1%} reached the holder, {after[1]:.1%} of its tokens cached", flush=True)
        self.assertGreaterEqual(after[0], 0.95)
        self.assertGreater(after[1], 0.9)

    def wait_until_back(self):
        """Until the first server gets requests: new documents, several at a time."""
        began = time.monotonic()
        for attempt in range(60):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                replies = pool.map(lambda text: ask(self.port, text[:300] + text[-5000:]), texts(100 + attempt, 4))
                if 0 in [self.where(reply) for reply in replies]:
                    print(f"the restarted server gets requests after {time.monotonic() - began:.1f} s", flush=True)
                    return
            time.sleep(0.2)
        self.fail("the restarted server gets no requests")


@unittest.skipUnless(has_events(PROGRAM), "this program was built without libzmq")
@unittest.skipUnless(ROUTER, "vllm-router is not installed (tools/setup_router.sh)")
class VllmRouter(Behind):
    events = True

    def test_documents_stay_where_they_are(self):
        prometheus = free_ports(1)[0]
        pairs = [f"http://127.0.0.1:{r.port}=tcp://127.0.0.1:{r.events}" for r in self.replicas]
        self.start_front(["bash", ROOT / "packaging/vllm-router.sh", str(self.port), *pairs], VLLM_ROUTER=ROUTER,
                         PROMETHEUS_PORT=str(prometheus), MODEL="model")
        self.check()

    def test_a_document_that_another_client_left(self):
        """Documents that no request of the router's left: only the events can tell it. Without them half would go wrong."""
        prometheus = free_ports(1)[0]
        self.lengths = self.count_tokens(self.documents)
        holders = [d % 2 for d in range(DOCUMENTS)]
        for at, prompt in questions(self.documents)[::QUESTIONS]:  # before the router starts
            if at < DOCUMENTS // 2:
                ask(self.replicas[holders[at]].port, prompt)
        pairs = [f"http://127.0.0.1:{r.port}=tcp://127.0.0.1:{r.events}" for r in self.replicas]
        self.start_front(["bash", ROOT / "packaging/vllm-router.sh", str(self.port), *pairs], VLLM_ROUTER=ROUTER,
                         PROMETHEUS_PORT=str(prometheus), MODEL="model")
        for at, prompt in questions(self.documents)[::QUESTIONS]:  # and after
            if at >= DOCUMENTS // 2:
                ask(self.replicas[holders[at]].port, prompt)
        time.sleep(1)
        shares = self.measure(self.documents, holders, 4)
        print(f"\n{self.id()}: {shares[0]:.1%} reached the holder, {shares[1]:.1%} of its tokens cached", flush=True)
        self.assertGreaterEqual(shares[0], 0.95)
        self.assertGreater(shares[1], 0.9)

    def test_without_events_half_go_wrong(self):
        """That the figures above are not those of any router."""
        workers = [f"http://127.0.0.1:{r.port}" for r in self.replicas]
        self.start_front([ROUTER, "--port", str(self.port), "--worker-urls", *workers, "--policy", "round_robin",
                          "--worker-startup-check-interval", "1", "--prometheus-port", str(free_ports(1)[0])])
        self.lengths = self.count_tokens(self.documents)
        shares = self.measure(self.documents, [d % 2 for d in range(DOCUMENTS)], 5)
        print(f"\n{self.id()}: round robin: {shares[0]:.1%} reached one of two, {shares[1]:.1%} of the tokens cached", flush=True)
        self.assertLess(shares[0], 0.9)
        self.assertLess(shares[1], 0.9)


@unittest.skipUnless(HAPROXY, "HAProxy is not installed")
class HaProxy(Behind):
    def test_documents_stay_where_they_are(self):
        text = (ROOT / "packaging/haproxy.cfg").read_text()
        for old, new in (("127.0.0.1:8080", f"127.0.0.1:{self.port}"), ("127.0.0.1:8081", f"127.0.0.1:{self.replicas[0].port}"),
                         ("127.0.0.1:8082", f"127.0.0.1:{self.replicas[1].port}")):
            self.assertEqual(text.count(old), 1)
            text = text.replace(old, new)
        path = pathlib.Path(self.folder.name, "haproxy.cfg")
        path.write_text(text)
        checked = subprocess.run([HAPROXY, "-c", "-f", path], capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        self.start_front([HAPROXY, "-f", path])
        self.check()


if __name__ == "__main__":
    if not ROUTER and not HAPROXY:
        print("skipped: neither vllm-router (tools/setup_router.sh) nor HAProxy is installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
