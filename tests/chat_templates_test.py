"""The chat templates of real models through Jinja 3 and through coppice's own interpreter: the same text, or both refuse.

    chat_templates_test.py RENDERER SOURCE_DIR [--template FILE]... [unittest arguments]

RENDERER is tests/render_chat_template.cpp. --template adds a file with a template. Jinja's environment is that of
transformers' apply_chat_template. Skips (77) where Jinja is absent.
"""

import functools
import json
import pathlib
import subprocess
import sys
import unicodedata
import unittest

RENDERER, SOURCE = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
FILES = []
while sys.argv[1:2] == ["--template"]:
    FILES.append(pathlib.Path(sys.argv[2]))
    del sys.argv[1:3]

try:
    import jinja2

    from transformers_jinja import environment
except ImportError as error:
    print(f"skipped: {error}; `apt-get install python3-jinja2`, for {sys.executable}")
    sys.exit(77)

TEST_DATA = SOURCE / "../shared/data"  # optional, beside the checkout
CASES = TEST_DATA / "parity/chat_template_cases.json"
QWEN2 = TEST_DATA / "tokenizer/qwen2-hf/tokenizer_config.json"
BUNDLED = sorted(SOURCE.glob("models/*.gguf"))

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Says <what> it's like & where",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Ulm", "Köln"]}},
                       "required": ["city"]}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "n": 1.5}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


SYSTEM = {"role": "system", "content": "  Be kind.\n"}
CONVERSATIONS = [
    [user("Hi")],
    [SYSTEM, user("Hi 'there' \"you\" é 日本 😀")],
    [user("  one\n"), assistant(" two "), user("three")],
    [SYSTEM, user("1"), assistant("2"), user("3"), assistant("<think>\nwhy\n</think>\n\n4"), user("5")],
    [user("1"), assistant("2")],
    [user("1"), user("2")],
    [assistant("1")],
    [SYSTEM],
    [],
    [{"role": "tool", "content": "1"}],
    [user("1"), {"role": "nobody", "content": "2"}],
    [user([{"type": "text", "text": "part"}, {"type": "text", "text": " two"}])],
    [user("Weather?"), assistant("", tool_calls=[CALL]), {"role": "tool", "content": "{\"t\": 3}", "name": "get_weather",
                                                        "tool_call_id": "call00001"}],
    [user("Weather?"), assistant(None, tool_calls=[CALL, CALL]), {"role": "tool", "content": "3"}, assistant("Cold.")],
    [user("1"), assistant("2", reasoning_content="because"), user("3")],
]
EXTRAS = [{}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "tools": [TOOL]},
          {"add_generation_prompt": True, "enable_thinking": False}, {"tools": None, "documents": None}]

# What the templates above seldom use, in expressions over this.
VALUES = {"x": 5, "f": 4.0, "s": "Hello World", "l": [3, 1, 2], "d": {"b": 1, "a": 2, "C": 3}, "n": None, "u": "ÄÖÜ aß ǆ ñ",
          "people": [{"name": "Bob", "age": 3}, {"name": "alice", "age": 5}]}
EXPRESSIONS = """
f is even; 4.0 is even; 3.0 is odd; 4.5 is even; 4.5 is odd; -3 is odd; true is odd; 6.0 is divisibleby 3; x is divisibleby 5
x is integer; f is integer; f is float; true is integer; x is number; n is none; s is string; d is mapping; l is sequence
u.upper(); u.lower(); u|title; u.title(); u|capitalize; s|upper; s.split(); s.split('o', 1); s.startswith(('x', 'H')); s[::-1]
l|sort; l|sort(reverse=true); l|join('-'); l|first; l|last; l|length; l|reverse|list; l|sum; l|max; l + [4]; l * 2; 3 in l
d|dictsort; d|items|list; d|tojson; d|tojson(indent=2); d.items()|list; d.get('a'); d.get('z', 9); d.zzz; d.zzz is defined
people|map(attribute='name')|list; people|selectattr('age', 'gt', 3)|list; people|rejectattr('name', 'eq', 'Bob')|list
x / 2; x // 2; x % 3; x ** 2; -x ** 2; f|int; '7'|int; 'z'|int; 2.5|round; 2.567|round(1); x ~ s; x|string; range(3)|list
'%s-%d' % ('a', 3); 'a{}b'.format(1); s|replace('o', '0'); 'a\\nb'|indent; '<a>'|e; s|default('y'); zzz|default('y')
[1, 'a', none, 1.5]; 1 if n else 2; namespace(a=1).a; raise_exception('no'); zzz.a; s.nope(); 1 / 0; 'a' + 1; none|length
x is nope; x|nope; x is defined and zzz is not defined; s[1:-1]; 'a' < 'b'; 1 < 2 < 3; not x; l is iterable; x is iterable
"""


@functools.cache
def compiled(template):
    return environment().from_string(template)


def expected(template, context):
    """The text, or None if Jinja refuses the template or the context."""
    try:
        return compiled(template).render(**context)
    except Exception:  # a template can fail with any error of Python
        return None


def rendered(requests):
    done = subprocess.run([RENDERER], input=json.dumps(requests), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class ChatTemplates(unittest.TestCase):
    maxDiff = None

    def compare(self, requests):
        refused = 0
        for request, answer in zip(requests, rendered(requests), strict=True):
            text = expected(answer["template"], request["context"])
            refused += text is None
            if text != answer.get("text"):
                with self.subTest(template=answer["template"][:200], context=request["context"], error=answer.get("error")):
                    self.assertEqual(answer.get("text"), text)
        return len(requests), refused

    def test_templates_of_real_models(self):
        sources = [{"file": str(path)} for path in BUNDLED] + [{"template": path.read_text()} for path in FILES]
        requests = []
        if CASES.exists():
            families = json.loads(CASES.read_text())
            sources += [{"template": family["template"]} for family in families.values()]
            requests += [{"template": family["template"], "context": case} for family in families.values() for case in family["cases"]]
        if QWEN2.exists():
            sources.append({"template": json.loads(QWEN2.read_text())["chat_template"]})
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        requests += [{**source, "context": {"messages": conversation, **tokens, **extra}}
                     for source in sources for conversation in CONVERSATIONS for extra in EXTRAS]
        count, refused = self.compare(requests)
        print(f"{len(sources)} templates, {count} texts, {refused} of them refused by both")
        self.assertLess(refused, count)

    def test_expressions(self):
        expressions = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(";")]
        requests = [{"template": "{{ " + expression + " }}", "context": VALUES} for expression in expressions]
        self.compare(requests)

    def test_letters_of_every_script(self):
        # Those that become one letter, and that this Python's Unicode knows.
        letters = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cs", "Cn")]
        for method in ("upper", "lower", "title"):
            text = "".join(c + "." for c in letters if len(getattr(c, method)()) == 1)
            self.compare([{"template": "{{ t." + method + "() }}", "context": {"t": text}}])
        for method in ("isalpha", "isspace", "isdecimal"):
            line = "{% for c in t if c." + method + "() %}{{ c }}{% endfor %}"
            self.compare([{"template": line, "context": {"t": "".join(letters[i:i + 20000])}}
                          for i in range(0, len(letters), 20000)])
        visible = "".join(c for c in letters if c.isprintable())
        self.compare([{"template": "{{ [t] }}", "context": {"t": visible}}])


if __name__ == "__main__":
    unittest.main()
