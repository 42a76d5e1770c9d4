"""Several questions about one document at once, and documents whose read is completed after a pruned answer.

    server_complete_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import tempfile
import threading
import unittest

from server_case import CTX, MODEL, PROGRAM, PROMPT_2K as DOCUMENT
from server_support import Server

SLIMINFER = "sliminfer:layers=4/6/8,keep=512/256/128,min=0"


class Documents(unittest.TestCase):
    options = ()

    def setUp(self):
        self.server = self.start()

    def tearDown(self):
        self.assertEqual(self.server.stop(), 0)

    def start(self, *options):
        return Server(PROGRAM, MODEL, "-c", CTX, *self.options, *options).wait_ready()

    def ask(self, prompt, server=None, **fields):
        body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 2, "ignore_eos": True, **fields}
        return (server or self.server).good("/v1/completions", body)

    def completed(self, server=None):
        return (server or self.server).metrics()["coppice_documents_completed_total"]

    def wait_completed(self, count=1, server=None):
        server = server or self.server
        server.wait_for(lambda: self.completed(server) >= count and server.metrics()["coppice_documents_incomplete"] == 0, 60)


class AtOnce(Documents):
    def test_questions_about_a_new_document_share_its_read(self):
        questions = [f"{DOCUMENT}\nWhat is the code of box {i}?" for i in range(4)]
        for prune in ["none", SLIMINFER]:
            document = [f"{prune} {question}" for question in questions]
            replies = {}
            threads = [threading.Thread(target=lambda q=q: replies.update({q: self.ask(q, prune=prune)})) for q in document]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            cached = sorted(replies[q]["timings"]["cache_n"] for q in document)
            self.assertEqual(cached[0], 0)
            self.assertGreater(cached[1], 1500)
            for q in document:
                self.assertEqual(replies[q]["choices"], self.ask(q, prune=prune, cache_prompt=False)["choices"])

    def test_several_answers_read_their_prompt_once(self):
        reply = self.ask(DOCUMENT, n=4)
        self.assertEqual(len(reply["choices"]), 4)
        # What all four computed but one found: the last token of each.
        self.assertEqual(reply["timings"]["prompt_n"], len(self.tokens(DOCUMENT)) + 3)

    def tokens(self, text):
        return self.server.good("/tokenize", {"content": text, "add_special": True})["tokens"]


class Completes(Documents):
    options = ("--complete", "--prune", SLIMINFER)

    def test_the_third_question_is_dense_and_costs_its_own_tokens(self):
        first = self.ask(DOCUMENT + "\nWhat is the code?")
        self.assertTrue(first["prune"]["active"])
        self.wait_completed()
        question = DOCUMENT + "\nWho wrote this, and why?"
        later = self.ask(question)
        self.assertFalse(later["prune"]["active"])
        self.assertEqual(later["prune"]["spec"], "none")
        self.assertIn("complete", later["prune"]["reason"])
        self.assertGreater(later["timings"]["cache_n"], 1500)
        # Bit for bit the dense answer, log-probabilities included.
        self.assertEqual(later["choices"], self.ask(question, prune="none", cache_prompt=False)["choices"])
        self.assertEqual(self.completed(), 1)  # a dense answer leaves nothing to complete

    def test_only_if_asked(self):
        self.ask(DOCUMENT, prune={"spec": SLIMINFER, "complete": False})
        self.ask(DOCUMENT + " b", cache_prompt=False)
        self.ask(DOCUMENT + " c", prune="none")
        self.ask("Another, short prompt")
        self.assertEqual(self.server.metrics()["coppice_documents_incomplete"], 0)
        self.assertEqual(self.completed(), 0)
        with_field = self.start("--no-complete", "--prune-when", "always")
        self.ask(DOCUMENT, server=with_field, prune={"spec": SLIMINFER, "complete": True})
        self.wait_completed(server=with_field)
        # Who does not ask for it is answered by the method.
        self.assertTrue(self.ask(DOCUMENT + " d", server=with_field)["prune"]["active"])
        self.assertEqual(with_field.stop(), 0)

    def test_gives_way_and_goes_on(self):
        word = self.server.good("/tokenize", {"content": " the"})["tokens"][0]
        document = [word + i % 7 for i in range(12000)]
        self.ask(document)
        self.server.wait_for(lambda: any(slot.get("is_completing") for slot in self.server.slots()), 20)
        self.assertEqual(len(self.ask("A short one", max_tokens=3)["choices"]), 1)
        self.wait_completed()
        later = self.ask(document + [word, word])
        self.assertEqual(later["timings"]["prompt_n"], 2)
        self.assertFalse(any(slot.get("is_completing") for slot in self.server.slots()))

    def test_an_owner_each(self):
        self.ask(DOCUMENT, cache_salt="one")
        self.wait_completed()
        self.assertTrue(self.ask(DOCUMENT, cache_salt="two")["prune"]["active"])
        self.assertFalse(self.ask(DOCUMENT, cache_salt="one")["prune"]["active"])

    def test_ends_at_once_and_the_next_server_goes_on(self):
        word = self.server.good("/tokenize", {"content": " the"})["tokens"][0]
        document = [word + i % 5 for i in range(16000)]
        with tempfile.TemporaryDirectory() as folder:
            server = self.start("--doc-cache", folder)
            self.ask(document, server=server)
            server.wait_for(lambda: any(slot.get("is_completing") for slot in server.slots()), 20)
            self.assertEqual(server.stop(timeout=5), 0)
            server = self.start("--doc-cache", folder)
            again = self.ask(document + [word], server=server)  # what was whole is there
            self.assertGreater(again["timings"]["cache_n"], 15000)
            self.assertTrue(again["prune"]["active"])
            self.wait_completed(server=server)
            self.assertFalse(self.ask(document + [word, word], server=server)["prune"]["active"])
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
