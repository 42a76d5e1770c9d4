"""Random conversations through /apply-template's own path and through Jinja in the way of transformers: the same text.

    chat_prompts_test.py RENDERER SOURCE_DIR [--conversations N] [--seed N] [--template FILE]... [unittest arguments]

RENDERER is tests/render_chat_template.cpp. The reference is apply_chat_template of transformers 5, written down here:
members that are null are left out, reasoning is given under its three names, and a begun answer ends where a mark at its
end comes out. On both sides the texts of arguments are read as objects, and a developer is a system message where the
template does not know one. Where the reference refuses a conversation, the program may join messages; then, and where
it writes tools as text for a template without them, no user's text may be lost. The templates are those of
../shared/data/templates and of the bundled models. Skips (77) where Jinja or those are absent.
"""

import copy
import functools
import json
import pathlib
import random
import subprocess
import sys
import unittest

RENDERER, SOURCE = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
CONVERSATIONS, SEED, FILES = 1000, 1, []
while sys.argv[1:2] and sys.argv[1] in ("--conversations", "--seed", "--template"):
    option, value = sys.argv[1:3]
    del sys.argv[1:3]
    if option == "--conversations":
        CONVERSATIONS = int(value)
    elif option == "--seed":
        SEED = int(value)
    else:
        FILES.append(pathlib.Path(value))

try:
    import jinja2

    from transformers_jinja import environment
except ImportError as error:
    print(f"skipped: {error}; `apt-get install python3-jinja2`, for {sys.executable}")
    sys.exit(77)

FILES = FILES or sorted((SOURCE / "../shared/data/templates").glob("*.jinja"))
if not FILES:
    print("skipped: no templates in ../shared/data/templates")
    sys.exit(77)

REASONING = ("reasoning_content", "thinking", "reasoning")
CUT = "CONTINUE_FINAL_MESSAGE_TAG "
TEXTS = ["Hi", "  two spaces ", "line\n\nline\n", "Grüße, 日本 😀", "<s>not a token</s>", "<|im_end|> said", "{{ messages }} {% x %}",
         "<think>\nwhy\n</think>\n\nso", "a \"quoted\" 'text' & <b>", "\t", "", "```json\n", "tail \u00a0", "0", "<tool_call>", "None"]
WORDS = ["get_weather", "search", "f", "run-it", "a.b"]
VALUES = ["Köln", "", "<s>", 1, -2.5, True, None, [1, "two", {"z": 1, "a": 2}], {"b": 1, "a": {"d": [], "c": {}}}, 10**12, "line\nline"]


@functools.cache
def compiled(template):
    return environment().from_string(template)


def arguments_of(arguments):
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except ValueError:
            return arguments if arguments.strip() else {}
        return parsed if isinstance(parsed, dict) else {} if parsed is None else arguments
    return {} if arguments is None else arguments


def as_seen(message, template):
    """The message as transformers gives it to the template."""
    message = {key: value for key, value in copy.deepcopy(message).items() if value is not None}
    if message["role"] == "developer" and "developer" not in template:
        message["role"] = "system"
    for call in message.get("tool_calls", []):
        call["function"]["arguments"] = arguments_of(call["function"].get("arguments"))
    reasoning = next((message[name] for name in REASONING if name in message), None)
    if reasoning is not None:
        message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return message


def in_parts(message, template):
    """A message's reasoning where Ministral's template reads it: in a part of the content."""
    reads_parts = "== 'thinking'" in template and "reasoning_content" not in template and ".thinking" not in template
    thought = message.get("reasoning_content")
    if not reads_parts or message["role"] != "assistant" or not isinstance(thought, str) or not thought:
        return message
    text = message.get("content")
    parts = [{"type": "thinking", "thinking": thought}] + ([{"type": "text", "text": text}] if text else [])
    return {**message, "content": parts}


def expected(template, body):
    """The text, or None if the template refuses the conversation."""
    messages = [as_seen(message, template) for message in body["messages"]]
    goes_on = body.get("continue_final_message", False)
    final = messages[-1].get("content")
    if goes_on and final is None:
        return None
    if goes_on:
        messages[-1]["content"] = final + CUT
    messages = [in_parts(message, template) for message in messages]
    context = {"bos_token": "<s>", "eos_token": "", **body.get("chat_template_kwargs", {})}
    try:
        text = compiled(template).render(messages=messages, tools=body.get("tools"), documents=None,
                                         add_generation_prompt=body.get("add_generation_prompt", False), **context)
    except Exception:  # a template can fail with any error of Python
        return None
    if not goes_on:
        return text
    if final.strip() not in text or CUT.strip() not in text:
        return None
    at = text.rindex(CUT.strip())
    return text[:at] if text[at:at + len(CUT)] == CUT else text[:at].rstrip()


class Conversations:
    """Random ones, of every kind that clients send and of some that they should not."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def often(self, share):
        return self.r.random() < share

    def text(self):
        return "".join(self.r.choice(TEXTS) for _ in range(self.r.choice([1, 1, 1, 2, 3])))

    def arguments(self):
        return {word: self.r.choice(VALUES) for word in self.r.sample(["q", "b", "a", "Ö", "city"], self.r.randint(0, 3))}

    def call(self):
        arguments = self.arguments()
        said = self.r.choice([arguments, arguments, json.dumps(arguments), "", None, "{}", "no object"])
        call = {"id": self.r.choice(["call00001", "abcdef123", "1"]), "type": "function",
                "function": {"name": self.r.choice(WORDS), "arguments": said}}
        return {**call, "index": 0} if self.often(0.1) else call

    def tool(self):
        parameters = {"type": "object", "properties": {"city": {"type": "string", "description": self.text()}, "a": {"type": "integer"}},
                      "required": ["city"]}
        function = {"name": self.r.choice(WORDS), "description": self.text()}
        if self.often(0.9):
            function["parameters"] = parameters
        return {"type": "function", "function": function}

    def more(self, role):
        """Further members of a message."""
        more = {}
        if role == "assistant" and self.often(0.25):
            more[self.r.choice(REASONING)] = self.text()
        if self.often(0.05):
            more["name"] = self.r.choice(WORDS)
        if self.often(0.05):
            more["refusal"] = None
            more["annotations"] = []
        if self.often(0.05):
            more["x"] = {"b": self.text(), "a": None}
        return more

    def round(self):
        messages = [{"role": "user", "content": self.text(), **self.more("user")}]
        while self.often(0.3):
            calls = [self.call() for _ in range(self.r.choice([1, 1, 2]))]
            content = self.r.choice(["", None, None, self.text()])
            messages.append({"role": "assistant", "content": content, **self.more("assistant"), "tool_calls": calls})
            for call in calls:
                messages.append({"role": "tool", "content": self.text(), "tool_call_id": call["id"]})
                if self.often(0.5):
                    messages[-1]["name"] = call["function"]["name"]
        messages.append({"role": "assistant", "content": self.text(), **self.more("assistant")})
        return messages

    def messages(self):
        messages = [{"role": self.r.choice(["system", "system", "developer"]), "content": self.text()}] if self.often(0.5) else []
        for _ in range(self.r.choice([1, 1, 2, 3])):
            messages += self.round()
        for odd in ({"role": "system", "content": self.text()}, {"role": "user", "content": self.text()},
                    {"role": "developer", "content": self.text()}, {"role": "assistant", "content": None}):
            if self.often(0.05):
                messages.insert(self.r.randint(0, len(messages)), odd)
        if self.often(0.6):
            messages.append({"role": "user", "content": self.text()})
        return messages

    def body(self):
        messages = self.messages()
        body = {"messages": messages}
        if self.often(0.4):
            body["tools"] = [self.tool() for _ in range(self.r.randint(1, 3))]
        if messages[-1]["role"] == "assistant" and self.often(0.5):
            body["continue_final_message"] = True
        else:
            body["add_generation_prompt"] = self.often(0.9)
        if self.often(0.3):
            body["chat_template_kwargs"] = {self.r.choice(["enable_thinking", "thinking", "custom"]): self.r.choice([True, False])}
        return body


def is_rewritten(template, body):
    """Whether the template lacks tools that the conversation has."""
    has_calls = any(message.get("tool_calls") for message in body["messages"])
    return bool(body.get("tools")) and "tools" not in template or has_calls and "tool_calls" not in template


def neighbours_joined(messages):
    joined = []
    for message in messages:
        if joined and message["role"] in ("user", "assistant", "system") and joined[-1]["role"] == message["role"]:
            texts = [m["content"] for m in (joined[-1], message) if m["content"].strip()]
            calls = [call for m in (joined[-1], message) for call in m.get("tool_calls", [])]
            joined[-1] = {**message, **joined[-1], "content": "\n\n".join(texts), **({"tool_calls": calls} if calls else {})}
        else:
            joined.append(message)
    return joined


def can_be_joined(template, body):
    """Whether the template takes the conversation with its system messages as one, or as the user's, and neighbours joined."""
    body = copy.deepcopy(body)
    rewritten = is_rewritten(template, body)
    for message in body["messages"]:
        message["content"] = message["content"] or ""
        if message["role"] == "developer":
            message["role"] = "system"
        if rewritten and message["role"] == "tool":
            message["role"] = "user"
        if rewritten and message.pop("tool_calls", None):
            message["content"] += "call"
    if rewritten and body.pop("tools", None):
        body["messages"].insert(0, {"role": "system", "content": "tools"})
    system = [message for message in body["messages"] if message["role"] == "system"]
    others = neighbours_joined([message for message in body["messages"] if message["role"] != "system"])
    forms = [neighbours_joined(system) + others, neighbours_joined([{**message, "role": "user"} for message in system] + others)]
    return any(expected(template, {**body, "messages": form}) is not None for form in forms)


class ChatPrompts(unittest.TestCase):
    maxDiff = None

    def check(self, template, body, answer, counts):
        text, right = answer.get("text"), expected(template, body)
        if is_rewritten(template, body) or right is None and text is not None:
            counts["joined or rewritten"] += 1
            if text is None:
                self.assertFalse(can_be_joined(template, body), answer.get("error"))
            lost = [m["content"] for m in body["messages"] if m["role"] == "user" and m["content"].strip() not in (text or m["content"])]
            self.assertEqual(lost, [])
        elif right is None:
            counts["refused by both"] += 1
            self.assertFalse(can_be_joined(template, body), answer.get("error"))
        else:
            counts["equal"] += 1
            self.assertEqual(text, right, answer.get("error"))

    def test_random_conversations(self):
        templates = [(path.name, path.read_text()) for path in FILES]
        conversations = Conversations(SEED)
        counts = dict.fromkeys(["equal", "refused by both", "joined or rewritten"], 0)
        todo, batch = CONVERSATIONS, 500
        failed = 0
        while todo > 0 and failed < 20:
            chats = [(*conversations.r.choice(templates), conversations.body()) for _ in range(min(batch, todo))]
            todo -= len(chats)
            requests = [{"template": template, "body": json.dumps(body, ensure_ascii=False)} for _, template, body in chats]
            done = subprocess.run([RENDERER], input=json.dumps(requests), capture_output=True, text=True, check=True)
            for (name, template, body), answer in zip(chats, json.loads(done.stdout), strict=True):
                with self.subTest(template=name, body=json.dumps(body, ensure_ascii=False)):
                    failed += 1
                    self.check(template, body, answer, counts)
                    failed -= 1
        print(f"{len(templates)} templates, {CONVERSATIONS} conversations, seed {SEED}: {counts}")
        self.assertGreater(counts["equal"], 0.3 * CONVERSATIONS)


if __name__ == "__main__":
    unittest.main()
