"""A model that plays an agent by heart: marks in what the user says, and results of tools, choose what it says next.

It reads English in few tokens, so that the 10,000 tokens which a real agent sends first are read in seconds.
"""

import struct

from script_model import write_script_model

# Each answer stands behind a letter of its own, which no text holds. It is written back with the answer, so that the next
# prompt goes on where the last one ended.
TEMPLATE = r"""{%- set on = namespace(letter='%(plain)s') -%}
{%- if tools %}<tools>
{% for t in tools %}{{ t | tojson }}
{% endfor %}</tools>
For each function call, return <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>
{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' %}<assistant>{{ on.letter }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}
{% else %}<{{ m.role }}>{{ m.content }}
{% endif -%}
{%- if m.role == 'tool' %}{% set on.letter = '%(after)s' %}{% endif -%}
{%- if m.role == 'user' %}{% set on.letter = '%(plain)s' %}%(marks)s{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<assistant>{{ on.letter }}{% endif -%}"""


def words_of(gguf):
    """The tokens of a GGUF file that has a SentencePiece vocabulary, without its bytes and control tokens."""
    data = gguf.read_bytes()
    key = b"tokenizer.ggml.tokens"
    at = data.index(key) + len(key) + 8
    count, at, words = struct.unpack_from("<Q", data, at)[0], at + 8, []
    for _ in range(count):
        size = struct.unpack_from("<Q", data, at)[0]
        words.append(data[at + 8:at + 8 + size].decode())
        at += 8 + size
    return [word.replace("\u2581", " ") for word in words if not (word.startswith("<") and word.endswith(">"))]


def write_agent_model(path, vocabulary, plain, after, marks):
    """`plain` is the answer to a message without a mark, `after` that to a tool's result, and `marks` {mark: answer}."""
    letters = {text: chr(1 + number) for number, text in enumerate(["plain", "after", *marks])}
    chosen = "".join("{%% if '%s' in m.content %%}{%% set on.letter = '%s' %%}{%% endif %%}" % (mark, letters[mark]) for mark in marks)
    template = TEMPLATE.replace("%(plain)s", letters["plain"]).replace("%(after)s", letters["after"]).replace("%(marks)s", chosen.replace("%%", "%"))
    scripts = {letters["plain"]: plain, letters["after"]: after, **{letters[mark]: text for mark, text in marks.items()}}
    write_script_model(path, scripts, template=template, words=words_of(vocabulary))
