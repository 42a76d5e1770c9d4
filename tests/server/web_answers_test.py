"""How the page shows answers (skips where there is no Chromium).

    web_answers_test.py PROGRAM SOURCE_DIR [unittest arguments]

COPPICE_BROWSER names another program; COPPICE_SCREENSHOTS a folder for pictures of the page.
"""

import json
import random
import tempfile

from server_case import LAYERS, MODEL, PROGRAM
from browser import run_tests
from script_model import TEMPLATE, write_script_model
from server_support import Server
import web_support
from web_support import Case, Prompt, canned, set_value, sse

SHORT = "tests/data/prompt-2k"  # 2,220 tokens


def bodies(tab, path):
    return [json.loads(body) for _, url, body in tab.requests if url.endswith(path) and body]


def stream(text, finish="stop"):
    return canned(["a ", "b "], [{"kept": [2]}] * LAYERS, text, finish=finish)


class Answers(Case):
    def test_cut_answers_are_marked(self):
        tab = self.open()
        self.prepare(tab, "Once upon a time there was a mill.")
        tab.js(set_value("#max-tokens", "3"))
        self.ask(tab, "Where?")
        self.assertEqual(tab.text(".cut-note"), "Cut after 3 tokens, the longest answer that the settings allow.")
        self.assertTrue(tab.visible(".answer.cut"))
        tab.answer_instead("/v1/completions", stream("whole"))
        self.ask(tab, "And then?")
        self.assertEqual(tab.js("document.querySelectorAll('#log .cut, #log .cut-note').length"), 0)
        tab.js(set_value("#max-tokens", "-1"))
        tab.answer_instead("/v1/completions", stream("as far as it goes", "length"))
        self.ask(tab, "And then?")
        self.assertEqual(tab.text("#log .cut-note"), "Cut: the context is full.")
        # An answer that the connection cut.
        tab.answer_instead("/v1/completions", sse({"choices": [{"index": 0, "text": "half"}]}).replace("data: [DONE]\n\n", ""))
        self.ask(tab, "And then?")
        self.assertEqual(tab.text("#log .cut"), "half")

    def test_an_answer_that_the_user_stopped_is_marked(self):
        tab = self.open()
        self.prepare(tab, Prompt(SHORT).document, form="{document}{question}")
        tab.js(set_value("#max-tokens", "15000"))
        tab.js("document.querySelector('#question').focus()")
        tab.write("And")
        tab.press("Enter")
        tab.wait("document.querySelector('.answer')?.textContent.length > 5", 60)
        tab.press("Escape")
        self.server.wait_idle(5)
        self.idle(tab, 5)
        self.assertEqual(tab.text(".cut-note"), "Stopped: the answer is not whole.")
        self.assertGreater(len(tab.text(".answer.cut")), 5)

    def test_markdown(self):
        tab = self.open()
        self.prepare(tab, "A text.")
        text = ("# Report\n\nThe **gate** is *not* open; see `a_b` and [rules](https://example.org/r?a=1).\n\n1. one\n2. two\n"
                "   - inner\n\n```py\nif a < b: # **no**\n```\n\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\nsnake_case_name 2 * 3 * 4")
        tab.answer_instead("/v1/completions", stream(text))
        self.ask(tab, "Show it")
        shown = tab.js("[...document.querySelectorAll('.answer > *')].map(e => e.tagName + ' ' + e.textContent)")
        self.assertEqual(shown, ["H3 Report", "P The gate is not open; see a_b and rules.", "OL onetwoinner",
                                 "PRE if a < b: # **no**", "BLOCKQUOTE said", "DIV ab12", "HR ", "P snake_case_name 2 * 3 * 4"])
        self.assertEqual(tab.js("[...document.querySelectorAll('.answer p > *')].map(e => e.tagName + ' ' + e.textContent)"),
                         ["STRONG gate", "EM not", "CODE a_b", "A rules"])
        self.assertEqual(tab.js("document.querySelectorAll('.answer ol > li > ul > li').length"), 1)
        self.picture(tab, "markdown")

    def test_markdown_holds_nothing_that_acts(self):
        tab = self.open()
        self.prepare(tab, "A text.")
        links = ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "file:///etc/passwd", "//example.org", "/slots",
                 "java&#115;cript:x", "vbscript:x", "https:evil", "http://"]
        text = "".join(f"- [link]({link}) ![image]({link})\n" for link in links)
        hostile = ("<b>bold</b> <script>document.title='broken'</script> [x](https://a.b/\"onclick=\"document.title='broken')\n"
                   "[<img src=x onerror=document.title='broken'>](https://example.org/<i>)\n\n![i](https://example.org/i.png)\n")
        tab.answer_instead("/v1/completions", stream(text + "\n" + hostile))
        self.ask(tab, "Show it")
        found = tab.js("""[...document.querySelectorAll('.answer *')].filter(
            e => !['P', 'UL', 'LI', 'A', 'BR', 'EM', 'STRONG'].includes(e.tagName)).map(e => e.tagName)""")
        self.assertEqual(found, [])
        for link in tab.js("""[...document.querySelectorAll('.answer a')].map(
                a => [a.protocol, a.rel, a.target, a.getAttributeNames().sort().join()])"""):
            self.assertEqual(link, ["https:", "noopener noreferrer nofollow", "_blank", "href,rel,target"])
        self.assertEqual(tab.js("[...document.querySelectorAll('.answer li')].filter(e => e.querySelector('a:not([href*=evil])')).length"), 0)
        self.assertIn("<script>document.title='broken'</script>", tab.text(".answer"))
        self.assertEqual(tab.js("document.title"), "coppice")

    def test_markdown_of_any_text_ends_soon(self):
        tab = self.open()
        source = random.Random(3)
        texts = ["*" * 30000, "_a " * 10000, "[(" * 20000, "`a" * 20000, "> " * 5000 + "x", "- " * 5000 + "x", "# " * 20000,
                 "|" * 20000 + "\n|-|", "- \n  - " * 3000, "http://" * 5000, " " * 30000 + "x", "```" * 9000, "1. a\n" * 5000,
                 *("".join(source.choice("*_`[]()!#>-|~ \n\\ahttps:/1.") for _ in range(4000)) for _ in range(60))]
        lost, longest = tab.js("""(async texts => {
            const {Markdown} = await import('/web/lib/markdown.js');
            let lost = [], longest = 0;
            const letters = text => text.replace(/[^ahtps]/g, '').length;
            for (const text of texts) {
              const host = document.createElement('div'); const begin = performance.now();
              new Markdown(host).set(text); longest = Math.max(longest, performance.now() - begin);
              if (host.textContent.length > text.length) lost.push(text.slice(0, 40));
            }
            return [lost, longest]; })(%s)""" % json.dumps(texts))
        self.assertEqual(lost, [], "nothing is added")
        self.assertLess(longest, 1500, "ms")

    def test_a_growing_answer_keeps_what_stays_the_same(self):
        tab = self.open()
        same = tab.js("""(async () => { const {Markdown} = await import('/web/lib/markdown.js');
            const host = document.createElement('div'); const markdown = new Markdown(host);
            markdown.set('first\\n\\n- a'); const [first, list] = host.children;
            markdown.set('first\\n\\n- a\\n- b\\n\\nlast');
            return [host.children[0] === first, host.children[1] === list, host.textContent]; })()""")
        self.assertEqual(same, [True, False, "firstablast"])

    def test_copy(self):
        tab = self.open()
        self.prepare(tab, "A text.")
        tab.answer_instead("/v1/completions", stream(" **bold** text"))
        self.ask(tab, "Show it")
        tab.js("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text; }}})")
        tab.click(".copy")
        tab.wait("document.querySelector('.copy').textContent === 'Copied'")
        self.assertEqual(tab.js("window.copied"), "**bold** text")
        # Where a page without TLS has no clipboard.
        tab.js("""navigator.clipboard.writeText = async () => { throw new Error('no'); };
                  document.execCommand = what => { window.fallback = [what, document.activeElement.value]; return true; }""")
        tab.click(".copy")
        tab.wait("window.fallback")
        self.assertEqual(tab.js("window.fallback"), ["copy", "**bold** text"])
        self.assertEqual(tab.js("document.querySelectorAll('body > textarea').length"), 0)

    def test_plain_words_before_figures(self):
        tab = self.open()
        self.prepare(tab, "A text.")
        for cached, words in [(0, r"^Read 2 tokens in [\d.]+ s; 25 % of the work of a full read\.$"),
                              (1, r"^Read 1 token, took 1 from the cache, all in [\d.]+ s; 25 % of the work")]:
            tab.answer_instead("/v1/completions", canned(["a ", "b "], [{"kept": [2]}] * LAYERS, "fine", cached=cached))
            self.ask(tab, "Which?")
            self.assertRegex(tab.text("#log .read"), words)
        self.assertFalse(tab.visible("#log .facts"))
        tab.click("#log .figures summary")
        self.assertTrue(tab.visible("#log .facts"))
        tab.answer_instead("/v1/completions", canned(["a "], [{"kept": [1]}] * LAYERS, "fine").replace('"active": true', '"active": false'))
        self.ask(tab, "Which?")
        self.assertRegex(tab.text("#log .read"), r"^Read 1 token in [\d.]+ s\.$")

    def test_a_phone_has_the_question_before_the_method(self):
        tab = self.open(width=390, height=844, mobile=True)
        document, question, method = tab.js("""['#document', '#question', '#method-card'].map(
            s => document.querySelector(s).getBoundingClientRect().top)""")
        self.assertTrue(document < question < method, (document, question, method))
        self.assertLess(method, 844, "all of it at once")

    def test_newest_answer_first(self):
        for width, mobile in [(1280, False), (360, True)]:
            tab = self.open(width=width, height=740, mobile=mobile)
            self.prepare(tab, "Once upon a time there was a mill. " * 40)
            for question in ["First?", "Second?", "Third?"]:
                self.ask(tab, question)
            self.assertEqual(tab.js("[...document.querySelectorAll('.question')].map(e => e.textContent)"),
                             ["Third?", "Second?", "First?"])
            top, bottom, document, earlier = tab.js("""['#log .answer', '#log .figures', '#document', '#earlier'].map(
                s => document.querySelector(s).getBoundingClientRect().top)""")
            self.assertTrue(0 <= top < (200 if mobile else 450) and bottom < 740, (top, bottom))
            self.assertGreater(earlier, bottom)
            if mobile:
                self.assertGreater(document, bottom)

    def test_a_phone_stays_at_an_answer_that_grows(self):
        tab = self.open(width=360, height=740, mobile=True, scheme="dark")
        prompt = self.prepare_prompt(tab, SHORT, "random")
        tab.js(set_value("#key-of-min", "0") + set_value("#max-tokens", "150") + "document.querySelector('#compare').checked = true")
        self.ask(tab, prompt.question)
        self.assertLess(abs(tab.js("document.querySelector('#log-card').getBoundingClientRect().top")), 40)
        self.picture(tab, "phone-compare")

    def test_answers_stand_in_the_wide_column(self):
        tab = self.open()
        self.prepare(tab, "A text.")
        tab.answer_instead("/v1/completions", stream("```\n" + "wide " * 200 + "\n```"))
        self.ask(tab, "Which?")
        log, setup, page = tab.js("""[document.querySelector('#log').clientWidth, document.querySelector('#document-card').clientWidth,
                                   document.documentElement.scrollWidth]""")
        self.assertGreater(log, 1.5 * setup)
        self.assertEqual(page, tab.js("document.documentElement.clientWidth"), "code scrolls in its own box")

    def test_the_map_shows_its_first_label_whole(self):
        tab = self.open()
        rows = tab.js("""(async () => { const {cellMap} = await import('/web/lib/charts.js');
            const host = document.createElement('div'); document.body.append(host);
            cellMap(host, {left: 48, rows: 80, columns: 10, cell: 4, xMax: 9, xShift: .5, xTitle: '', yTitle: '', label: '',
                           colourOf: () => [0, 0, 0], describe: () => ''});
            const data = host.firstChild.getContext('2d').getImageData(24, 0, 20, 24).data;
            return Array.from({length: 24}, (_, y) => data.subarray(y * 80, y * 80 + 80).some(v => v > 0)); })()""")
        ink = [y for y, has in enumerate(rows) if has]
        self.assertGreater(ink[0], 0)
        self.assertGreaterEqual(ink[-1] - ink[0], 7, ink)


class Thinking(Case):
    """Of a model that thinks, by heart."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = f"{cls.folder.name}/m.gguf"
        write_script_model(path, {"A": "<think>\nHm, <b>bold</b>.\n</think>\n\nFour, I say.", "B": "No thought, said at once."},
                           template=TEMPLATE + "{# '<think>' '</think>' #}")
        cls.server = Server(PROGRAM, path, "--temp", "0").wait_ready()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_thinking_is_folded_above_the_answer(self):
        tab = self.open()
        self.ask(tab, "A")
        self.assertEqual(tab.text("#log .answer").strip(), "Four, I say.")
        self.assertEqual(tab.js("document.querySelector('#log .thinking > div').textContent"), "Hm, <b>bold</b>.")
        self.assertFalse(tab.js("document.querySelector('#log .thinking').open"))
        self.picture(tab, "thinking")
        self.ask(tab, "B")
        self.assertEqual(tab.js("document.querySelectorAll('#log .thinking').length"), 0)
        sent = bodies(tab, "/v1/chat/completions")[-1]["messages"]
        self.assertEqual([message["content"] for message in sent], ["A", "Four, I say.", "B"])


class Twice(Case):
    def compare(self, tab, question):
        tab.js("document.querySelector('#compare').checked = true")
        self.ask(tab, question)
        return bodies(tab, "/v1/completions")[-2:]

    def test_dense_beside_pruned(self):
        tab = self.open()
        prompt = self.prepare_prompt(tab, SHORT, "random")
        tab.js(set_value("#key-of-keep", "0.05") + set_value("#key-of-min", "0"))
        pruned, dense = self.compare(tab, prompt.question)
        self.assertEqual((pruned["prune"]["method"], dense["prune"]), ("random", "none"))
        for name in ["prompt", "seed", "cache_prompt", "max_tokens", "temperature"]:
            self.assertEqual(pruned[name], dense[name])
        self.assertIs(dense["cache_prompt"], False)
        texts = tab.js("[...document.querySelectorAll('#log .answer')].map(e => e.textContent)")
        self.assertIn(prompt.answer, texts[1])
        self.assertNotEqual(texts[0], texts[1])
        marks = tab.js("[...document.querySelectorAll('#log .answer')].map(e => [...e.querySelectorAll('mark')].map(m => m.textContent))")
        self.assertEqual([len(m) for m in marks], [1, 1])
        self.assertRegex(tab.text(".verdict"), r"first differ at word \d+.*pruned one took [\d.]+ s, the dense one [\d.]+ s")
        at = [text.index(mark[0]) for text, mark in zip(texts, marks)]
        self.assertEqual(texts[0][:at[0]], texts[1][:at[1]])
        boxes = tab.js("[...document.querySelectorAll('#log .column')].map(e => { const b = e.getBoundingClientRect(); return [b.left, b.top]; })")
        self.assertEqual(boxes[0][1], boxes[1][1])
        self.assertGreater(boxes[1][0], boxes[0][0] + 200)
        self.assertEqual(tab.js("document.querySelectorAll('#log .facts').length"), 2)
        self.picture(tab, "compare")
        # The picture is that of the pruned run.
        self.assertRegex(tab.text("#legend"), r"0 of 10 layers")
        self.ask(tab, prompt.question)
        self.assertEqual(len(bodies(tab, "/v1/completions")), 4)

    def test_equal_answers_have_no_mark(self):
        tab = self.open()
        self.prepare(tab, "A text.")
        tab.answer_instead("/v1/completions", stream("the same"))
        self.compare(tab, "Which?")
        self.assertTrue(tab.text(".verdict").startswith("Both answers are the same, word for word."))
        self.assertEqual(tab.js("document.querySelectorAll('mark').length"), 0)

    def test_where_answers_differ(self):
        tab = self.open()
        for a, b, marks in [("one two three", "one too three", ["two", "too"]), ("a **bold** end", "a **bald** end", ["bold", "bald"]),
                            ("one two", "one two three", ["ends here", " three"]), ("cat", "cats", ["cat", "cats"]),
                            ("- x\n- y", "- x\n- z", ["y", "z"]), ("", "x", ["ends here", "x"]), ("- x y", "- x\n- y", [" y", "y"])]:
            found = tab.js("""(async (a, b) => { const {AnswerView, markDifference} = await import('/web/server/answer.js');
                const views = [a, b].map(text => { const view = new AnswerView(''); view.add(text); view.draw(); return view; });
                markDifference(...views); return views.map(view => view.body.querySelector('mark').textContent); })(%s, %s)"""
                           % (json.dumps(a), json.dumps(b)))
            self.assertEqual(found, marks)

    def test_stop_ends_both(self):
        tab = self.open()
        self.prepare(tab, " ".join(random.Random(1).choices(["light", "colour", "glass"], k=9000)))
        tab.js("document.querySelector('#compare').checked = true; document.querySelector('#question').focus()")
        tab.write("Stop me")
        tab.press("Enter")
        tab.wait("/Pruned: .*layer [2-9] of/.test(document.querySelector('#progress-text').textContent)")
        tab.press("Escape")
        self.idle(tab, 5)
        self.assertEqual(tab.js("[...document.querySelectorAll('#log .note')].map(e => e.textContent)"), ["Stopped.", "Not asked."])
        self.assertEqual(len(bodies(tab, "/v1/completions")), 1)


class Completing(Case):
    options = ("-c", "20000", "--temp", "0")

    def test_the_read_is_completed_and_shown(self):
        tab = self.open()
        prompt = self.prepare_prompt(tab, "models/demo-prompt")
        tab.js("""document.querySelector('#complete').checked = true; window.seen = [];
                  new MutationObserver(() => seen.push([document.querySelector('#completing-text').textContent,
                    document.querySelector('#completing-bar').value])).observe(document.querySelector('#completing'),
                    {subtree: true, childList: true, characterData: true, attributes: true})""")
        self.ask(tab, prompt.question)
        tab.wait("/The read is complete/.test(document.querySelector('#completing-text').textContent)", 60)
        self.picture(tab, "completed")
        shares = [share for text, share in tab.js("window.seen") if text.startswith("Reading what was left out of 8,746 tokens")]
        self.assertTrue(shares, tab.js("window.seen"))
        self.assertEqual(shares, sorted(shares))
        self.assertGreater(self.server.metrics()["coppice_documents_completed_total"], 0)
        tab.js(set_value("#question", ""))
        tab.wait("/the read of the document is complete/.test(document.querySelector('#plan').textContent)")
        self.ask(tab, "What is the secret code of the misty harbor?")
        self.assertIn("the document's read is complete", tab.text("#log"))
        self.assertFalse(tab.visible("#completing"), "a dense answer leaves nothing out")
        tab.js("document.querySelector('#complete').checked = false")
        self.ask(tab, "What is the secret code of the misty harbor?")
        self.assertIs(bodies(tab, "/v1/completions")[-1]["prune"]["complete"], False)

    def test_what_is_not_completed_is_said(self):
        server = Server(PROGRAM, MODEL, "-c", "20000", "--temp", "0", "--cache-ram", "1", "--complete").wait_ready()
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server)
        prompt = self.prepare_prompt(tab, SHORT)
        self.assertTrue(tab.js("document.querySelector('#complete').checked"), "as the server was started")
        self.ask(tab, prompt.question)
        tab.wait("/does not complete this read/.test(document.querySelector('#completing-text').textContent)")


if __name__ == "__main__":
    run_tests(vars(web_support))
