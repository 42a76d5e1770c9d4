"""Documents that are read once and asked about again, also by another model object."""

import json
import pathlib
import tempfile
import unittest
from unittest import mock

from coppice_llm import LLM, Busy, CoppiceError, InvalidRequest
from support import DOCUMENT, SMOL, ModelCase, mini, needs_smol

TEXT = DOCUMENT[:5000]
QUESTIONS = ["Who wrote it?", "Where?"]


class Documents(ModelCase):
    options = {"ctx": 8192}

    def test_questions_reuse_it(self):
        for prune in (None, "coppice:min=0", "lazyllm:min=0"):
            text = f"{prune} {TEXT}"
            doc = self.llm.read(text, prune=prune)
            self.assertLess(doc.reading.cached_tokens, 100)
            first, second = doc.ask(QUESTIONS[0], max_tokens=6), doc.ask(QUESTIONS[1], max_tokens=6)
            for answer in (first, second):
                self.assertGreater(answer.cached_tokens, doc.tokens - 100)
                self.assertEqual((answer.prune or {}).get("active", False), prune is not None)
            fresh = self.llm.ask(text, QUESTIONS, max_tokens=6, prune=prune, cache_prompt=False)
            self.assertEqual([first.token_ids, second.token_ids], [answer.token_ids for answer in fresh])

    def test_lists(self):
        doc = self.llm.read("Listed. " + TEXT)
        answers = doc.ask(QUESTIONS, max_tokens=4)
        self.assertEqual([a.token_ids for a in answers], [doc.ask(q, max_tokens=4).token_ids for q in QUESTIONS])

    def test_save_and_load(self):
        for prune in (None, "coppice:min=0"):
            text = f"Saved {prune} {TEXT}"
            doc = self.llm.read(text, prune=prune)
            asked = doc.ask(QUESTIONS, max_tokens=6)
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "d.prefix")
                self.assertEqual(doc.save(path), path.stat().st_size)
                self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["d.prefix", "d.prefix.json"])
                with mini(ctx=8192) as other:
                    found = other.load_document(path)
                    self.assertEqual(found.text, text)
                    self.assertEqual(found.prune, prune)
                    self.assertGreater(found.reading.cached_tokens, doc.tokens - 100)
                    again = found.ask(QUESTIONS, max_tokens=6)
                self.assertEqual([a.token_ids for a in again], [a.token_ids for a in asked])
                self.assertTrue(path.is_file(), "loading leaves the file")
            self.assertEqual(list(self.llm._slots.iterdir()), [])

    def test_save_beside_other_requests(self):
        """What is saved is this document, though another request takes its slot before it is saved."""
        doc = self.llm.read("Busy. " + TEXT)
        plain, taken = self.llm._post, []

        def post(path, body, scope=None):
            if path.startswith("/slots/") and len(taken) < 3:
                taken.append(int(path.split("/")[2].split("?")[0]))
                plain("/completion", {"prompt": f"{len(taken)} {TEXT[:900]}", "n_predict": 1, "id_slot": taken[-1]})
            return plain(path, body, scope)

        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.object(self.llm, "_post", post):
                doc.save(pathlib.Path(folder, "d"))
            with mini(ctx=8192) as other:
                self.assertGreater(other.load_document(pathlib.Path(folder, "d")).reading.cached_tokens, doc.tokens - 100)
        self.assertEqual(len(taken), 3)

    def test_no_slot_is_free(self):
        doc = self.llm.read("Never. " + TEXT)
        with mock.patch("coppice_llm.document._tokens_in_common", return_value=0), tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(Busy, "other requests take every slot"):
                doc.save(pathlib.Path(folder, "d"))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])
        self.assertEqual(list(self.llm._slots.iterdir()), [])

    def test_save_behind_a_longer_prompt(self):
        """What a question left in the cache holds the document as well."""
        text = "Longer. " + TEXT
        asked = self.llm.ask(text, QUESTIONS[0], max_tokens=4)
        doc = self.llm.read(text)
        with tempfile.TemporaryDirectory() as folder:
            doc.save(pathlib.Path(folder, "d"))
            with mini(ctx=8192) as other:
                found = other.load_document(pathlib.Path(folder, "d"))
                self.assertGreater(found.reading.cached_tokens, doc.tokens - 20)
                self.assertEqual(found.ask(QUESTIONS[0], max_tokens=4).token_ids, asked.token_ids)

    def test_methods_that_leave_nothing(self):
        for prune in ("random:min=0", "h2o:min=0", "flexprefill:min=0"):
            doc = self.llm.read(f"{prune} {TEXT}", prune=prune)
            with tempfile.TemporaryDirectory() as folder:
                with self.assertRaisesRegex(InvalidRequest, "leaves no states to save") as caught:
                    doc.save(pathlib.Path(folder, "d"))
                self.assertEqual((caught.exception.param, list(pathlib.Path(folder).iterdir())), ("prune", []))

    def test_bad_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "d.prefix")
            with self.assertRaisesRegex(CoppiceError, "d.prefix.json: the text of the document cannot be read"):
                self.llm.load_document(path)
            self.llm.read("Bad. " + TEXT).save(path)
            data = path.read_bytes()
            path.write_bytes(data[:-100])
            with self.assertRaisesRegex(InvalidRequest, "d.prefix") as caught:
                self.llm.load_document(path)
            self.assertEqual(caught.exception.param, "path")
            path.write_bytes(data)
            about = pathlib.Path(folder, "d.prefix.json")
            for content, says in (("{}", "is no document"), ("nonsense", "cannot be read"),
                                  (json.dumps({**json.loads(about.read_text()), "version": 9}), "version 9 is not 1")):
                about.write_text(content)
                with self.assertRaisesRegex(CoppiceError, says):
                    self.llm.load_document(path)
            path.unlink()
            about.write_text(json.dumps({"format": "coppice document", "version": 1, "text": "a"}))
            with self.assertRaisesRegex(CoppiceError, "the states of the document are not there"):
                self.llm.load_document(path)

    def test_options_of_the_slots(self):
        with tempfile.TemporaryDirectory() as folder, mini(ctx=8192, slot_save_path=folder) as llm:
            llm.read(TEXT).save(pathlib.Path(folder, "own"))
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["own", "own.json"])
        with mini(ctx=8192, cache_ram=0) as llm:
            with self.assertRaisesRegex(CoppiceError, "keeps none"):
                llm.read(TEXT).save("/nowhere/at/all")


@needs_smol
class RealDocument(unittest.TestCase):
    def test_facts(self):
        with LLM(SMOL, ctx=4096, cache_ram=1024) as llm:
            doc = llm.read(DOCUMENT[:4000] + "\nThe watchman of the mill is called Bertram Oakes.\n")
            answer = doc.ask("What is the watchman of the mill called?", max_tokens=20)
            self.assertIn("Bertram Oakes", answer.text)
            self.assertGreater(answer.cached_tokens, doc.tokens - 20)


if __name__ == "__main__":
    unittest.main()
