"""Loading, closing, and what is refused: errors, pickles, forks."""

import copy
import gc
import os
import pathlib
import pickle
import signal
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from coppice_llm import LLM, Busy, Cancelled, ContextLength, CoppiceError, InvalidRequest, ModelError, errors
from coppice_llm._options import fields, words
from support import DOCUMENT, LONG, MINI, PROMPT, ROOT, ModelCase, mini, post, python

ENDLESS = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0}


class Errors(ModelCase):
    options = {"ctx": 512}

    def raised(self, kind, call, param=None):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIsInstance(caught.exception, CoppiceError)
        if param:
            self.assertEqual(caught.exception.param, param)
        return caught.exception

    def test_fields(self):
        self.raised(InvalidRequest, lambda: self.llm.generate(PROMPT, prune="nix"), "prune")
        self.raised(ValueError, lambda: self.llm.generate(PROMPT, temperature="hot"), "temperature")
        self.raised(InvalidRequest, lambda: self.llm.generate([1, 10**6]), "prompt")
        self.raised(InvalidRequest, lambda: self.llm.generate(object()), "prompt")
        self.raised(InvalidRequest, lambda: self.llm.generate(None), "prompt")
        self.raised(InvalidRequest, lambda: self.llm.plan(10**9), "prompt_tokens")
        self.raised(InvalidRequest, lambda: self.llm.chat([{"role": "user"}]), "messages")
        self.raised(InvalidRequest, lambda: self.llm.create_completion(PROMPT, top_k="many"), "top_k")
        self.raised(InvalidRequest, lambda: next(self.llm.create_completion(PROMPT, stream=True, top_k="many")), "top_k")
        error = self.raised(InvalidRequest, lambda: self.llm.generate(PROMPT, prune="coppice:nix=1"), "prune")
        self.assertEqual(error.status, 400)
        self.assertIn("unknown key 'nix'", str(error))

    def test_context(self):
        for call in (lambda: self.llm.generate(DOCUMENT), lambda: self.llm.ask(DOCUMENT, "Who?"),
                     lambda: self.llm.score(DOCUMENT), lambda: self.llm.read(DOCUMENT),
                     lambda: self.llm.stream(DOCUMENT).whole()):
            error = self.raised(ContextLength, call)
            self.assertIn(error.param, ("prompt", "messages"))
            self.assertEqual(error.code, "context_length_exceeded")
            self.assertIn("context 512", str(error))

    def test_model_files(self):
        with tempfile.TemporaryDirectory() as folder:
            missing, damaged = pathlib.Path(folder, "missing.gguf"), pathlib.Path(folder, "damaged.gguf")
            damaged.write_bytes(MINI.read_bytes()[:5000])
            self.assertIn("missing.gguf", str(self.raised(ModelError, lambda: LLM(missing))))
            self.assertIn("damaged.gguf", str(self.raised(ModelError, lambda: LLM(damaged))))

    def test_options(self):
        self.raised(ModelError, lambda: mini(bogus_option=1), "bogus_option")
        self.raised(ModelError, lambda: mini(ctx=-5))
        self.raised(ModelError, lambda: mini(prune="nix"))
        self.raised(ModelError, lambda: mini(cache_type="q3"))
        self.raised(InvalidRequest, lambda: mini(alias=object()), "alias")

    def test_kinds(self):
        for status, code, kind in ((400, 400, InvalidRequest), (400, "context_length_exceeded", ContextLength), (429, 429, Busy),
                                   (503, 503, Busy), (499, None, Cancelled), (500, 500, CoppiceError), (404, 404, InvalidRequest)):
            error = errors.request_error(status, b'{"error": {"message": "m", "param": "p", "code": %s}}'
                                         % (b"null" if code is None else b'"%s"' % code.encode() if isinstance(code, str) else b"%d" % code))
            self.assertIs(type(error), kind)
            self.assertEqual((str(error), error.status, error.param), ("m", status, "p"))
        self.assertEqual(str(errors.request_error(500, b"no json")), "no json")
        self.assertIs(type(errors.request_error(0, {"error": {"message": "m", "code": 503}})), Busy)

    def test_library_is_missing(self):
        with mock.patch.dict(os.environ, {"COPPICE_LIBRARY": "/nowhere/libcoppice.so"}):
            process = python("import coppice_llm\ntry: coppice_llm.LLM('a.gguf')\nexcept coppice_llm.ModelError as e: print(e)")
            self.assertIn(b"/nowhere/libcoppice.so: the library coppice is not there", process.communicate()[0])


class Life(unittest.TestCase):
    def test_close(self):
        llm = mini()
        self.assertIn("coppice-mini", repr(llm))
        self.assertIn("ctx=4096", repr(llm))
        folder = llm._slots
        self.assertTrue(folder.is_dir())
        llm.close()
        llm.close()
        self.assertTrue(llm.closed)
        self.assertIn("closed", repr(llm))
        self.assertFalse(folder.exists())
        for call in (lambda: llm.generate(PROMPT), lambda: llm.stream(PROMPT), lambda: llm.score(PROMPT), llm.serve,
                     lambda: llm.tokenize("a"), lambda: llm.read(LONG), llm.reload, llm.tune):
            with self.assertRaisesRegex(CoppiceError, "coppice-mini-f16.gguf: the model is closed"):
                call()

    def test_keys_are_not_shown(self):
        with mini(api_key="secret") as llm:
            self.assertNotIn("secret", repr(llm))

    def test_close_cancels(self):
        llm, found = mini(), []

        def work():
            try:
                llm.generate(PROMPT, **ENDLESS)
            except CoppiceError as error:
                found.append(type(error))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.3)
        stream = llm.stream(PROMPT, **ENDLESS)
        next(stream)
        llm.close()
        thread.join(60)
        self.assertEqual(found, [Cancelled])
        with self.assertRaises(Cancelled):
            list(stream)

    def test_dropped(self):
        """A model that nobody refers to is freed, but not while a stream of it is read."""
        llm = mini()
        finalizer, folder = llm._finalizer, llm._slots
        stream = llm.stream(PROMPT, max_tokens=20, temperature=0)
        del llm
        gc.collect()
        self.assertGreater(len("".join(map(str, stream))), 5)
        del stream
        for _ in range(1200):
            gc.collect()
            if not folder.exists():
                break
            time.sleep(0.05)
        self.assertFalse(finalizer.alive)
        self.assertFalse(folder.exists())

    def test_reload(self):
        with mini() as llm:
            text = llm.generate(PROMPT, max_tokens=4, temperature=0).text
            llm.reload()
            self.assertEqual(llm.generate(PROMPT, max_tokens=4, temperature=0).text, text)

    def test_pickle(self):
        with mini() as llm:
            for call in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.assertRaisesRegex(TypeError, "send its path"):
                    call(llm)

    def test_fork(self):
        with mini() as llm:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    llm.generate(PROMPT, max_tokens=1)
                    said = "it answered"
                except CoppiceError as error:
                    said = str(error)
                llm.close()
                os.write(write, said.encode())
                os._exit(0)
            os.close(write)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            with os.fdopen(read) as pipe:
                self.assertIn("load the model in this process", pipe.read())
            self.assertTrue(llm._slots.is_dir(), "the child leaves its parent's files")
            self.assertEqual(len(llm.generate(PROMPT, max_tokens=2).token_ids), 2)

    def test_two_models(self):
        with mini() as first, mini(ctx=256) as second:
            self.assertEqual((first.context, second.context), (4096, 256))
            self.assertEqual(first.generate(PROMPT, max_tokens=4, temperature=0).text, second.generate(PROMPT, max_tokens=4, temperature=0).text)

    def test_serve_with_a_key(self):
        with mini(api_key="k1") as llm:
            server = llm.serve()
            body = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0}
            self.assertEqual(post(server, "/v1/completions", body)[0], 401)
            self.assertEqual(post(server, "/v1/completions", body, "k1")[0], 200)
            self.assertEqual(len(llm.generate(PROMPT, max_tokens=2).token_ids), 2)
        with self.assertRaises(OSError):
            post(server, "/v1/completions", body)

    def test_end_of_a_program(self):
        """It ends well, and does not wait for what it leaves open, which would take minutes."""
        code = ("import sys; from coppice_llm import LLM\nllm = LLM(sys.argv[1], ctx=32768)\n"
                "s = llm.stream('A', max_tokens=32000, ignore_eos=True); next(s)\nprint('left')")
        process = python(code, MINI)
        said, error = process.communicate(timeout=120)
        self.assertEqual((process.returncode, said.strip()), (0, b"left"), error)
        self.assertNotIn(b"Traceback", error)

    def test_interrupt_of_a_program(self):
        code = ("import sys; from coppice_llm import LLM\nllm = LLM(sys.argv[1], ctx=4096)\nprint('loaded', flush=True)\n"
                "try: llm.generate('A', max_tokens=3000, ignore_eos=True)\nexcept KeyboardInterrupt: print('interrupted')\n"
                "print(len(llm.generate('A', max_tokens=2).token_ids))")
        process = python(code, MINI)
        self.assertEqual(process.stdout.readline().strip(), b"loaded")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60)[0].split(), [b"interrupted", b"2"])


class Options(unittest.TestCase):
    def test_words(self):
        self.assertEqual(words({"ctx": 8, "fast": True, "exact": False, "doc_cache": None, "cache_ram": 0, "foo_bar": "x",
                                "budget": ["1%", "kl=9"], "work": pathlib.Path("a b")}),
                         ["--ctx-size=8", "--fast", "--cache-ram=0", "--foo-bar=x", "--budget=1%", "--budget=kl=9", "--work=a b"])

    def test_prune(self):
        self.assertEqual(fields({"prune": "a", "seed": None})["prune"], "a")
        self.assertNotIn("prune", fields({}))
        self.assertIs(fields({"prune": False})["prune"], False)
        self.assertEqual(fields({"prune": "a", "protect": [(0, 2)]})["prune"], {"spec": "a", "protect": [[0, 2]]})
        self.assertEqual(fields({"prune": {"method": "a", "keep": 0.5}, "protect": [(0, 2)]})["prune"],
                         {"method": "a", "keep": 0.5, "protect": [[0, 2]]})

    def test_protect_without_prune(self):
        """The model's own setting, with the tokens protected."""
        with mini(prune="random:keep=0.5,min=0") as llm:
            answer = llm.generate(LONG, max_tokens=1, protect=[(10, 60)])
            self.assertTrue(answer.prune["active"])
            self.assertEqual(answer.prune["protected"], [[10, 60]])

    def test_sources(self):
        """The package needs Python 3.9 and the standard library; files stay small."""
        import ast
        for path in sorted((ROOT / "python/coppice_llm").glob("*.py")):
            source = path.read_text(encoding="utf-8")
            ast.parse(source, feature_version=(3, 9))
            self.assertLessEqual(len(source.splitlines()), 400, path)
            self.assertIn("from __future__ import annotations", source, path)


if __name__ == "__main__":
    unittest.main()
