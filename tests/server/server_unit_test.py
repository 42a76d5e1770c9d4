"""server_unit_test.py PROGRAM ROOT: the server on a Unix socket, under the system call filter of packaging/coppice.service,
and behind packaging/nginx.conf. Parts skip where systemd, libseccomp, nginx or openssl are absent."""

import contextlib
import ctypes
import ctypes.util
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from server_support import has_events  # noqa: E402

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = ROOT / "models/coppice-mini-f16.gguf"
ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050001


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, path, body=None, headers=None):
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers or {})
    reply = connection.getresponse()
    return reply.status, reply.read()


def expand(name, seen=None):
    """The calls in a group of systemd's."""
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    calls = set()
    for word in listed.stdout.split("\n")[1:]:
        word = word.strip()
        if word and not word.startswith("#"):
            calls |= expand(word) if word.startswith("@") else {word}
    return calls


def allowed_calls():
    """What SystemCallFilter= lists: each line adds, or with ~ removes."""
    calls = set()
    unit = (ROOT / "packaging/coppice.service").read_text()
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        removes = line.startswith("~")
        for word in line.lstrip("~").split():
            found = expand(word) if word.startswith("@") else {word}
            calls = calls - found if removes else calls | found
    return calls


def load_filter(calls):
    """Runs in the child before the program starts, as systemd does it."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(FAIL_WITH_EPERM))
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0 and library.seccomp_rule_add_array(context, ALLOW, number, 0, None) < 0:
            os._exit(99)
    if library.seccomp_load(context) != 0:
        os._exit(98)


class UnixSocket(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = self.folder.name + "/http.sock"

    @contextlib.contextmanager
    def server(self, *options, preexec_fn=None):
        process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--host", "unix:" + self.path, *options],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec_fn)
        try:
            self.assertEqual(process.stdout.readline(), f"listening on unix:{self.path}\n",
                             None if process.poll() is None else process.stderr.read())
            self.assertTrue(process.stdout.readline().startswith("ready: "))
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def generate(self, connection, headers=None):
        status, body = ask(connection, "/v1/completions", {"prompt": "one two", "max_tokens": 2}, headers)
        self.assertEqual(status, 200, body)
        self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 2)

    def test_requests_and_the_end(self):
        with self.server() as process:
            connection = UnixConnection(self.path)
            self.addCleanup(connection.close)
            self.generate(connection)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 0)
        self.assertFalse(os.path.exists(self.path))

    def test_under_the_units_system_call_filter(self):
        if not shutil.which("systemd-analyze") or not ctypes.util.find_library("seccomp"):
            self.skipTest("needs systemd-analyze and libseccomp")
        calls = allowed_calls()
        self.assertIn("epoll_wait", calls)
        self.assertNotIn("ptrace", calls)
        cache = self.folder.name + "/cache"
        events = self.folder.name + "/kv.sock"
        options = ["--doc-cache", cache, "--slot-save-path", self.folder.name]
        if has_events(PROGRAM):
            options += ["--kv-events", "ipc://" + events]
        with self.server(*options, preexec_fn=lambda: load_filter(calls)) as process:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            self.assertIn("Seccomp:\t2", status)
            if has_events(PROGRAM):
                self.assertEqual(os.stat(events).st_mode & 0o777, 0o660)
                with socket.socket(socket.AF_UNIX) as subscriber:
                    subscriber.connect(events)
                    subscriber.sendall(b"\xff" + bytes(8) + b"\x7f")
                    self.assertEqual(subscriber.recv(1), b"\xff", "ZeroMQ answers")
            connection = UnixConnection(self.path)
            self.addCleanup(connection.close)
            text = "a text that is long enough for the document cache " * 40
            status, body = ask(connection, "/v1/completions", {"prompt": text, "max_tokens": 2, "prune": "lazyllm"})
            self.assertEqual(status, 200, body)
            # Parked keys go to a file: io_uring is not in the list, so threads write it.
            status, body = ask(connection, "/slots/0?action=save", {"filename": "slot"})
            self.assertEqual(status, 200, body)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 0)
        self.assertTrue(list(pathlib.Path(cache).glob("*.prefix")))

    def test_behind_nginx(self):
        nginx, openssl = shutil.which("nginx", path="/usr/sbin:" + os.environ["PATH"]), shutil.which("openssl")
        if not nginx or not openssl:
            self.skipTest("needs nginx and openssl")
        folder = self.folder.name
        subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                        "1", "-subj", "/CN=llm.example.org", "-addext", "subjectAltName=DNS:llm.example.org", "-keyout",
                        folder + "/key.pem", "-out", folder + "/cert.pem"], check=True, capture_output=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        text = (ROOT / "packaging/nginx.conf").read_text()
        for old, new in (("unix:/run/coppice/http.sock", "unix:" + self.path), ("listen 443", f"listen 127.0.0.1:{port}"),
                         ("/etc/letsencrypt/live/llm.example.org/fullchain.pem", folder + "/cert.pem"),
                         ("/etc/letsencrypt/live/llm.example.org/privkey.pem", folder + "/key.pem")):
            self.assertIn(old, text)
            text = text.replace(old, new)
        temporary = "".join(f"{part}_temp_path {folder}/{part};" for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        pathlib.Path(folder + "/nginx.conf").write_text(
            f"daemon off; {'user root;' if os.geteuid() == 0 else ''} pid {folder}/nginx.pid; error_log {folder}/error.log;"
            f"events {{}} http {{ access_log off; {temporary} {text} }}")
        with self.server("--api-key", "secret"):
            proxy = subprocess.Popen([nginx, "-c", folder + "/nginx.conf", "-p", folder, "-e", folder + "/error.log"],
                                     stderr=subprocess.PIPE)
            try:
                context = ssl.create_default_context(cafile=folder + "/cert.pem")
                for _ in range(100):
                    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
                        break
                    time.sleep(0.05)
                raw = socket.create_connection(("127.0.0.1", port), timeout=60)
                connection = http.client.HTTPConnection("llm.example.org", timeout=60)
                connection.sock = context.wrap_socket(raw, server_hostname="llm.example.org")
                self.assertEqual(ask(connection, "/v1/models")[0], 401)
                self.generate(connection, {"Authorization": "Bearer secret"})
                # A stream arrives in parts, not at its end.
                connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 8, "stream": True}),
                                   {"Authorization": "Bearer secret"})
                stream = connection.getresponse()
                self.assertEqual(stream.status, 200)
                self.assertIn(b"data: [DONE]", stream.read())
                connection.close()
            finally:
                proxy.terminate()
                proxy.wait(10)
                proxy.stderr.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
