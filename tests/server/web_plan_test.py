"""What the page says before a question (skips where there is no Chromium).

    web_plan_test.py PROGRAM SOURCE_DIR [unittest arguments]

COPPICE_BROWSER names another program; COPPICE_SCREENSHOTS a folder for pictures of the page.
"""

import json
import re

from server_case import MODEL, PROGRAM
from browser import run_tests
from server_support import Server
import web_support
from web_support import Case, set_value

SHORT = "tests/data/prompt-2k"  # 2,220 tokens


def bodies(tab, path):
    return [json.loads(body) for _, url, body in tab.requests if url.endswith(path) and body]


class Before(Case):
    def plan(self, tab, words):
        tab.wait(f"/{words}/.test(document.querySelector('#plan').textContent)")
        return tab.text("#plan")

    def test_says_that_the_method_stands_aside_and_offers_to_prune(self):
        tab = self.open()
        prompt = self.prepare_prompt(tab, SHORT, "coppice")
        tab.js(set_value("#key-of-keep", "0.2") + set_value("#key-of-min", "4000") + set_value("#question", prompt.question))
        text = self.plan(tab, "break-even of 4000")
        said = int(re.search(r"about ([\d,]+) tokens", text).group(1).replace(",", ""))
        self.assertAlmostEqual(said, self.server.good("/tokenize", {"prompt": prompt.text})["count"], delta=3)
        self.assertIn(f"nothing will be pruned: coppice: {said} prompt tokens are below", text)
        self.assertEqual(tab.text("#prune-anyway"), "Prune anyway: coppice:keep=0.2,min=0")
        self.picture(tab, "plan")
        tab.click("#prune-anyway")
        self.plan(tab, "the method will prune it")
        self.assertFalse(tab.visible("#prune-anyway"))
        self.assertEqual(tab.js("document.querySelector('#key-of-min').value"), "0")
        self.idle(tab)
        tab.press("Enter")
        tab.wait("document.querySelectorAll('.facts').length === 1", 60)
        self.assertEqual(bodies(tab, "/v1/completions")[0]["prune"],
                         {"method": "coppice", "keep": "0.2", "min": "0", "complete": False})
        self.assertIn("FLOPs saved", tab.text(".facts"))

    def test_what_the_server_would_do_by_itself(self):
        tab = self.open()
        self.prepare_prompt(tab, SHORT, "auto")
        self.plan(tab, "no calibration for this model")
        self.assertEqual(tab.text("#prune-anyway"), "Prune anyway: coppice")
        tab.js(set_value("#method", "default"))
        self.plan(tab, "the server's choice is to prune nothing")
        tab.js(set_value("#method", "none"))
        self.plan(tab, "all of it will be computed")
        self.assertFalse(tab.visible("#prune-anyway"))
        tab.js(set_value("#method", "own") + set_value("#spec", "lazyllm:min=9000+ftp:min=8000"))
        self.plan(tab, "break-even of 9000; ftp: ")
        tab.click("#prune-anyway")
        self.plan(tab, "will prune")
        self.assertEqual(tab.js("document.querySelector('#spec').value"), "lazyllm:min=0+ftp:min=0")

    def test_a_document_that_is_too_long_is_not_asked_about(self):
        tab = self.open()
        self.prepare(tab, "word " * 30000, "none")
        tab.js(set_value("#question", "Which word?"))
        text = self.plan(tab, "Too long")
        over, tokens = (int(n.replace(",", "")) for n in re.search(r"by about ([\d,]+) tokens: the prompt has about ([\d,]+), and the "
                                                                  r"context holds 20,000. Shorten", text).groups())
        self.assertEqual(over, tokens - 20000)
        asked = self.server.good("/tokenize", {"prompt": "word " * 30000 + "\nQuestion: Which word?\nAnswer:"})["count"]
        self.assertAlmostEqual(tokens, asked, delta=4)
        self.assertTrue(tab.js("document.querySelector('#send').disabled"))
        self.picture(tab, "too-long")
        tab.js("document.querySelector('#question').focus()")
        tab.press("Enter")
        self.assertEqual(bodies(tab, "/v1/completions"), [])
        self.assertFalse(tab.visible("#problem"), "said once")
        tab.js(set_value("#document", "word " * 30))
        self.assertFalse(tab.js("document.querySelector('#send').disabled"))
        self.plan(tab, "all of it will be computed")
        self.ask(tab, "")
        self.assertEqual(len(bodies(tab, "/v1/completions")), 1)

    def test_no_keyboard_hints_where_there_is_no_keyboard(self):
        tab = self.open()
        self.assertTrue(tab.visible("#question-help"))
        self.assertIn("arrow keys", tab.text("#token"))
        tab = self.open(width=390, height=844, mobile=True)
        self.assertFalse(tab.visible("#question-help"))
        self.assertNotIn("keys", tab.text("#token"))

    def test_the_offer_is_one_that_the_server_would_take(self):
        # The prompt is shorter than what streamingllm keeps, whatever min says.
        tab = self.open()
        self.prepare(tab, "Word.", "streamingllm")
        self.plan(tab, "nothing will be pruned")
        plan = self.server.good("/plan", {"prompt_tokens": 5, "prune": "streamingllm:min=0"})
        tab.wait(f"document.querySelector('#prune-anyway').hidden === {json.dumps(not plan['active'])}")

    def test_counts_tokens_when_nobody_types_and_not_too_many(self):
        tab = self.open()
        for text in ["O", "On", "Once", "Once upon a time"]:
            tab.js(set_value("#document", text))
        count = self.server.good("/tokenize", {"content": "Once upon a time"})["count"]
        tab.wait(f"document.querySelector('#document-size').textContent === '{count} tokens'")
        self.assertEqual([body["content"] for body in bodies(tab, "/tokenize") if "content" in body], ["Once upon a time"])
        long = "Once upon a time there was a mill. " * 12000
        tab.js(set_value("#document", long))
        tab.wait("/^about/.test(document.querySelector('#document-size').textContent)")
        said = int(tab.text("#document-size").split()[1].replace(",", ""))
        self.assertAlmostEqual(said / self.server.good("/tokenize", {"content": long})["count"], 1, delta=0.01)
        self.assertLessEqual(max(len(body["content"]) for body in bodies(tab, "/tokenize") if "content" in body), 400000)

    def test_a_server_that_does_not_count(self):
        tab = self.open()
        for path in ["/tokenize", "/plan"]:
            tab.answer_instead(path, '{"error": {"message": "too many"}}', status=429, kind="application/json")
        tab.js(set_value("#document", "Some text."))
        tab.wait("performance.getEntriesByType('resource').some(e => e.name.endsWith('/tokenize'))")
        self.assertEqual(tab.text("#document-size"), "10 characters")
        tab.js("new Promise(done => setTimeout(done, 300))")
        tab.js(set_value("#document", "Some other text."))
        tab.js("new Promise(done => setTimeout(done, 800))")
        self.assertEqual(len(bodies(tab, "/tokenize")), 1, "the limit is left to the question")
        self.assertFalse(tab.visible("#problem"))

    def test_documents_are_read_at_temperature_0(self):
        server = Server(PROGRAM, MODEL, "-c", "4096", "--temp", "0.9").wait_ready()
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server)
        self.prepare(tab, "A text.")
        self.ask(tab, "Which?")
        tab.js(set_value("#temperature", "0.5"))
        self.ask(tab, "Which?")
        tab.js(set_value("#temperature", "") + set_value("#document", ""))
        self.ask(tab, "Which?")
        self.assertEqual([body.get("temperature") for body in bodies(tab, "/v1/completions")], [0, 0.5, None])

    def test_repetition_is_damped_at_temperature_0(self):
        server = Server(PROGRAM, MODEL, "-c", "4096", "--temp", "0.9").wait_ready()
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server)
        self.prepare(tab, "A text.")
        for temperature, damping in [("", ""), ("0.5", ""), ("0.5", "1.5"), ("", "0")]:
            tab.js(set_value("#temperature", temperature) + set_value("#damping", damping))
            self.ask(tab, "Which?")
        self.assertEqual([body.get("dry_multiplier") for body in bodies(tab, "/v1/completions")], [0.8, None, 1.5, 0])
        tab.js(set_value("#damping", "much"))
        tab.js("document.querySelector('#question').focus()")
        tab.write("Which?")
        tab.press("Enter")
        tab.wait("document.body.innerText.includes('Damping of repetition: much is not a number from 0')")

    def test_a_server_that_damps_keeps_its_own(self):
        server = Server(PROGRAM, MODEL, "-c", "4096", "--dry-multiplier", "0.5").wait_ready()
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server)
        self.prepare(tab, "A text.")
        self.ask(tab, "Which?")
        self.assertEqual([body.get("dry_multiplier") for body in bodies(tab, "/v1/completions")], [None])
        self.assertIn("0.5, as the server was started", tab.text("#damping-help"))


if __name__ == "__main__":
    run_tests(vars(web_support))
