"""Several models behind one address: named by requests, loaded when asked for, put away by age.

    server_models_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

from server_case import MODEL, PROGRAM
from chat_model import write_chat_model
from server_support import Server


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.home.name)
        shutil.copy(MODEL, cls.folder / "text.gguf")
        write_chat_model(MODEL, cls.folder / "chat.gguf")
        (cls.folder / "broken.gguf").write_bytes(b"GGUF" + bytes(40))
        (cls.folder / "notes.txt").write_text("no model")

    @classmethod
    def tearDownClass(cls):
        cls.home.cleanup()

    def serve(self, *options):
        server = Server(PROGRAM, None, *options).wait_ready()
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def states(self, server):
        return {m["id"]: m["status"]["value"] for m in server.good("/v1/models")["data"]}

    def complete(self, server, **fields):
        return server.good("/v1/completions", {"prompt": "Once upon", "max_tokens": 5, "temperature": 0, **fields})

    def test_a_folder(self):
        server = self.serve("--models-dir", str(self.folder), "--models-max", "1", "-c", "256")
        self.assertEqual(self.states(server), dict.fromkeys(("broken", "chat", "text"), "unloaded"))
        answers = {name: self.complete(server, model=name) for name in ("text", "chat", "text")}
        self.assertEqual({name: a["model"] for name, a in answers.items()}, {"text": "text", "chat": "chat"})
        self.assertEqual(self.states(server), {"broken": "unloaded", "chat": "unloaded", "text": "loaded"})
        alone = Server(PROGRAM, str(self.folder / "text.gguf"), "-c", "256").wait_ready()
        self.assertEqual(self.complete(alone)["choices"], answers["text"]["choices"])
        self.assertEqual(alone.stop(), 0)

    def test_errors_name_what_is_wrong(self):
        server = self.serve("--models-dir", str(self.folder), "-c", "256")
        status, _, reply = server.ask("/v1/completions", {"prompt": "x", "model": "gone"})
        self.assertEqual(status, 404)
        self.assertIn("there is no gone here, but broken, chat, text", reply["error"]["message"])
        self.assertEqual(reply["error"]["code"], "model_not_found")
        status, _, reply = server.ask("/v1/completions", {"prompt": "x", "model": "broken"})
        self.assertEqual(status, 503)
        self.assertIn("the model broken cannot be loaded", reply["error"]["message"])
        failed = [m for m in server.good("/v1/models")["data"] if m["id"] == "broken"][0]
        self.assertTrue(failed["status"]["failed"])
        status, _, reply = server.ask("/v1/messages", {"model": "gone", "max_tokens": 1, "messages": []})
        self.assertEqual((status, reply["type"]), (404, "error"))
        self.complete(server, model="chat")

    def test_two_by_name(self):
        server = self.serve("-m", str(self.folder / "text.gguf"), "-m", str(self.folder / "chat.gguf"),
                            "--alias", "large", "--alias", "small", "-c", "256")
        self.assertEqual(self.states(server), {"large": "loaded", "small": "unloaded"})
        self.assertEqual(self.complete(server)["model"], "large")  # the last used, at first the first
        self.assertEqual(self.complete(server, model="small")["model"], "small")
        self.assertEqual(self.complete(server)["model"], "small")
        self.assertEqual(self.states(server), {"large": "loaded", "small": "loaded"})
        self.assertEqual(server.good("/props?model=large")["model_path"], "text.gguf")
        self.assertEqual(server.good("/v1/models/small")["id"], "small")
        text = server.ask("/metrics")[2]
        for name in ("large", "small"):
            self.assertIn(f'coppice_prompt_tokens_total{{model_name="{name}"}}', text)
        self.assertEqual(text.count("# TYPE coppice_prompt_tokens_total "), 1)

    def test_load_and_unload(self):
        server = self.serve("-m", str(self.folder / "text.gguf"), "-m", str(self.folder / "chat.gguf"), "-c", "256")
        self.assertEqual(server.ask("/props?model=chat")[0], 503)  # looking loads nothing
        self.assertEqual(server.good("/models/load", {"model": "chat"}), {"success": True})
        server.wait_for(lambda: self.states(server)["chat"] == "loaded", 60)
        server.good("/models/unload", {"model": "text"})
        server.wait_for(lambda: self.states(server)["text"] == "unloaded", 60)
        self.assertEqual(self.complete(server, model="text")["model"], "text")

    def test_streams_and_turns_under_one_model_at_a_time(self):
        server = self.serve("--models-dir", str(self.folder), "--models-max", "1", "-c", "256")
        wrong = []

        def ask(name):
            for _ in range(4):
                events = server.stream("/v1/completions", {"prompt": "One", "max_tokens": 20, "model": name, "ignore_eos": True})
                if {e["model"] for e in events if isinstance(e, dict)} != {name}:
                    wrong.append(name)

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("text", "chat") * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_what_the_options_say(self):
        for options, message in (
                ([], "--model or --models-dir is required"),
                (["--models-dir", "/nowhere"], "--models-dir /nowhere: No such file or directory"),
                (["-m", str(MODEL), "-m", str(MODEL)], "two models have the name"),
                (["-m", str(MODEL), "-m", str(self.folder / "chat.gguf"), "-a", "a", "-a", "b", "-a", "c"], "--alias c: there is no --model"),
                (["-m", str(MODEL), "-m", str(self.folder / "chat.gguf"), "--kv-events", "ipc:///tmp/x"], "goes with one --model")):
            with self.subTest(options=options):
                run = subprocess.run([PROGRAM, "serve", "--port", "0", *options], capture_output=True, text=True)
                self.assertEqual(run.returncode, 1)
                self.assertIn(message, run.stderr)


if __name__ == "__main__":
    unittest.main()
