"""What a reload of the page keeps (skips where there is no Chromium).

    web_reload_test.py PROGRAM SOURCE_DIR [unittest arguments]

COPPICE_BROWSER names another program; COPPICE_SCREENSHOTS a folder for pictures of the page.
"""

import json
import pathlib
import tempfile

from server_case import LAYERS, MODEL, PROGRAM
from browser import run_tests
from chat_model import write_chat_model
from server_support import Server
import web_support
from web_support import Case, canned, set_value

DOCUMENT = "The gate opens at nine.\nBirds sing.\n"
STATE = "JSON.parse(Object.entries(sessionStorage).find(([name]) => name.startsWith('coppice-page'))?.[1] || 'null')"


class Reload(Case):
    def reload(self, tab):
        tab.call("Page.reload")
        tab.wait("document.readyState === 'complete' && document.querySelector('#method')?.options.length > 3")

    def stream(self, text, finish="stop"):
        pieces = ["The", " gate", " opens", " at", " nine.", "\nBirds", " sing.", "\n", "When?"]
        return canned(pieces, [{"kept": [len(pieces)]}] * LAYERS, text, finish=finish, depth=[[10, 5], [2, 4]])

    def test_document_question_settings_and_conversation(self):
        tab = self.open()
        tab.answer_instead("/v1/completions", self.stream("It opens at **nine**.", finish="length"))
        self.prepare(tab, DOCUMENT)
        tab.js(set_value("#key-of-keep", "0.3"))
        self.ask(tab, "When does the gate open?")
        tab.answer_instead("/v1/completions", "data: {\"error\": {\"code\": 503, \"message\": \"the server is stopping\"}}\n\n")
        self.ask(tab, "And then?")
        tab.js(set_value("#question", "Half a quest"))
        looks = ["#log", "#earlier", "#document-size", "#question", "#document", "#method", "#key-of-keep", "#max-tokens", "#form"]
        shown = "%s.map(s => { const e = document.querySelector(s); return e.value ?? e.textContent; })" % json.dumps(looks)
        tab.wait("/token/.test(document.querySelector('#document-size').textContent)")
        before = tab.js(shown)
        self.assertIn("It opens at nine.", before[1])
        self.reload(tab)
        tab.wait("/token/.test(document.querySelector('#document-size').textContent)")
        self.assertEqual(tab.js(shown), before)
        self.assertEqual(tab.text("#earlier .answer strong"), "nine")
        self.assertTrue(tab.visible("#restart"))
        tab.click("#earlier .quote")
        tab.wait("document.querySelector('#document-text .chosen')")
        self.assertEqual(tab.text("#document-text .chosen"), "The gate opens at nine.")
        self.reload(tab)
        self.assertEqual(tab.js(shown)[1], before[1], "a second time as well")

    def test_a_question_on_its_way_is_there_again(self):
        tab = self.open()
        self.prepare(tab, "word " * 9000, "none")
        tab.js("document.querySelector('#question').focus()")
        tab.write("Which word?")
        tab.press("Enter")
        tab.wait("/layer/.test(document.querySelector('#progress-text').textContent)")
        self.reload(tab)
        self.server.wait_idle(5)
        self.assertEqual(tab.js("document.querySelector('#question').value"), "Which word?")
        self.assertEqual(tab.js("document.querySelectorAll('.turn').length"), 0)

    def test_a_chat_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "chat.gguf")
            write_chat_model(MODEL, model)
            server = Server(PROGRAM, model).wait_ready()
            self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server)
        tab.js(set_value("#document", "The moon is far.") + set_value("#max-tokens", "4"))
        self.ask(tab, "How far?")
        self.reload(tab)
        self.ask(tab, "How bright?")
        sent = [json.loads(body) for _, url, body in tab.requests if url.endswith("/v1/chat/completions")]
        self.assertEqual([m["role"] for m in sent[1]["messages"]], ["user", "assistant", "user"])
        self.assertEqual(sent[1]["messages"][0]["content"], "The moon is far.\n\nHow far?")
        self.assertEqual(tab.js("document.querySelectorAll('.turn').length"), 2)

    def test_start_over(self):
        tab = self.open()
        self.assertFalse(tab.visible("#start-over"))
        self.prepare(tab, DOCUMENT)
        tab.wait("document.querySelector('#start-over').checkVisibility()")
        tab.js("window.old = true")
        tab.js("document.querySelector('#start-over').click()")
        tab.wait("!window.old && document.querySelector('#method')?.options.length > 3")
        self.assertEqual(tab.js("['#document', '#method'].map(s => document.querySelector(s).value)"), ["", "default"])
        tab.wait(f"{STATE}?.documents[0] === ''")
        self.assertFalse(tab.visible("#start-over"))

    def test_what_is_too_large_is_said(self):
        tab = self.open()
        tab.js(set_value("#document", DOCUMENT))
        tab.wait(f"{STATE}?.documents[0].startsWith('The gate')")
        self.assertFalse(tab.visible("#store-note"))
        tab.js("const e = document.querySelector('#document'); e.value = 'word '.repeat(1500000); e.dispatchEvent(new Event('input', {bubbles: true}));")
        tab.wait("document.querySelector('#store-note').checkVisibility()")
        self.assertIn("A reload of the page loses it.", tab.text("#store-note"))
        self.assertEqual(tab.js(f"{STATE}.documents"), [""], "no older one in its place")
        tab.js(set_value("#document", "short"))
        tab.wait("!document.querySelector('#store-note').checkVisibility()")

    def test_what_a_full_storage_keeps(self):
        tab = self.open()
        for room, kept, isKept in [(1000, ["new", "o" * 100], True), (100, ["new"], True), (20, [""], False), (5, None, False)]:
            found = tab.js("""import('/web/server/store.js').then(({write}) => { let text = null; const storage = {
                setItem: (name, value) => { if (value.length > %d) throw new Error('full'); text = value; }, removeItem: () => { text = null; }};
                const isKept = write(storage, 'x', {documents: ['new', 'o'.repeat(100)]}); return [text, isKept]; })""" % room)
            self.assertEqual([found[0] and json.loads(found[0])["documents"], found[1]],
                             [kept, isKept], room)

    def test_a_state_of_another_making_is_no_obstacle(self):
        for text in ["{", "[]", '{"settings": 3, "documents": null}', '{"documents": ["a"], "conversation": {"turns": [{}]}}']:
            tab = self.open()
            tab.js(f"sessionStorage.setItem('coppice-page:' + location.pathname, {json.dumps(text)});"
                   "addEventListener('pagehide', event => event.stopImmediatePropagation(), {capture: true})")
            self.reload(tab)
            self.prepare(tab, "A text.")
            self.ask(tab, "Which?")
            self.assertEqual(tab.js("document.querySelectorAll('.facts').length"), 1, text)


if __name__ == "__main__":
    run_tests(vars(web_support))
