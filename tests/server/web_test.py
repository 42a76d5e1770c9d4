"""The page of `coppice serve`, driven in headless Chromium (skips where there is none).

    web_test.py PROGRAM SOURCE_DIR [unittest arguments]

COPPICE_BROWSER names another program; COPPICE_SCREENSHOTS a folder for pictures of the page.
"""

import json
import pathlib
import random
import re
import tempfile
import unittest

from server_case import LAYERS, MODEL, PROGRAM
from browser import run_tests
from chat_model import write_chat_model
from server_support import Server
import web_support
from web_support import Case, Prompt, canned, set_value

LONG, SHORT = "models/demo-prompt", "tests/data/prompt-2k"  # 8,746 and 2,220 tokens


class Asking(Case):
    def test_methods_are_those_of_the_command(self):
        methods = self.server.good("/methods")["methods"]
        names = [m["name"] for m in methods]
        for name in ["lazyllm", "ftp", "sdtp", "sliminfer", "random"]:
            self.assertIn(name, names)
        tab = self.open()
        shown = tab.js("[...document.querySelectorAll('#method option')].map(o => o.value)")
        self.assertEqual(shown, ["default", "auto", "coppice", "none", *[n for n in names if n != "coppice"], "own"])
        self.assertFalse(tab.visible("#method"))
        tab.click("#method-fold > summary")
        lazy = next(m for m in methods if m["name"] == "lazyllm")
        tab.js(set_value("#method", "lazyllm"))
        self.assertIn(lazy["summary"], tab.text("#method-note"))
        # Few keys are in sight, the others behind "More settings".
        labels = "[...document.querySelectorAll('%s label')].map(l => l.textContent)"
        self.assertEqual(tab.js(labels % "#main-keys"), ["keep", "min"])
        self.assertEqual(tab.js(labels % "#method-keys"), [k["name"] for k in lazy["keys"] if k["name"] not in ("keep", "min")])
        self.assertTrue(tab.visible("#key-of-keep"))
        self.assertFalse(tab.visible("#key-of-layers"))
        for name, share in [("ftp", "eta"), ("quest", "budget"), ("xattention", "threshold"), ("minference", "vertical")]:
            tab.js(set_value("#method", name))
            self.assertEqual(set(tab.js(labels % "#main-keys")), {share, "min"})
        self.assertTrue(tab.js("document.querySelector('#method option[value=sdtp]').disabled"))

    def test_progress_shading_and_a_second_question(self):
        tab = self.open()
        prompt = self.prepare_prompt(tab, LONG)
        tab.js("""window.seen = []; new MutationObserver(() => seen.push([document.querySelector('#progress-text').textContent,
                  document.querySelector('#legend').textContent]))
                  .observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true})""")
        self.ask(tab, prompt.question)
        self.assertIn(prompt.answer, tab.text(".answer"))
        seen = tab.js("window.seen")
        shares = [int(m.group(1)) for text, _ in seen if (m := re.search(r"(\d+)(?:\.\d+)? %", text))]
        self.assertEqual(shares, sorted(shares))
        self.assertGreater(len(set(shares)), 4)
        self.assertTrue(any("left" in text for text, _ in seen), {text for text, _ in seen})
        live = {m.group(1) for _, legend in seen if (m := re.search(r"of (\d+) so far", legend))}
        self.assertGreater(len(live), 2, "the picture follows the layers")
        facts = tab.text(".facts")
        for name in ["First token", "FLOPs saved", "lazyllm:"]:
            self.assertIn(name, facts)

        # The shades are those that the server reports.
        reply = self.server.good("/v1/completions", {"prompt": prompt.text, "max_tokens": 8, "prune": {"method": "lazyllm"},
                                                     "return_prune_depth": True, "return_prompt_pieces": True})
        self.assertIn(prompt.answer, reply["choices"][0]["text"])
        depths = [depth for depth, count in reply["prune"]["depth"] for _ in range(count)]
        self.assertEqual(len(depths), reply["usage"]["prompt_tokens"])
        shown = tab.js("""[...document.querySelectorAll('#text .chunk')[0].children].map(
                          s => [s.textContent, Number(s.className.match(/d(\\d)/)[1])])""")
        pieces = reply["choices"][0]["prompt_pieces"]
        self.assertEqual(tab.text("#text"), "".join(pieces))
        self.assertGreater(len({shade for _, shade in shown}), 1)
        at = 0
        for text, shade in shown:
            while text:
                self.assertTrue(text.startswith(pieces[at]), (text, pieces[at]))
                expected = 0 if depths[at] == 0 else max(1, int(8 * depths[at] / LAYERS + .5))
                self.assertEqual(shade, expected, (at, depths[at]))
                text = text[len(pieces[at]):]
                at += 1
        # The map: `cellMap` of web/lib/charts.js, with rows of equal height above its axis.
        rows = tab.js("""(() => { const c = document.querySelector('#map canvas'); const g = c.getContext('2d');
            const high = c.height - 51; return Array.from({length: %d}, (_, l) => {
            const p = g.getImageData(60, 9 + Math.floor((l + .5) * high / %d), c.width - 72, 1).data; let dark = 0;
            for (let i = 0; i < p.length; i += 4) dark += 255 - p[i]; return dark; }); })()""" % (LAYERS, LAYERS))
        self.assertLess(rows[-1], rows[0] * .8, rows)
        self.picture(tab, "desktop-light")
        # LazyLLM brought tokens back, which the shades can count.
        self.assertGreater(tab.js("document.querySelectorAll('#text .back').length"), 0)
        shades = "[...document.querySelectorAll('#text .chunk')[0].children].map(s => s.className + s.textContent).join()"
        before = tab.js(shades)
        tab.click("#shade input[value=end]")
        tab.wait(f"{shades} !== {json.dumps(before)}")

        self.ask(tab, "What is the secret code of the misty harbor?")
        self.assertEqual(tab.js("document.querySelectorAll('.turn').length"), 2)
        self.assertEqual(tab.js("document.querySelectorAll('.facts').length"), 2)
        self.assertIn("misty harbor", tab.text("#text"))

    def test_cached_tokens_and_hostile_text(self):
        hostile = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>&amp;\u2028"
        tab = self.open()
        self.prepare(tab, hostile)
        reuse = {"cached_tokens": 3, "shared_tokens": 3, "reason": "differs", "differs_at": 3, "earlier": hostile, "now": "\u00e9"}
        tab.answer_instead("/v1/completions", canned(["<b>", "<i>", hostile, "\u00e9"], [{"kept": [4]}, {"kept": [0, 2, 2]}],
                                                     hostile, cached=3, depth=[[1, 2], [10, 2]], reuse=reuse))
        self.ask(tab, hostile)
        self.assertEqual(tab.text(".answer"), hostile)
        self.assertEqual(tab.text("#text"), "<b><i>" + hostile + "\u00e9")
        self.assertEqual(tab.js("document.querySelectorAll('.turn img, .turn script, #text img, #text b').length"), 0)
        self.assertEqual(tab.js("document.title"), "coppice")
        self.assertIn("From the cache3 tokens", tab.text(".facts"))
        self.assertIn("Read againit differs from an earlier prompt from token 4 on", tab.text(".facts"))
        self.assertIn(json.dumps(hostile, ensure_ascii=False), tab.text(".facts"))
        self.assertIn("FLOPs saved, answer included75 %", tab.text(".facts"))
        self.assertEqual(tab.js("[...document.querySelectorAll('#text .d1, #text .d8')].map(e => e.textContent.length)"),
                         [6, len(hostile) + 1])

    def test_ffn_shades(self):
        tab = self.open()
        self.ask(tab, self.prepare_prompt(tab, SHORT, "ftp").question)
        self.assertTrue(tab.visible("#shade"))
        self.assertFalse(tab.visible("#shade input[value=end]"))
        # The text is painted with the first frame after it is in sight.
        classes = "[...document.querySelectorAll('#text .chunk')[0].children].map(s => s.className)"
        tab.wait(f"{classes}[0] !== ''")
        self.assertEqual(tab.js(f"new Set({classes}).size"), 1)
        tab.click("#shade input[value=ffn]")
        tab.wait(f"new Set({classes}).size > 1")

    def test_server_errors_as_they_are(self):
        tab = self.open()
        self.prepare(tab, "word " * 30000, "none")
        self.ask(tab, "Too long?")
        message = self.server.ask("/v1/completions", {"prompt": "word " * 30000 + "\nQuestion: Too long?\nAnswer:"})[2]
        self.assertEqual(tab.text("#problem"), message["error"]["message"])
        self.assertEqual(tab.js("document.querySelector('#question').value"), "Too long?")
        self.prepare(tab, "A text.", "lazyllm")
        tab.js(set_value("#key-of-keep", "7"))
        tab.press("Enter")
        tab.wait("/keep/.test(document.querySelector('#problem').textContent)")
        self.idle(tab)
        # In the middle of a stream, and without an end.
        for body, words in [('data: {"error": {"code": 503, "message": "the server is stopping"}}\n\n', "the server is stopping"),
                            ('data: {"choices": [{"text": "half"}]}\n\n', "The connection ended before the answer did.")]:
            tab.answer_instead("/v1/completions", body)
            self.ask(tab, "again")
            self.assertEqual(tab.text("#problem"), words)

    def test_stop_frees_the_server(self):
        tab = self.open()
        random.seed(1)
        self.prepare(tab, " ".join(random.choice(["light", "colour", "glass", "prism"]) for _ in range(6000)), "none")
        for way in ["button", "escape"]:
            tab.js("document.querySelector('#question').focus()")
            tab.write("Stop me")
            tab.press("Enter")
            tab.wait("/layer [2-9] of/.test(document.querySelector('#progress-text').textContent)")
            self.assertTrue(self.server.slot()["is_processing"])
            tab.click("#stop") if way == "button" else tab.press("Escape")
            self.server.wait_idle(5)
            self.idle(tab, 5)
            self.assertEqual(tab.text("#log .note"), "Stopped.")
            self.assertEqual(tab.focus(), "question")
            tab.js(set_value("#question", ""))
        prompt = self.prepare_prompt(tab, SHORT)
        self.ask(tab, prompt.question)
        self.assertIn(prompt.answer, tab.text("#log .answer"))

    def test_files(self):
        tab = self.open()
        with tempfile.TemporaryDirectory() as folder:
            good, bad = pathlib.Path(folder, "text.txt"), pathlib.Path(folder, "picture.bin")
            good.write_text("from a file \u00e9")
            bad.write_bytes(b"\x89PNG\0\xff")
            node = tab.call("DOM.querySelector", nodeId=tab.call("DOM.getDocument")["root"]["nodeId"], selector="#file")["nodeId"]
            tab.call("DOM.setFileInputFiles", nodeId=node, files=[str(good)])
            tab.wait("document.querySelector('#document').value === 'from a file \\u00e9'")
            self.assertEqual(tab.text("#document-size"), "13 characters, from text.txt")
            tab.wait("/token/.test(document.querySelector('#document-size').textContent)")
            count = self.server.good("/tokenize", {"content": "from a file \u00e9"})["count"]
            self.assertEqual(tab.text("#document-size"), f"{count} tokens, from text.txt")
            tab.call("DOM.setFileInputFiles", nodeId=node, files=[str(bad)])
            tab.wait("/picture.bin is not a text/.test(document.querySelector('#problem').textContent)")
        tab.js("""const data = new DataTransfer(); data.items.add(new File(['dropped'], 'd.txt'));
                  document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))""")
        tab.wait("document.querySelector('#document').value === 'dropped'")
        self.assertFalse(tab.visible("#problem"))
        tab.click("#clear")
        self.assertEqual(tab.js("document.querySelector('#document').value"), "")


class Access(Case):
    def test_key_is_asked_for_and_not_kept(self):
        server = Server(PROGRAM, MODEL, "--api-key", "sesame").wait_ready()
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server, ready=False)
        tab.wait("document.activeElement.id === 'key'")
        self.assertFalse(tab.visible("#problem"), "a question, not an error")
        self.assertEqual(tab.text("#model"), "This server asks for a key.")
        self.picture(tab, "key")
        for key in ["wrong", "sesame"]:
            tab.js("document.querySelector('#key').select()")
            tab.write(key)
            tab.press("Enter")
            if key == "wrong":
                tab.wait("document.querySelector('#problem').checkVisibility()")
                self.assertEqual(tab.text("#problem"), "Invalid API Key")
        tab.wait("document.querySelector('#method').options.length > 3")
        self.assertFalse(tab.visible("#key-form"))
        self.prepare(tab, "A short text.")
        self.ask(tab, "Does it answer?")
        self.assertFalse(tab.visible("#problem"))
        kept = "Object.values({...localStorage, ...sessionStorage}).join() + document.cookie"
        tab.wait(f"/A short text/.test({kept})")
        self.assertNotIn("sesame", tab.js(kept))

    def test_chat_with_history(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "chat.gguf")
            write_chat_model(MODEL, model)
            server = Server(PROGRAM, model).wait_ready()
            self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        tab = self.open(server)
        self.assertFalse(tab.js("document.querySelector('#form-fields').checkVisibility()"))
        tab.js(set_value("#document", "The moon is far.") + set_value("#max-tokens", "4"))
        for question in ["How far?", "How bright?"]:
            # Counted before it is asked, with the template, the document and what was said so far.
            tab.js("document.querySelector('#plan').textContent = '';" + set_value("#question", question))
            said = tab.wait("/about (\\d+) tokens/.exec(document.querySelector('#plan').textContent)?.[1]")
            self.ask(tab, "")
            read = tab.js("/Prompt(\\d+) token/.exec(document.querySelector('#log .facts').textContent)[1]")
            self.assertAlmostEqual(int(said), int(read), delta=4)
        bodies = [json.loads(body) for _, url, body in tab.requests if url.endswith("/v1/chat/completions")]
        first = tab.text("#earlier .answer")
        self.assertEqual(bodies[1]["messages"], [
            {"role": "user", "content": "The moon is far.\n\nHow far?"}, {"role": "assistant", "content": first},
            {"role": "user", "content": "How bright?"}])
        self.assertIn("[user] How bright?", tab.text("#text"))
        tab.js(set_value("#document", "The sun is near."))
        self.ask(tab, "And now?")
        body = json.loads([body for _, url, body in tab.requests if url.endswith("/v1/chat/completions")][-1])
        self.assertEqual(body["messages"], [{"role": "user", "content": "The sun is near.\n\nAnd now?"}])
        tab.wait("/tokens with the conversation so far/.test(document.querySelector('#plan').textContent)")
        tab.click("#restart")
        self.assertEqual(tab.js("document.querySelectorAll('.turn').length"), 0)
        tab.wait("/tokens;/.test(document.querySelector('#plan').textContent)")


class Using(Case):
    def test_keyboard_alone(self):
        tab = self.open()
        order = []
        for _ in range(40):
            tab.press("Tab")
            if tab.focus() in order or tab.focus() == "BODY":
                break
            order.append(tab.focus())
            self.assertNotEqual(tab.js("getComputedStyle(document.activeElement).outlineStyle"), "none", order)
        self.assertEqual(order, ["skip", "theme", "document", "choose", "clear", "question", "send", "SUMMARY"])
        tab.js("document.activeElement.blur(); window.getSelection().removeAllRanges(); document.querySelector('.skip').focus()")
        tab.press("Enter")  # to the question
        tab.wait("document.activeElement.id === 'question'")
        for _ in range(3):
            tab.press("Tab", shift=True)
        self.assertEqual(tab.focus(), "document")
        tab.write("Ada the brave lives in Lisbon. " * 20)
        for _ in range(3):
            tab.press("Tab")
        tab.write("Where does Ada live?")
        for _ in range(2):
            tab.press("Tab")
        tab.press("Enter")  # opens the method's card
        tab.press("Tab")
        tab.press("ArrowDown")
        tab.press("ArrowDown")
        self.assertNotEqual(tab.js("document.querySelector('#method').value"), "default")
        for _ in range(2):
            tab.press("Tab", shift=True)
        self.assertEqual(tab.focus(), "send")
        tab.press(" ")  # the button, which turns into "Stop"
        tab.wait("document.querySelectorAll('.facts').length === 1", 60)
        tab.wait("document.activeElement.id === 'question'")
        for _ in range(20):
            tab.press("Tab")
            if tab.focus() == "text":
                break
        self.assertEqual(tab.focus(), "text")
        for key, number in [("ArrowRight", 1), ("ArrowRight", 2), ("End", None), ("Home", 1)]:
            tab.press(key)
            if number:
                self.assertTrue(tab.text("#token").startswith(f"Token {number} of "), tab.text("#token"))
        self.assertEqual(tab.js("document.querySelectorAll('.cursor').length"), 1)
        self.assertIn("Answer", tab.text("#say"))

    def test_names_for_screen_readers(self):
        tab = self.open()
        tab.js("for (const id of ['method-fold', 'settings']) document.getElementById(id).open = true;" + set_value("#method", "sliminfer"))
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "textbox", "combobox", "radio", "progressbar", "DisclosureTriangle", "image", "img", "link"}
        found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes
                 if not n.get("ignored") and n.get("role", {}).get("value") in roles]
        self.assertGreater(len(found), 12)
        self.assertEqual([role for role, name in found if not name], [])

    def test_phone(self):
        tab = self.open(width=360, height=740, mobile=True, scheme="dark")
        prompt = self.prepare_prompt(tab, SHORT)
        tab.js("for (const id of ['method-fold', 'settings']) document.getElementById(id).open = true")
        wide = """[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('.hidden, .skip, .text')
                  && e.getBoundingClientRect().right > innerWidth + .5).map(e => e.tagName + '#' + e.id)"""
        for stage in ["before", "after"]:
            self.assertEqual(tab.js("document.documentElement.scrollWidth"), 360, stage)
            self.assertEqual(tab.js(wide), [], stage)
            small = tab.js("""[...document.querySelectorAll('button, select, input:not([type=radio], [type=checkbox]), label.check, textarea')]
                .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 36).map(e => e.id)""")
            self.assertEqual(small, [], stage)
            if stage == "before":
                tab.js("document.querySelector('#settings').open = false")
                self.ask(tab, prompt.question)
        self.picture(tab, "phone-dark-answer")
        tab.js("document.querySelector('.picture').scrollIntoView()")
        self.picture(tab, "phone-dark-picture")

    def test_themes(self):
        tab = self.open(scheme="dark")
        page = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
        self.assertLess(tab.js(page), 50)
        tab.click("#theme")  # from the system's to light
        self.assertGreater(tab.js(page), 200)
        self.assertEqual(tab.text("#theme"), "Theme: light")
        tab.call("Page.reload")
        tab.wait("document.readyState === 'complete' && document.querySelector('#theme').textContent === 'Theme: light'")
        self.assertGreater(tab.js(page), 200)
        tab.click("#theme")
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        self.assertLess(tab.js(page), 50)
        tab.click("#theme")
        self.assertGreater(tab.js(page), 200)

    def test_long_documents_do_not_freeze_the_page(self):
        tab = self.open()
        random.seed(2)
        words = ["light ", "refraction ", "of ", "colours ", "the\n", "glass "]
        pieces = [random.choice(words) for _ in range(35000)]
        text = "".join(pieces)
        self.assertGreater(len(text), 200000)

        def kept(share):
            lengths, left = [], len(pieces)
            while left > 0:
                lengths.append(min(left, random.randint(1, 4) if len(lengths) % 2 == 0 else random.randint(1, round(4 / share))))
                left -= lengths[-1]
            return {"kept": lengths}

        tab.answer_instead("/v1/completions", canned(pieces, [{"kept": [len(pieces)]}] + [kept(1 / l) for l in range(1, LAYERS)], "fine"))
        tab.js("""window.long = 0; new PerformanceObserver(list => list.getEntries().forEach(e => { long = Math.max(long, e.duration); }))
                  .observe({type: 'longtask'})""")
        self.prepare(tab, text)
        self.ask(tab, "Is it long?")
        self.assertEqual(tab.js("document.querySelector('#text').textContent.length"), len(text))
        tab.js("document.querySelector('#text').scrollTo({top: 1e6, behavior: 'instant'})")
        tab.wait("document.querySelector('#text .chunk:last-child').children.length > 20")
        longest, spans = tab.js("[long, document.querySelectorAll('#text span').length]")
        self.assertLess(spans, 8000, "of 35,000 tokens only what is near has shades")
        self.assertLess(longest, 1500, "ms without an answer to a click")
        self.picture(tab, "long")


if __name__ == "__main__":
    run_tests(vars(web_support))
