"""A model that has a chat template, made of one that has none."""

import pathlib
import struct

TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{{ mood|default('') }} {% endif %}")


def write_chat_model(source, target, template=TEMPLATE):
    """A copy of a GGUF file (version 3, alignment 32) that has a chat template."""
    data = pathlib.Path(source).read_bytes()
    sizes = [1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8]  # of values, by type; 8 is a string, 9 an array

    def number(at, fmt):
        return struct.unpack_from(fmt, data, at)[0]

    def after_value(at, kind):
        if kind == 8:
            return at + 8 + number(at, "<Q")
        if kind != 9:
            return at + sizes[kind]
        inner, count, at = number(at, "<I"), number(at + 4, "<Q"), at + 12
        for _ in range(count):
            at = after_value(at, inner)
        return at

    tensors, keys, at = number(8, "<Q"), number(16, "<Q"), 24
    for _ in range(keys):
        at += 8 + number(at, "<Q")
        at = after_value(at + 4, number(at, "<I"))
    end_of_keys = at
    for _ in range(tensors):
        at += 8 + number(at, "<Q")
        at += 4 + 8 * number(at, "<I") + 4 + 8
    key, text = b"tokenizer.chat_template", template.encode()
    extra = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(text)) + text
    head = data[:16] + struct.pack("<Q", keys + 1) + data[24:end_of_keys] + extra + data[end_of_keys:at]
    pathlib.Path(target).write_bytes(head + b"\0" * (-len(head) % 32) + data[at + -at % 32:])
