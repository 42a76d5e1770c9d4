"""Which passages of the document the page quotes under an answer, and the way to them (skips where there is no Chromium).

    web_passages_test.py PROGRAM SOURCE_DIR [unittest arguments]

COPPICE_BROWSER names another program; COPPICE_SCREENSHOTS a folder for pictures of the page.
"""

import json

from server_case import LAYERS
from browser import run_tests
import web_support
from web_support import Case, canned, set_value

FACT = "The gate opens at nine."
LINES = ["The sun is warm today.", FACT, "Birds sing.", "A gate is a door.", "The rain falls at night."]
DOCUMENT = "\n".join(LINES)


def tokens(text):
    """Words with the space before them, as pieces of a prompt."""
    pieces, word = [], ""
    for letter in text:
        if letter in " \n" and word:
            pieces.append(word)
            word = ""
        word += letter
    return pieces + [word]


def depths_of(pieces, deep, least=3, most=10):
    """A depth for each piece: `most` where it touches a text of `deep`."""
    text = "".join(pieces)
    spans = [(text.index(one), text.index(one) + len(one)) for one in deep]
    depths, at = [], 0
    for piece in pieces:
        begin = at + len(piece) - len(piece.lstrip())
        at += len(piece)
        depths.append(most if any(a <= begin < b for a, b in spans) else least)
    return depths


class Choosing(Case):
    """The pure part, with depths whose answer is known."""

    def choose(self, tab, document, pieces, depths, asked):
        found = tab.js("import('/web/server/passages.js').then(m => m.choosePassages(%s))" % json.dumps(
            {"document": document, "pieces": pieces, "depths": depths, "asked": asked}))
        return [document.encode("utf-16-le")[2 * p["begin"]:2 * p["end"]].decode("utf-16-le") for p in found]

    def test_known_answers(self):
        tab = self.open()
        prompt = tokens("<s>" + DOCUMENT + "\nQuestion: When does the gate open?")
        deep = [FACT, "Birds sing.", "The rain falls at night."]
        depths = depths_of(prompt, deep)
        with self.subTest("the deep sentence that is closest to the question comes first"):
            self.assertEqual(self.choose(tab, DOCUMENT, prompt, depths, "When does the gate open?")[0], FACT)
        with self.subTest("a shallow sentence is not quoted, whatever its words"):
            found = self.choose(tab, DOCUMENT, prompt, depths, "Is a gate a door?")
            self.assertNotIn("A gate is a door.", "".join(found))
        with self.subTest("without a shared word the depth sum decides, and neighbours are one passage"):
            self.assertEqual(self.choose(tab, DOCUMENT, prompt, depths, "xyz"),
                             ["\n".join([FACT, "Birds sing."]), "The rain falls at night."])
        with self.subTest("the answer's own words count"):
            self.assertEqual(self.choose(tab, DOCUMENT, prompt, depths, "When is it wet? At night.")[0], "The rain falls at night.")
        with self.subTest("other forms of a word are the same word"):
            self.assertEqual(self.choose(tab, DOCUMENT, prompt, depths, "Is it raining?")[0], "The rain falls at night.")
        with self.subTest("a sentence beside what the question names comes before one far from it"):
            text = "The pump fails.\nCall Ann.\nThe sun is warm.\nRain falls.\nCall Bob."
            pieces = tokens(text)
            found = self.choose(tab, text, pieces, depths_of(pieces, ["Call Ann.", "Call Bob."]), "Whom do I call if a pump failed?")
            self.assertEqual(found, ["Call Ann.", "Call Bob."])
        with self.subTest("no token is deeper than another"):
            self.assertEqual(self.choose(tab, DOCUMENT, prompt, [10] * len(prompt), "gate"), [])
        with self.subTest("a part of a sentence stayed: the whole sentence is quoted"):
            part = depths_of(prompt, ["gate opens at"])
            self.assertEqual(self.choose(tab, DOCUMENT, prompt, part, "When does the gate open?"), [FACT])

    def test_texts_that_are_not_in_the_prompt_as_they_are(self):
        tab = self.open()
        prompt = tokens("<s>" + DOCUMENT + "\nWhen?")
        depths = depths_of(prompt, [FACT])
        self.assertEqual(self.choose(tab, "  \n" + DOCUMENT + "\n ", prompt, depths, "gate"), [FACT])
        self.assertEqual(self.choose(tab, "Another text.", prompt, depths, "gate"), [])
        self.assertEqual(self.choose(tab, "", prompt, depths, "gate"), [])
        self.assertEqual(self.choose(tab, DOCUMENT, [], [], "gate"), [])

    def test_sentences(self):
        tab = self.open()
        text = "One of 3.5 parts. \"Two?\" said he!  Three\n\n  four\u3002five \U0001f600." + " " + "long word " * 80 + "y" * 700
        found = tab.js("import('/web/server/passages.js').then(m => m.sentences(%s))" % json.dumps(text))
        wide = text.encode("utf-16-le")
        shown = [wide[2 * a:2 * b].decode("utf-16-le") for a, b in found]
        self.assertEqual(shown[:6], ["One of 3.5 parts.", "\"Two?\"", "said he!", "Three", "four\u3002", "five \U0001f600."])
        self.assertLessEqual(max(map(len, shown)), 320)
        self.assertTrue(all(one == one.strip() and one for one in shown))
        self.assertEqual("".join("".join(shown).split()), "".join(text.split()), "nothing is lost")


class Quoting(Case):
    def asked(self, tab, document=DOCUMENT, active=True, deep=(FACT, "The rain falls at night."), **more):
        pieces = tokens(document + "\nQuestion: When does the gate open?\nAnswer:")
        depths = depths_of(pieces, deep)
        body = canned(pieces, [{"kept": [len(pieces)]}] * LAYERS, "At nine.", depth=[[d, 1] for d in depths])
        for name, value in {"active": active, **more}.items():
            body = body.replace('"active": true', f'"{name}": {json.dumps(value)}' + (', "active": true' if name != "active" else ""))
        tab.answer_instead("/v1/completions", body)
        self.prepare(tab, document)
        self.ask(tab, "When does the gate open?")

    def test_a_click_shows_the_place(self):
        filler = "\n".join(f"Line {n} of the long text." for n in range(300))
        document = filler + "\n" + DOCUMENT + "\n" + filler
        tab = self.open()
        self.asked(tab, document)
        self.assertEqual(tab.text(".quote"), FACT)
        tab.click(".quote")
        tab.wait("document.querySelector('#document-text .chosen')")
        self.assertEqual(tab.text("#document-text .chosen"), FACT)
        self.assertEqual(tab.text("#document-text"), document)
        inside = """(() => { const [a, b] = ['#document-text .chosen', '#document-text'].map(s => document.querySelector(s)
                    .getBoundingClientRect()); return a.top >= b.top && a.bottom <= b.bottom && a.top >= 0 && a.bottom <= innerHeight; })()"""
        tab.wait(inside)
        self.assertFalse(tab.visible("#document"))
        self.picture(tab, "passage")
        tab.click("#leave-view")
        self.assertTrue(tab.visible("#document"))
        self.assertFalse(tab.visible("#document-view"))
        self.assertEqual(tab.focus(), "quote")
        # A document that has changed since is shown as it was.
        tab.js(set_value("#document", "Another text."))
        tab.click(".quote")
        tab.wait("document.querySelector('#document-text .chosen')")
        self.assertIn("It has changed since.", tab.text("#view-note"))
        self.assertEqual(tab.text("#document-text"), document)

    def test_three_at_first(self):
        lines = [f"The gate number {n} opens." for n in range(9)]
        document = "".join(line + "\nNothing else is here to be read.\n" for line in lines)
        tab = self.open()
        self.asked(tab, document, deep=lines)
        shown = "[...document.querySelectorAll('.quote')].filter(q => q.checkVisibility()).length"
        self.assertEqual(tab.js(shown), 3)
        self.assertEqual(tab.text(".passages summary"), "6 more")
        tab.click(".passages summary")
        tab.wait(f"{shown} === 9")

    def test_nothing_is_said_of_a_dense_answer(self):
        for more in [{"active": False}, {"fell_back": True}, {"deep": ()}]:
            tab = self.open()
            self.asked(tab, **more)
            self.assertIn("At nine.", tab.text("#log .answer"))
            self.assertEqual(tab.js("document.querySelectorAll('.passages').length"), 0, more)

    def test_hostile_texts_are_text(self):
        hostile = "The gate <img src=x onerror=\"document.title='broken'\"> opens."
        tab = self.open()
        self.asked(tab, hostile + "\n" + DOCUMENT, deep=[hostile])
        self.assertEqual(tab.text(".quote"), hostile)
        tab.click(".quote")
        tab.wait("document.querySelector('#document-text .chosen')")
        self.assertEqual(tab.js("document.querySelectorAll('.passages img, #document-text img').length"), 0)
        self.assertEqual(tab.js("document.title"), "coppice")


if __name__ == "__main__":
    run_tests(vars(web_support))
