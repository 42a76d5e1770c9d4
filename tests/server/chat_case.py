"""A server of a chat model for each class of tests, with the document cache."""

import pathlib
import tempfile
import unittest

from server_case import MODEL, PROGRAM
from gguf_edit import edit
from server_support import Server

CONTEXT = 4096
TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %} {{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}")


def user(text="x"):
    return {"role": "user", "content": text}


class Case(unittest.TestCase):
    options = ()
    template = TEMPLATE

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = pathlib.Path(cls.folder.name) / "m.gguf"
        cls.write(model)
        cls.server = Server(PROGRAM, model, "-c", str(CONTEXT), *cls.options).wait_ready()

    @classmethod
    def write(cls, model):
        edit(MODEL, model, texts={"tokenizer.chat_template": cls.template})

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def prompt(self, messages, **fields):
        return self.server.good("/apply-template", {"messages": messages, **fields})["prompt"]

    def refused(self, path, body, status=400):
        got, _, reply = self.server.ask(path, body)
        self.assertEqual(got, status, reply)
        return reply["error"]
