"""Time and memory by the size of an input: the texts that are tried, and the limits that hold.

An input of n bytes may take a fixed amount and so much for each byte. Beyond the fixed amount it must also grow as its size
does: an input of twice the size takes less than `MOST_RATIO` times as much, where a quadratic one takes four times.
"""

import dataclasses
import json

# Twenty texts that repeat themselves: what parsers nest, split, merge, escape, compare or look up.
TEXTS = {
    "letter": "a", "space": " ", "line": "\n", "words": "ab cd ", "digits": "1234567890", "punctuation": "!?.,;:",
    "quotes": "\"'", "backslashes": "\\", "brackets": "[", "braces": "{\"a\":", "parentheses": "(", "bars": "a|",
    "braces of templates": "{{ x }}{% if x %}", "control tokens": "<|im_end|><s></s>[INST]", "calls": "<tool_call>\n{",
    "tags": "<a href=\"&lt;", "two bytes": "é", "combining": "e\u0301\u0327\u0316", "four bytes": "\U0001f600\u200d", "zeros": "\x00\x7f",
}
MOST_RATIO = 3.0
# Bytes that an input may take without being asked how they grow. The half of it may fit into pages that the process
# holds already: 2 MiB and 65, and 0 and 82, were seen where both sizes need 70 to 90 bytes a byte.
MOST_MEMORY = 96 << 20


def text(name, size):
    """The text `name`, repeated to `size` bytes of UTF-8 or a little less."""
    unit = TEXTS[name]
    return unit * max(1, size // len(unit.encode()))


# Values that are no texts: of about `size` bytes as JSON.
SHAPES = {
    "many texts": lambda size: ["ab"] * (size // 6),
    "different texts": lambda size: [f"x{i}" for i in range(size // 10)],
    "many numbers": lambda size: [7] * (size // 3),
    "many lists": lambda size: [[]] * (size // 4),
    "pairs": lambda size: [[i, 1] for i in range(size // 12)],
    "many objects": lambda size: [{"a": 1}] * (size // 10),
    "many keys": lambda size: {f"key{i}": i for i in range(size // 18)},
    "texts by key": lambda size: {f"key{i}": "ab" for i in range(size // 18)},
    "long key": lambda size: {"k" * size: 1},
    "one long text": lambda size: [text("words", size)],
    "nested lists": lambda size: Raw("[" * (size // 2) + "]" * (size // 2)),
    "nested objects": lambda size: Raw('{"a":' * (size // 6) + "1" + "}" * (size // 6)),
    "long number": lambda size: Raw("1" * size),
    "long fraction": lambda size: Raw("0." + "1" * size),
}


class Raw(str):
    """JSON as it is sent: Python's own writer does not nest so deep."""


def dumps(value):
    """JSON of a value in which Raw stands for itself."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(json.dumps(key) + ":" + dumps(one) for key, one in value.items()) + "}"
    if isinstance(value, list) and any(isinstance(one, (dict, list, Raw)) for one in value[:4]):
        return "[" + ",".join(dumps(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False)


@dataclasses.dataclass
class Cost:
    seconds: float  # of CPU
    bytes: int      # of memory at the most, beyond what was held before

    def __str__(self):
        return f"{self.seconds:.2f} s, {self.bytes / 2**20:.0f} MiB"


@dataclasses.dataclass
class Limits:
    """What is always allowed, and what each byte may take. `factor` widens the time for sanitized programs."""
    seconds: float = 0.25
    seconds_per_byte: float = 4e-6
    bytes: int = 24 << 20
    bytes_per_byte: float = 160
    factor: float = 1

    def most(self, size):
        return Cost(self.factor * (self.seconds + self.seconds_per_byte * size), int(self.bytes + self.bytes_per_byte * size))

    def is_fixed(self, cost):
        """Whether the cost is within what is allowed whatever the size: too little to say how it grows."""
        return cost.seconds <= self.factor * self.seconds and cost.bytes <= self.bytes


def fault(measure, make, size, limits):
    """What is wrong with the costs of make(size) and make(2 size), or None. `measure` gives the Cost of an input.

    Costs above a limit are measured once more, and the lesser one counts: another program may have taken the core."""
    def least(value):
        first = measure(value)
        return first if limits.is_fixed(first) else min(first, measure(value), key=lambda cost: cost.seconds)

    value = make(2 * size)
    large = least(value)
    if limits.is_fixed(large):
        return None
    whole = max(2 * size, len(value)) if isinstance(value, str) else 2 * size
    most = limits.most(whole)
    if large.seconds > most.seconds or large.bytes > most.bytes:
        return f"{whole} bytes take {large}; the most is {most}"
    small = least(make(size))
    if large.seconds > limits.factor * limits.seconds and large.seconds > MOST_RATIO * max(small.seconds, limits.seconds / MOST_RATIO):
        return f"{size} bytes take {small}, {2 * size} bytes {large}"
    # What earlier requests left in the heap hides up to some ten MiB of either.
    if large.bytes > MOST_MEMORY and large.bytes > MOST_RATIO * max(small.bytes, MOST_MEMORY / MOST_RATIO):
        return f"{size} bytes take {small}, {2 * size} bytes {large}"
    return None
