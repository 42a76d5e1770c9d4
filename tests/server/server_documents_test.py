#!/usr/bin/env python3
"""POST /v1/documents/text: the text of PDF and DOCX files. What needs a tool that is not installed skips.

    server_documents_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import http.client
import io
import json
import os
import pathlib
import threading
import unittest
import zipfile

from server_case import MODEL, PROGRAM, Case
from office_files import WORD, docx, docx_of, pdf
from server_support import Server

FOLDERS = ["/usr/bin", "/usr/local/bin", "/bin"]  # where the server looks
LINES = ["The gate opens at nine.", "It closes at noon."]


def is_installed(tool):
    return any(os.access(f"{folder}/{tool}", os.X_OK) for folder in FOLDERS)


needs_pdftotext = unittest.skipUnless(is_installed("pdftotext"), "pdftotext is not installed (poppler-utils)")
needs_unzip = unittest.skipUnless(is_installed("unzip"), "unzip is not installed")


def send(server, body, headers=None, path="/v1/documents/text"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60 * server.patience)
    connection.request("POST", path, body, headers or {})
    reply = connection.getresponse()
    data = json.loads(reply.read())
    connection.close()
    return reply.status, data


def children(pid):
    return [task.read_text() for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]


class Documents(Case):
    def fault(self, body, status):
        got, reply = send(self.server, body)
        self.assertEqual(got, status, reply)
        return reply["error"]["message"]

    @needs_pdftotext
    def test_a_pdf(self):
        status, reply = send(self.server, pdf([LINES, [], ["Two"]]), {"Content-Type": "application/pdf"})
        self.assertEqual(status, 200, reply)
        self.assertEqual((reply["kind"], reply["pages"]), ("pdf", 3))
        self.assertEqual(reply["text"], "\n".join([*LINES, "Two"]))
        self.assertEqual(reply["warnings"], ["1 of 3 pages hold no text: they are empty or pictures."])

    @needs_pdftotext
    def test_a_scan_and_a_damaged_pdf_say_what_to_do(self):
        self.assertIn("it is probably a scan. Let a program for text recognition", self.fault(pdf([[], []]), 422))
        self.assertIn("damaged", self.fault(b"%PDF-1.7\n" + b"\x00junk" * 1000, 422))
        self.assertIn("damaged", self.fault(pdf([LINES])[:40], 422))

    @needs_unzip
    def test_a_docx(self):
        status, reply = send(self.server, docx([*LINES, "a < b & c \u00e4\u20ac"]))
        self.assertEqual(status, 200, reply)
        self.assertEqual(reply, {"object": "document.text", "kind": "docx", "warnings": [],
                                 "text": "\n".join([*LINES, "a < b & c \u00e4\u20ac"])})

    @needs_unzip
    def test_hostile_archives(self):
        root = f'<w:document xmlns:w="{WORD}">'
        self.assertIn("unpacks to more than 64 MiB", self.fault(docx_of(root + "<w:tab/>" * 12_000_000), 413))
        self.assertIn("1,000 deep", self.fault(docx_of(root + "<w:tbl>" * 2_000), 422))
        self.assertIn("the text of the document is too long", self.fault(docx_of(root + "<w:t>" + "x" * 9_000_000), 422))
        self.assertIn("document type", self.fault(docx_of('<!DOCTYPE x [<!ENTITY a "b">]>' + root), 422))
        self.assertIn("damaged", self.fault(docx(LINES)[:60], 422))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("../../word/other.xml", "x")
        self.assertIn("holds no word/document.xml", self.fault(out.getvalue(), 415))

    def test_other_files_and_methods(self):
        self.assertIn("neither PDF nor DOCX", self.fault(b"GIF89a", 415))
        self.assertIn("older format", self.fault(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 415))
        self.assertIn("the body is empty", self.fault(b"", 400))
        self.assertEqual(self.server.ask("/v1/documents/text", None)[0], 405)

    @needs_pdftotext
    def test_many_files_at_once_are_read_or_refused_for_now(self):
        files = 12
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(send(self.server, pdf([LINES] * 300))[0])) for _ in range(files)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(statuses), files)
        self.assertIn(200, statuses)
        self.assertLessEqual(set(statuses), {200, 503})
        self.assertEqual(send(self.server, pdf([LINES]))[0], 200)

    @needs_pdftotext
    def test_no_child_stays(self):
        send(self.server, pdf([LINES]))
        lists = children(self.server.process.pid)
        self.assertGreater(len(lists), 0)
        self.assertEqual("".join(lists), "")


class Access(unittest.TestCase):
    def test_a_server_with_a_key_asks_for_it(self):
        server = Server(PROGRAM, MODEL, "--api-key", "secret").wait_ready()
        try:
            self.assertEqual(send(server, b"GIF89a")[0], 401)
            self.assertEqual(send(server, b"GIF89a", {"Authorization": "Bearer secret"})[0], 415)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_the_switch_and_the_limit_of_bodies(self):
        server = Server(PROGRAM, MODEL, "--no-documents", "--max-body", "1").wait_ready()
        try:
            status, reply = send(server, pdf([LINES]))
            self.assertEqual(status, 501)
            self.assertIn("switched off on this server: paste the text", reply["error"]["message"])
            self.assertEqual(send(server, b"%PDF-" + b"x" * (2 << 20))[0], 413)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
