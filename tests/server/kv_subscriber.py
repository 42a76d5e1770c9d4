"""A subscriber of KV events, as a router is one: ZMTP 3.0 and msgpack by hand, so that it shares nothing with the server.

https://rfc.zeromq.org/spec/23/ and https://github.com/msgpack/msgpack/blob/master/spec.md; standard library only.
"""

import contextlib
import re
import socket
import struct
import threading
import time


def unpack(data):
    value, rest = _unpack(memoryview(data))
    if len(rest):
        raise ValueError(f"{len(rest)} bytes behind the value")
    return value


def _unpack(data):
    kind, rest = data[0], data[1:]
    if kind <= 0x7F or kind >= 0xE0:
        return (kind if kind <= 0x7F else kind - 256), rest
    if kind <= 0x8F:
        return _map(kind & 0x0F, rest)
    if kind <= 0x9F:
        return _list(kind & 0x0F, rest)
    if kind <= 0xBF:
        return _text(kind & 0x1F, rest)
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], rest
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if kind in numbers:
        size = struct.calcsize(numbers[kind])
        return struct.unpack(numbers[kind], rest[:size])[0], rest[size:]
    sizes = {0xD9: (">B", _text), 0xDA: (">H", _text), 0xDB: (">I", _text), 0xDC: (">H", _list), 0xDD: (">I", _list),
             0xDE: (">H", _map), 0xDF: (">I", _map)}
    form, read = sizes[kind]
    size = struct.calcsize(form)
    return read(struct.unpack(form, rest[:size])[0], rest[size:])


def _text(size, data):
    return bytes(data[:size]).decode(), data[size:]


def _list(size, data):
    values = []
    for _ in range(size):
        value, data = _unpack(data)
        values.append(value)
    return values, data


def _map(size, data):
    pairs, rest = _list(2 * size, data)
    return dict(zip(pairs[::2], pairs[1::2])), rest


class Connection:
    """A SUB socket over TCP, without its buffering: a message is read when it is asked for."""

    def __init__(self, endpoint, topic=b"", timeout=10):
        host, port = re.fullmatch(r"tcp://(.+):(\d+)", endpoint).groups()
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        greeting = self.file.read(64)
        assert greeting[0] == 0xFF and greeting[9] == 0x7F and greeting[10] >= 3, greeting
        ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
        self.socket.sendall(bytes([4, len(ready)]) + ready)
        flags, body = self.frame()
        assert flags & 4 and body.startswith(b"\x05READY"), (flags, body)
        self.socket.sendall(bytes([0, len(topic) + 1]) + b"\x01" + topic)
        self.socket.settimeout(None)

    def frame(self):
        """(flags, body): 1 another frame follows, 4 a command."""
        head = self.file.read(1)
        if not head:
            raise ConnectionError("closed")
        size = self.file.read(8 if head[0] & 2 else 1)
        length = int.from_bytes(size, "big")
        body = self.file.read(length)
        if len(body) < length:
            raise ConnectionError("closed in a frame")
        return head[0], body

    def message(self):
        """(topic, number, payload)"""
        frames, more = [], True
        while more:
            flags, body = self.frame()
            if flags & 4:
                continue
            frames.append(body)
            more = flags & 1
        topic, number, payload = frames
        return topic, int.from_bytes(number, "big", signed=True), unpack(payload)

    def close(self):
        self.file.close()
        self.socket.close()


class Router:
    """Follows one server's events in a thread: which beginnings of prompts it has announced, by medium."""

    def __init__(self, endpoint, topic=b""):
        self.connection = Connection(endpoint, topic)
        self.lock = threading.Lock()
        self.blocks = {}  # medium: {hash: tokens of the prompt up to the block's end}
        self.events = []
        self.numbers = []
        self.topics = set()
        self.fault = None
        self.closing = False
        self.last = time.monotonic()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self):
        try:
            while True:
                topic, number, payload = self.connection.message()
                with self.lock:
                    self._read(topic, number, payload)
        except Exception as error:
            if not self.closing:  # else its socket was closed
                self.fault = error

    def _read(self, topic, number, payload):
        stamp, events, rank = payload
        assert abs(stamp - time.time()) < 60 and rank == 0, payload
        assert not self.numbers or number == self.numbers[-1] + 1, (self.numbers, number)
        self.topics.add(topic)
        self.numbers.append(number)
        self.last = time.monotonic()
        for event in events:
            self.events.append(event)
            if event["type"] == "AllBlocksCleared":
                self.blocks = {}
                continue
            held = self.blocks.setdefault(event["medium"], {})
            if event["type"] == "BlockRemoved":
                for block in event["block_hashes"]:
                    del held[block]
                continue
            assert event["type"] == "BlockStored" and event["block_size"] == 16, event
            assert event["lora_id"] is None and event["lora_name"] is None, event
            parent, tokens = event["parent_block_hash"], event["token_ids"]
            chain = () if parent is None else held[parent]
            assert len(tokens) == 16 * len(event["block_hashes"]) > 0, event
            for at, block in enumerate(event["block_hashes"]):
                chain += tuple(tokens[16 * at:16 * at + 16])
                held[block] = chain

    def announced(self, tokens, medium=None):
        """How many of a prompt's first tokens are announced."""
        self.settle()
        with self.lock:
            media = [medium] if medium else list(self.blocks)
            chains = {chain for name in media for chain in self.blocks.get(name, {}).values()}
        count = 0
        while tuple(tokens[:count + 16]) in chains and count + 16 <= len(tokens):
            count += 16
        return count

    def settle(self, quiet=0.15):
        """Waits until no event comes for a while."""
        time.sleep(quiet)
        while time.monotonic() - self.last < quiet:
            time.sleep(quiet / 4)
        self.check()

    def check(self):
        if self.fault:
            raise AssertionError(f"the events are wrong, or ended: {self.fault!r}")

    def wait_first(self, seconds=10):
        """Until everything that is held has come, which may take a second."""
        end = time.monotonic() + seconds
        while not self.events:
            self.check()
            assert time.monotonic() < end, "no event came"
            time.sleep(0.02)
        return self

    def close(self):
        """Raises AssertionError if the events were wrong, or had ended before."""
        self.closing = True
        with contextlib.suppress(OSError):
            self.connection.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
        self.connection.close()
        self.check()
