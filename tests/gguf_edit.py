"""Copies of GGUF files (version 3, alignment 32) with other metadata."""

import pathlib
import struct

SIZES = [1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8]  # of values, by type; 8 is a string, 9 an array


def edit(source, target, drop=(), texts=None, lists=None):
    """A copy without the keys `drop`, and with the texts {key: text} and the lists of numbers {key: list} in place of
    what was there."""
    data = pathlib.Path(source).read_bytes()
    texts, lists = dict(texts or {}), dict(lists or {})

    def number(at, fmt):
        return struct.unpack_from(fmt, data, at)[0]

    def after_value(at, kind):
        if kind == 8:
            return at + 8 + number(at, "<Q")
        if kind != 9:
            return at + SIZES[kind]
        inner, count, at = number(at, "<I"), number(at + 4, "<Q"), at + 12
        if inner != 8:
            return at + count * SIZES[inner]
        for _ in range(count):
            at += 8 + number(at, "<Q")
        return at

    tensors, count, at = number(8, "<Q"), number(16, "<Q"), 24
    entries = []
    for _ in range(count):
        begin, size = at, number(at, "<Q")
        key = data[at + 8:at + 8 + size].decode()
        at = after_value(at + 12 + size, number(at + 8 + size, "<I"))
        if key not in drop and key not in texts and key not in lists:
            entries.append(data[begin:at])
    for key, text in texts.items():
        name, value = key.encode(), text.encode()
        entries.append(struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(value)) + value)
    for key, numbers in lists.items():
        name, values = key.encode(), struct.pack(f"<{len(numbers)}I", *numbers)
        entries.append(struct.pack("<Q", len(name)) + name + struct.pack("<IIQ", 9, 4, len(numbers)) + values)
    infos = at
    for _ in range(tensors):
        at += 8 + number(at, "<Q")
        at += 4 + 8 * number(at, "<I") + 4 + 8
    head = data[:16] + struct.pack("<Q", len(entries)) + b"".join(entries) + data[infos:at]
    pathlib.Path(target).write_bytes(head + b"\0" * (-len(head) % 32) + (data[at + -at % 32:] if tensors else b""))
