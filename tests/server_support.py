"""A server of the program under test, and small HTTP clients for it. Standard library only."""

import contextlib
import functools
import http.client
import json
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import time


@functools.cache
def is_sanitized(program):
    """Then it needs the address space, freed memory stays for a while, and everything takes several times as long."""
    program = pathlib.Path(program).read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


def patience(program):
    """How many times as long as usual a test waits for this program."""
    return 5 if is_sanitized(program) else 1


def has_events(program):
    """Whether the program was built with KV events."""
    done = subprocess.run([program, "serve", "-m", "/nowhere", "--port", "0", "--kv-events", "tcp://127.0.0.1:0"], capture_output=True)
    return b"without libzmq" not in done.stderr


class Server:
    """Starts `coppice serve` on a port (0: any that is free); `ready` says when the model is loaded."""

    def __init__(self, program, model, *options, port=0):
        self.patience = patience(program)
        models = [] if model is None else ["-m", str(model)]  # None: the options name several
        self.process = subprocess.Popen([program, "serve", *models, "--port", str(port), *options],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline().decode()
        match = re.fullmatch(r"listening on http://(.+):(\d+)\n", line)
        if not match:
            raise AssertionError(f"{line!r}, {self.process.stderr.read().decode()!r}")
        self.host, self.port = match.group(1), int(match.group(2))

    def wait_ready(self):
        if not self.process.stdout.readline().startswith(b"ready: "):
            raise AssertionError(self.process.stderr.read().decode())
        return self

    def stop(self, number=signal.SIGTERM, timeout=10):
        """The exit code. What the server said is shown where that is not as it should be."""
        code = None
        self.process.send_signal(number)
        try:
            code = self.process.wait(timeout * self.patience)
            return code
        finally:
            self.process.kill()
            self.process.wait()
            if code not in (0, -signal.SIGKILL):
                print(f"the server ended with {code}, saying {self.process.stderr.read().decode()!r}", file=sys.stderr)
            self.process.stdout.close()
            self.process.stderr.close()

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    @contextlib.contextmanager
    def connection(self, timeout=120):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout * self.patience)
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, path, body=None, method=None, headers=None, timeout=120):
        """(status, headers, parsed JSON or text)"""
        with self.connection(timeout) as connection:
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, data,
                               {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            text = reply.read().decode()
            is_json = reply.getheader("Content-Type", "").startswith("application/json")
            return reply.status, dict(reply.getheaders()), json.loads(text) if is_json else text

    def good(self, path, body=None, **kwargs):
        status, _, reply = self.ask(path, body, **kwargs)
        assert status == 200, (status, reply)
        return reply

    def stream(self, path, body, **kwargs):
        """The parsed events of a stream, in order; comments as ":" and the end as "[DONE]"."""
        status, headers, text = self.ask(path, {**body, "stream": True}, **kwargs)
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), (status, headers, text)
        events = []
        for block in text.split("\n\n")[:-1]:
            if block.startswith(":"):
                events.append(":")
            else:
                assert block.startswith("data: ") and "\n" not in block, block
                events.append(block[6:] if block == "data: [DONE]" else json.loads(block[6:]))
        return events

    def raw(self, data, timeout=10, close=True):
        """Sends bytes; what comes back until the server closes, or until `timeout`."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as plain:
            plain.sendall(data)
            received = b""
            with contextlib.suppress(TimeoutError, ConnectionError):
                while part := plain.recv(65536):
                    received += part
                    if not close and b"\r\n\r\n" in received:
                        break
            return received

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=60 * self.patience)

    def slots(self):
        """Those that are in use."""
        return [slot for slot in self.good("/slots") if slot["is_processing"]]

    def slot(self):
        """The first that is in use, or one that is not."""
        return (self.slots() or [{"is_processing": False}])[0]

    def metrics(self, **kwargs):
        lines = self.good("/metrics", **kwargs).splitlines()
        return {l.rsplit(" ", 1)[0]: float(l.rsplit(" ", 1)[1]) for l in lines if not l.startswith("#")}

    def wait_for(self, what, seconds=10):
        seconds *= self.patience
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what():
                return time.monotonic()
            time.sleep(0.01)
        raise AssertionError(f"not within {seconds} s; in use are {self.ask('/slots')[2]}")

    def wait_idle(self, seconds=10):
        return self.wait_for(lambda: not self.slots(), seconds)

    def wait_busy(self, seconds=10):
        return self.wait_for(lambda: self.slots(), seconds)

    def send_only(self, path, body, receive_buffer=None):
        """A request whose answer nobody reads yet: the socket."""
        data = json.dumps(body).encode()
        plain = socket.socket()
        plain.settimeout(60 * self.patience)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.connect((self.host, self.port))
        plain.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        return plain


def reply_is_whole(received):
    """Whether these bytes hold a reply to its end, by its Content-Length or its last chunk."""
    head, blank, content = received.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return len(content) >= int(length[1]) if blank and length else content.endswith(b"\r\n0\r\n\r\n")


def readable(plain, seconds):
    return bool(select.select([plain], [], [], seconds)[0])
