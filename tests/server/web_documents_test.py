#!/usr/bin/env python3
"""PDF and DOCX files at the page (skips where there is no Chromium; what needs a tool of the server's skips without).

    web_documents_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import tempfile

from server_case import PROGRAM  # noqa: F401, because it takes the program's arguments
from browser import run_tests
from office_files import docx, pdf
from server_documents_test import LINES, needs_pdftotext, needs_unzip
import web_support
from web_support import Case

ROUTE = "/v1/documents/text"


class Files(Case):
    def choose(self, tab, name, data):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        path.write_bytes(data)
        found = tab.call("Runtime.evaluate", expression="document.querySelector('#file')")["result"]["objectId"]
        tab.call("DOM.setFileInputFiles", files=[str(path)], objectId=found)

    def text_in(self, tab):
        return tab.js("document.querySelector('#document').value")

    @needs_pdftotext
    def test_a_pdf_with_an_empty_page(self):
        tab = self.open()
        self.choose(tab, "gate.pdf", pdf([LINES, []]))
        tab.wait("document.querySelector('#document').value !== ''")
        self.assertEqual(self.text_in(tab), "\n".join(LINES))
        tab.wait("document.querySelector('#document-size').textContent.includes('token')")
        self.assertIn(", from gate.pdf (2 pages)", tab.text("#document-size"))
        self.assertEqual(tab.text("#file-note"), "1 of 2 pages hold no text: they are empty or pictures.")
        self.assertFalse(tab.visible("#reading"))
        tab.click("#clear")
        self.assertFalse(tab.visible("#file-note"))

    @needs_unzip
    def test_a_docx(self):
        tab = self.open()
        self.choose(tab, "gate.docx", docx(LINES))
        tab.wait("document.querySelector('#document').value !== ''")
        self.assertEqual(self.text_in(tab), "\n".join(LINES))

    def test_a_file_that_cannot_be_read_leaves_the_text(self):
        tab = self.open()
        tab.js("document.querySelector('#document').focus()")
        tab.write("Kept.")
        missing = "this server cannot read PDF files: pdftotext is not installed there."
        tab.answer_instead(ROUTE, json.dumps({"error": {"message": missing}}), status=501, kind="application/json")
        self.choose(tab, "gate.pdf", pdf([LINES]))
        tab.wait("!document.querySelector('#problem').hidden")
        self.assertEqual(tab.text("#problem"), "gate.pdf: " + missing)
        self.assertEqual(self.text_in(tab), "Kept.")
        self.assertFalse(tab.visible("#reading"))
        self.choose(tab, "picture.gif", b"GIF89a\0\0")
        tab.wait("document.querySelector('#problem').textContent.startsWith('picture.gif is not a text')")

    def test_a_read_can_be_stopped(self):
        tab = self.open()
        tab.js("""window.fetch = (path, {signal}) => new Promise((_, fail) => {  // nobody answers
                    if (signal) signal.addEventListener('abort', () => fail(new DOMException('left', 'AbortError'))); }); 0""")
        self.choose(tab, "gate.pdf", pdf([LINES]))
        tab.wait("!document.querySelector('#reading').hidden")
        self.assertEqual(tab.text("#reading-text"), "The server reads gate.pdf.")
        tab.click("#leave-reading")
        tab.wait("document.querySelector('#reading').hidden")
        self.assertFalse(tab.visible("#problem"))
        # A text that is written meanwhile is not overwritten either.
        self.choose(tab, "gate.pdf", pdf([LINES]))
        tab.wait("!document.querySelector('#reading').hidden")
        tab.js("document.querySelector('#document').focus()")
        tab.write("Mine.")
        tab.wait("document.querySelector('#reading').hidden")
        self.assertEqual(self.text_in(tab), "Mine.")


if __name__ == "__main__":
    run_tests(vars(web_support))
