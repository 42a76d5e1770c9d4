"""The page of `coppice trace` in headless Chromium (skips where there is none).

    trace_page_test.py PROGRAM SOURCE_DIR [unittest arguments]

COPPICE_BROWSER names another program; COPPICE_SCREENSHOTS a folder for pictures of the page.
"""

import os
import pathlib
import tempfile
import unittest

from cli_support import Case, MODEL, PROMPT_2K
from browser import Tab, run_tests

PICTURES = os.environ.get("COPPICE_SCREENSHOTS")
STEPS = 6


class TracePage(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def open(self, prune, **kwargs):
        trace, page = (pathlib.Path(self.folder.name, prune + end) for end in [".trace", ".html"])
        self.good("run", "-m", MODEL, "-f", PROMPT_2K, "-n", str(STEPS), "--temp", "0", "--ignore-eos", "--prune", prune,
                  "--trace", str(trace))
        self.good("trace", str(trace), "-o", str(page))
        tab = Tab(BROWSER, page.as_uri(), **kwargs)
        self.addCleanup(self.finish, tab)
        tab.wait("document.querySelectorAll('#text .chunk span').length > 3")
        return tab

    def finish(self, tab):
        tab.close()
        self.assertEqual(tab.problems, [])
        self.assertEqual([url for _, url, _ in tab.requests if not url.startswith("file:")], [])

    def test_every_part_is_drawn(self):
        for prune, scheme in [("lazyllm", "light"), ("sliminfer", "dark")]:
            tab = self.open(prune, scheme=scheme)
            for host, tag in [("map", "canvas"), ("kept", "svg"), ("bytes", "svg"), ("density", "svg")]:
                high = tab.js(f"document.querySelector('#{host} {tag}').getBoundingClientRect().height")
                self.assertGreater(high, 100, host)
            self.assertIn("of 10 layers", tab.text("#text-legend"))
            self.assertEqual(tab.text("#text .divider"), "generated")
            if PICTURES:
                pathlib.Path(PICTURES).mkdir(parents=True, exist_ok=True)
                tab.screenshot(f"{PICTURES}/trace-{prune}-{scheme}.png")

    def test_tokens_by_keys_and_mouse(self):
        tab = self.open("lazyllm")
        tab.js("document.querySelector('#text').focus()")
        for key, says in [("ArrowRight", "token 0 "), ("ArrowRight", "token 1 "), ("ArrowLeft", "token 0 "),
                          ("End", f"generated token {STEPS - 1} "), ("Home", "token 0 ")]:
            tab.press(key)
            self.assertIn(says, tab.text("#token-info"), key)
        self.assertEqual(tab.js("document.querySelectorAll('.cursor').length"), 1)
        # Down goes to the first token of another look.
        shade = "document.querySelector('#text .cursor').className"
        before = tab.js(shade)
        tab.press("ArrowDown")
        self.assertNotEqual(tab.js(shade), before)
        tab.click("#next-mark")
        self.assertIn("in this step", tab.text("#token-info"))
        tab.js("scrollTo(0, 0)")
        x, y = tab.js("(b => [b.x + b.width / 2, b.y + 20])(document.querySelector('#map canvas').getBoundingClientRect())")
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        tab.wait("document.querySelector('#tip').checkVisibility()")
        self.assertIn("layer 0, tokens ", tab.text("#tip"))
        tab.click("#map canvas")  # its middle: layer 5
        tab.wait("/^5: /.test(document.querySelector('#layer-out').textContent)")
        self.assertGreater(tab.js("document.querySelectorAll('#text .gone').length"), 0)


if __name__ == "__main__":
    run_tests(globals())
