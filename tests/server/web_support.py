"""What tests of the page have in common: a server and a tab, what they write, answers that no server of theirs gives."""

import json
import os
import pathlib
import unittest

from browser import Tab
from server_case import MODEL, PROGRAM, SOURCE
from server_support import Server

BROWSER = None  # set by browser.run_tests
PICTURES = os.environ.get("COPPICE_SCREENSHOTS")


class Prompt:
    """One of the texts that the bundled model answers: it goes on from the beginning of an answer."""

    def __init__(self, name):
        self.document, _, rest = (SOURCE / f"{name}.txt").read_text().rpartition("\nQuestion: ")
        self.question, _, lead = rest.partition("\nAnswer:")
        self.form = "{document}\nQuestion: {question}\nAnswer:" + lead
        self.text = self.document + "\nQuestion: " + rest
        self.answer = (SOURCE / f"{name}.answer").read_text().strip()


def set_value(selector, text):
    return f"""{{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(text)};
               e.dispatchEvent(new Event('input', {{bubbles: true}})); e.dispatchEvent(new Event('change', {{bubbles: true}})); }}"""


def sse(*events):
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def canned(pieces, layers, text, cached=0, depth=None, finish="stop", reuse=None):
    """A stream as the server sends it: pieces, what each layer kept, an answer, the account."""
    head = {"id": "x", "object": "text_completion"}
    progress = {"total": len(pieces), "cache": cached, "processed": len(pieces) // 2, "time_ms": 5}
    prune = {"spec": "canned", "active": True, "kept_per_layer": [len(pieces)] * 10, "flops": 3, "flops_dense": 12,
             "revived": 0, **({"depth": depth} if depth else {})}
    return sse({**head, "choices": [{"index": 0, "text": ""}], "prompt_progress": progress, "prompt_pieces": pieces,
                "prompt_layers": [{"layer": l, **kept} for l, kept in enumerate(layers)]},
               {**head, "choices": [{"index": 0, "text": text}]},
               {**head, "choices": [{"index": 0, "text": "", "finish_reason": finish}], "prune": prune,
                "timings": {"predicted_per_second": 12.5, **({"cache": reuse} if reuse else {})}},
               {**head, "choices": [], "usage": {"prompt_tokens": len(pieces), "completion_tokens": 3,
                                                 "prompt_tokens_details": {"cached_tokens": cached}}})


class Case(unittest.TestCase):
    options = ("-c", "20000", "--temp", "0", "--cache-ram", "0")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, MODEL, *cls.options).wait_ready()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def open(self, server=None, ready=True, **kwargs):
        server = server or self.server
        tab = Tab(BROWSER, f"http://127.0.0.1:{server.port}/", **kwargs)
        self.addCleanup(self.finish, tab)
        if ready:
            tab.wait("document.querySelector('#method').options.length > 3")
        return tab

    def finish(self, tab):
        tab.close()
        self.assertEqual(tab.problems, [])

    def picture(self, tab, name):
        if PICTURES:
            pathlib.Path(PICTURES).mkdir(parents=True, exist_ok=True)
            tab.screenshot(f"{PICTURES}/{name}.png")

    def prepare(self, tab, document, method="lazyllm", form="{document}\nQuestion: {question}\nAnswer:"):
        tab.js(set_value("#document", document) + set_value("#method", method) + set_value("#form", form)
               + set_value("#max-tokens", "8"))

    def prepare_prompt(self, tab, name, method="lazyllm"):
        prompt = Prompt(name)
        self.prepare(tab, prompt.document, method, prompt.form)
        return prompt

    def ask(self, tab, question, seconds=180):
        before = tab.js("document.querySelectorAll('.turn').length")
        tab.js("document.querySelector('#question').focus()")
        tab.write(question)
        tab.press("Enter")
        tab.wait(f"document.querySelectorAll('.turn').length > {before}")
        self.idle(tab, seconds)

    def idle(self, tab, seconds=180):
        tab.wait("document.querySelector('#progress').hidden", seconds)
