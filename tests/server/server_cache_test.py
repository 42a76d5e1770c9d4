"""The document cache of `coppice serve` from outside: second questions, cancelled prefills, slots as files.

    server_cache_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import pathlib
import resource
import tempfile
import unittest

from server_case import CTX, MODEL, PROGRAM, PROMPT_2K as DOCUMENT
from chat_model import write_chat_model
from server_support import Server

SLIMINFER = "sliminfer:layers=4/6/8,keep=512/256/128,min=0"


class Kept(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.home.name) / "slots"
        self.folder.mkdir()
        self.server = self.start()

    def tearDown(self):
        self.assertEqual(self.server.stop(), 0)
        self.home.cleanup()

    when = "always"  # also where a dense run would cost less

    def start(self, *options, model=MODEL):
        return Server(PROGRAM, model, "-c", CTX, "-np", "1", "--slot-save-path", str(self.folder), "--prune-when", self.when,
                      *options).wait_ready()

    def ask(self, prompt, server=None, **fields):
        body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 2, "ignore_eos": True, **fields}
        return (server or self.server).good("/v1/completions", body)

    def cached(self, reply):
        self.assertEqual(reply["timings"]["cache_n"], reply["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(reply["timings"]["cache_n"] + reply["timings"]["prompt_n"], reply["usage"]["prompt_tokens"])
        return reply["timings"]["cache_n"]

    def change(self, action, name=None, status=200, slot=0, server=None):
        got, _, reply = (server or self.server).ask(f"/slots/{slot}?action={action}", {} if name is None else {"filename": name})
        self.assertEqual(got, status, (action, name, reply))
        return reply


class Documents(Kept):
    def test_short_prompts_are_reused_and_saved(self):
        first, second = "The capital of France is", "The capital of Germany is"
        self.ask(first)
        reply = self.ask(first + " Paris, and")
        self.assertGreaterEqual(self.cached(reply), 8)
        self.assertEqual(reply["choices"], self.ask(first + " Paris, and", cache_prompt=False)["choices"])
        self.ask(second)
        saved = self.change("save", "short")
        self.assertGreaterEqual(saved["n_saved"], 8)
        other = self.start("--doc-cache", str(pathlib.Path(self.home.name) / "documents"))
        self.assertEqual(self.change("restore", "short", server=other)["n_restored"], saved["n_saved"])
        self.assertGreaterEqual(self.cached(self.ask(second, server=other)), 8)
        self.assertEqual(other.stop(), 0)
        self.assertEqual(list((pathlib.Path(self.home.name) / "documents").iterdir()), [], "a file for a few tokens")

    def test_packed_weights_are_kept(self):
        prompts = ["The capital of France is", "The capital of Germany is", DOCUMENT]
        answers, held = [], []
        for options in [("--packed-ram", "0"), ("--packed-ram", "1"), ()]:
            server = self.start("--cache-ram", "0", *options)
            answers.append([self.ask(prompt, server=server)["choices"] for prompt in prompts])
            held.append(server.metrics()["coppice_packed_weights_bytes"])
            self.assertEqual(server.stop(), 0)
        self.assertEqual(answers[1:], answers[:1] * 2)
        self.assertEqual(held[0], 0)
        self.assertGreater(held[1], 0)
        self.assertLessEqual(held[1], 1 << 20)
        self.assertGreater(held[2], held[1])

    def test_a_request_chooses_its_slot(self):
        other = self.start("-np", "3")
        for slot, prompt in [(2, "The capital of France is"), (0, "A prompt of a few more words, in another slot,"), (99, "any slot")]:
            self.ask(prompt, server=other, id_slot=slot)
        saved = [self.change("save", f"slot-{slot}", slot=slot, server=other)["n_saved"] for slot in (2, 0)]
        self.assertNotEqual(saved[0], saved[1])
        self.change("save", "none", slot=1, status=400, server=other)
        self.assertEqual(self.change("erase", slot=2, server=other)["n_erased"], saved[0])
        got, _, reply = other.ask("/v1/completions", {"prompt": "x", "id_slot": -2})
        self.assertEqual((got, reply["error"]["param"]), (400, "id_slot"))
        self.assertEqual(other.stop(), 0)

    def test_second_question_is_answered_as_fresh(self):
        questions = [DOCUMENT + end for end in ["\nWhat is the code?", "\nWho wrote this, and why?", ""]]
        for prune in ["none", SLIMINFER, "lazyllm:layers=4/6/8,keep=0.5/0.3/0.2,min=0", SLIMINFER + "+ftp:dense=4,min=0"]:
            self.ask(questions[0], prune=prune)
            for question in questions[1:]:
                second = self.ask(question, prune=prune)
                self.assertGreater(self.cached(second), 1500, prune)
                fresh = self.ask(question, prune=prune, cache_prompt=False)
                self.assertEqual(self.cached(fresh), 0)
                self.assertEqual(second["choices"], fresh["choices"])
                self.assertEqual(second.get("prune", {}).get("kept_per_layer"), fresh.get("prune", {}).get("kept_per_layer"))
        metrics = self.server.metrics()
        self.assertGreater(metrics["coppice_prompt_tokens_cached_total"], 10000)
        self.assertGreater(metrics["coppice_documents"], 0)
        self.assertGreater(metrics["coppice_documents_memory_bytes"], 1 << 20)

    def test_what_a_dense_run_left_serves_no_pruned_one(self):
        self.ask(DOCUMENT, prune="none")
        self.assertEqual(self.cached(self.ask(DOCUMENT, prune=SLIMINFER)), 0)

    def test_an_agents_head_serves_pruned_turns(self):
        """Definitions and earlier turns come from dense runs; a new result alone is pruned, by the account's spans."""
        model = pathlib.Path(self.home.name) / "agent.gguf"
        write_chat_model(MODEL, model, "{{ tools | tojson if tools else '' }}{% for m in messages %}[{{ m.role }}] {{ m.content or '' }}"
                         "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n{% endfor %}[assistant] ")
        server = self.start("--prune", "lazyllm:layers=4/6,keep=0.3,min=0", model=model)
        tools = [{"type": "function", "function": {"name": "read", "description": DOCUMENT[:1500], "parameters": {"type": "object"}}}]
        head = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": DOCUMENT[1500:2500]},
                {"role": "assistant", "content": "Yes."}]
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{\"path\": \"notes.txt\"}"}}
        turn = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": DOCUMENT[2500:6000]}]

        def ask(messages, **fields):
            body = {"messages": messages, "tools": tools, "temperature": 0, "max_tokens": 4, **fields}
            return server.good("/v1/chat/completions", body)

        first = ask([*head, {"role": "user", "content": "Hello"}])
        self.assertFalse(first["prune"]["active"], "nothing new is long")
        pruned = ask(head + turn)
        account, count = pruned["prune"], pruned["usage"]["prompt_tokens"]
        self.assertTrue(account["active"])
        (begin, first_new), (after, end) = account["protected"]
        self.assertEqual((begin, end, account["protected_tokens"]), (0, count, count - (after - first_new)))
        self.assertGreater(self.cached(pruned), first["usage"]["prompt_tokens"] - 40)
        self.assertLess(self.cached(pruned), first_new)
        self.assertLess(account["kept_per_layer"][6], first_new + 0.4 * (count - first_new))
        self.assertEqual(len(account["question"]), 2)
        fresh = ask(head + turn, cache_prompt=False)
        self.assertEqual(fresh["choices"][0]["message"], pruned["choices"][0]["message"])
        for name in ("kept_per_layer", "protected", "question", "spec"):
            self.assertEqual(fresh["prune"][name], account[name], name)
        whole = ask(head + turn, prune_scope="all", cache_prompt=False)["prune"]
        self.assertLess(whole["protected_tokens"], account["protected_tokens"])
        self.assertEqual(ask(head + turn, prune="none", cache_prompt=False).get("prune", {}).get("protected"), None)
        status, _, reply = server.ask("/v1/chat/completions", {"messages": head, "prune_scope": "old"})
        self.assertEqual((status, reply["error"]["param"]), (400, "prune_scope"))
        self.assertEqual(server.stop(), 0)

    def test_cancelled_prefill_is_resumed(self):
        word = self.server.good("/tokenize", {"content": " the"})["tokens"][0]
        prompt = [word] * 6000
        client = self.server.send_only("/v1/completions", {"prompt": prompt, "max_tokens": 1})
        self.server.wait_for(lambda: self.server.slot().get("n_prompt_tokens_processed", 0) > 1500, 60)
        before = self.server.metrics().get('coppice_http_requests_total{status="503"}', 0)
        client.close()
        self.server.wait_idle(1)
        metrics = self.server.metrics()
        self.assertGreaterEqual(metrics['coppice_http_requests_total{status="499"}'], 1)
        self.assertEqual(metrics.get('coppice_http_requests_total{status="503"}', 0), before)
        again = self.ask(prompt)
        self.assertGreater(self.cached(again), 0)
        self.assertEqual(again["choices"], self.ask(prompt, cache_prompt=False)["choices"])

    def test_progress_tells_what_was_known(self):
        self.ask(DOCUMENT)
        events = self.server.stream("/v1/completions", {"prompt": DOCUMENT, "max_tokens": 1, "return_progress": True})
        progress = [e["prompt_progress"] for e in events[:-1] if "prompt_progress" in e]
        self.assertGreater(progress[-1]["cache"], 1500)

    def test_saved_and_restored_by_another_process(self):
        first = self.ask(DOCUMENT + "\nWhat is it?", prune=SLIMINFER)
        saved = self.change("save", "report.doc")
        self.assertEqual(saved["filename"], "report.doc")
        size = (self.folder / "report.doc").stat().st_size
        self.assertTrue(size - 4096 < saved["n_written"] <= size, (size, saved))  # the head is not counted
        self.assertEqual(self.change("erase")["n_erased"], saved["n_saved"])
        self.assertEqual(self.cached(self.ask(DOCUMENT, prune=SLIMINFER)), 0)
        self.assertEqual(self.server.stop(), 0)
        self.server = self.start()
        restored = self.change("restore", "report.doc")
        self.assertEqual((restored["n_restored"], restored["n_read"]), (saved["n_saved"], saved["n_written"]))
        again = self.ask(DOCUMENT + "\nWhat is it?", prune=SLIMINFER)
        self.assertGreater(self.cached(again), 0.9 * saved["n_saved"])
        self.assertEqual(again["choices"], first["choices"])

    def test_keys_and_salts_share_nothing(self):
        """With one cache for all, cached_tokens tells one client, token by token, what another one asked."""
        server = self.start("--api-key", "one,two")
        body = {"prompt": DOCUMENT, "max_tokens": 1, "temperature": 0}

        def ask(key, **fields):
            return self.cached(server.good("/v1/completions", {**body, **fields}, headers={"X-Api-Key": key}))

        def change(action, key, status=200):
            got, _, reply = server.ask(f"/slots/0?action={action}", {"filename": "name"}, headers={"X-Api-Key": key})
            self.assertEqual(got, status, (action, key, reply))
            return reply
        self.assertEqual(ask("one"), 0)
        self.assertEqual(ask("two"), 0)
        self.assertGreater(ask("one"), 1500)
        self.assertGreater(ask("two"), 1500)
        self.assertEqual(ask("one", cache_salt="a"), 0)
        self.assertEqual(ask("one", cache_salt="b"), 0)
        self.assertEqual(ask("two", cache_salt="a"), 0)
        self.assertGreater(ask("one", cache_salt="a"), 1500)  # the slot's last prompt is that of key one and salt a
        change("save", "two", 404)
        change("erase", "two", 404)
        saved = change("save", "one")
        change("restore", "two", 400)  # each key has names of its own
        self.assertEqual(change("erase", "one")["n_erased"], saved["n_saved"])
        self.assertEqual(ask("one", cache_salt="a"), 0)
        self.assertGreater(ask("one"), 1500)
        self.assertEqual(change("restore", "one")["n_restored"], saved["n_saved"])
        for salt in ["", "x" * 1025, 1]:
            self.assertEqual(server.ask("/v1/completions", {**body, "cache_salt": salt}, headers={"X-Api-Key": "one"})[0], 400)
        self.assertEqual(server.stop(), 0)

    def test_folder_outlives_the_server(self):
        with tempfile.TemporaryDirectory() as documents:
            server = self.start("--doc-cache", documents, "--cache-ram", "64")
            first = self.ask(DOCUMENT, server, prune=SLIMINFER)
            self.assertEqual(server.stop(), 0)
            server = self.start("--doc-cache", documents, "--cache-ram", "64")
            second = self.ask(DOCUMENT, server, prune=SLIMINFER)
            self.assertGreater(self.cached(second), 1500)
            self.assertEqual(second["choices"], first["choices"])
            self.assertEqual(server.stop(), 0)

    def test_bad_files_and_names(self):
        """Row 24: an error of one line, and the cache as it was."""
        self.ask(DOCUMENT, prune=SLIMINFER)
        self.change("save", "good")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["good"])
        good = (self.folder / "good").read_bytes()
        (self.folder.parent / "outside").write_bytes(good)
        for name in ["../outside", "/etc/passwd", "..", ".", ".good", "", "a/b", "a\\b", "a\0b", "a b", "x" * 300, "\u00e9",
                     "good.prefix-1.part"]:
            self.assertEqual(self.change("restore", name, 400)["error"]["param"], "filename")
            self.assertEqual(self.change("save", name, 400)["error"]["param"], "filename")
        (self.folder.parent / "outside").unlink()
        self.change("restore", None, 400)
        self.change("restore", "missing", 400)
        self.change("burn", "good", 400)
        self.change("save", "good", 404, slot=7)
        self.change("save", "good", 404, slot="x")
        bad = {"truncated": good[:-1], "short": good[:20], "empty": b"", "longer": good + b"\0"}
        for at in [0, 9, 40, 200, len(good) // 2, len(good) - 1]:
            bad[f"flip-{at}"] = good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1:]
        for name, data in bad.items():
            (self.folder / name).write_bytes(data)
            message = self.change("restore", name, 400)["error"]["message"]
            self.assertRegex(message, rf"\A\[prefix\] {name}: .*\Z")  # one line
        self.assertGreater(self.cached(self.ask(DOCUMENT, prune=SLIMINFER)), 1500)
        model = self.folder / "other.gguf"
        write_chat_model(MODEL, model)
        with model.open("r+b") as file:  # another weight
            file.seek(-1, 2)
            last = file.read(1)
            file.seek(-1, 2)
            file.write(bytes([last[0] ^ 1]))
        other = self.start(model=model)
        self.change("restore", "good", 400, server=other)
        self.assertEqual(other.stop(), 0)

    def test_files_are_the_owners_and_bounded(self):
        server = self.start("--slot-save-size", "4")
        self.ask(DOCUMENT[:1500], server, prune="none")
        saved = self.change("save", "one", server=server)
        self.assertEqual((self.folder / "one").stat().st_mode & 0o777, 0o600)
        self.assertGreater(saved["n_written"], 1 << 18)
        self.change("save", "one", server=server)  # in its own place
        for number in range(4):  # does not fit beside the others
            reply = server.ask("/slots/0?action=save", {"filename": f"more-{number}"})
            if reply[0] != 200:
                break
        self.assertEqual(reply[0], 400)
        self.assertIn("saved slots may still take", reply[2]["error"]["message"])
        self.assertNotIn(str(self.folder), reply[2]["error"]["message"])
        self.assertLessEqual(sum(p.stat().st_size for p in self.folder.iterdir()), (4 << 20) + 4096)
        self.assertEqual(server.stop(), 0)

    def test_full_disk(self):
        self.ask(DOCUMENT, prune=SLIMINFER)
        hard = resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE, (1 << 20, hard[1]))
        self.change("save", "full", 400)
        self.assertEqual([p.name for p in self.folder.iterdir()], [])
        resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE, hard)
        self.change("save", "full")

    def test_switched_off(self):
        server = self.start("--cache-ram", "0")
        self.ask(DOCUMENT, server)
        self.assertEqual(self.cached(self.ask(DOCUMENT, server)), 0)
        self.change("save", "x", 501, server=server)
        self.assertEqual(server.stop(), 0)
        server = self.start("--no-cache-prompt")
        self.ask(DOCUMENT, server)
        self.assertEqual(self.cached(self.ask(DOCUMENT, server)), 0)
        self.ask(DOCUMENT, server, cache_prompt=True)
        self.assertGreater(self.cached(self.ask(DOCUMENT, server, cache_prompt=True)), 1500)
        self.assertEqual(server.stop(), 0)


AGENT = ("{{ tools | tojson if tools else '' }}{% for m in messages %}[{{ m.role }}] {{ m.content or '' }}"
         "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n{% endfor %}[assistant] ")


class OnlyWhereItPays(Kept):
    """Beside the cache, the method acts where it costs less than a dense run."""
    when = "pays"

    def test_a_document_that_was_read_densely(self):
        self.ask(DOCUMENT, prune="none")
        question = DOCUMENT + "\nWhat is the code?"
        for prune in [SLIMINFER, "coppice:min=0", "xattention:min=0", "fastkv:layer=5,min=0", SLIMINFER + "+ftp:dense=4,min=0"]:
            reply = self.ask(question, prune=prune)
            self.assertFalse(reply["prune"]["active"], prune)
            self.assertIn("dense costs less here", reply["prune"]["reason"])
            self.assertNotEqual(reply["prune"]["spec"], "none")
            self.assertGreater(self.cached(reply), 1500, prune)
            self.assertEqual(reply["choices"], self.ask(question, prune="none", cache_prompt=False)["choices"])
        self.assertTrue(self.ask(question, prune="snapkv:cap=128,min=0")["prune"]["active"], "it saves memory")
        for fields in [{"prune_when": "always"}, {"cache_prompt": False}]:
            self.assertTrue(self.ask(question, prune=SLIMINFER, **fields)["prune"]["active"], fields)
        status, _, reply = self.server.ask("/v1/completions", {"prompt": "x", "prune_when": "maybe"})
        self.assertEqual((status, reply["error"]["param"]), (400, "prune_when"))

    def test_a_document_that_was_read_pruned(self):
        for question in ["", "\nWhat is the code?", "\nWho wrote this, and why?"]:
            self.assertTrue(self.ask(DOCUMENT + question, prune=SLIMINFER)["prune"]["active"])

    def test_no_turn_of_an_agent_computes_more_than_dense(self):
        """Two servers read the same loop of tools, one with pruned results; after each turn both are idle."""
        model = pathlib.Path(self.home.name) / "agent.gguf"
        write_chat_model(MODEL, model, AGENT)
        tools = [{"type": "function", "function": {"name": "read", "description": DOCUMENT[:1500], "parameters": {"type": "object"}}}]
        method = "coppice:layers=3/5/7,min=0,floor=32"
        pruned, dense = (self.start("--prune", prune, "--prune-when", "pays", model=model) for prune in (method, "none"))

        def turn(server, messages, **fields):
            body = {"messages": messages, "tools": tools, "temperature": 0, "max_tokens": 2, "return_prune_depth": True, **fields}
            reply = server.good("/v1/chat/completions", body)
            server.wait_idle()
            return reply

        for asks in ("What is in these files?", DOCUMENT[4000:5500]):
            chat = [{"role": "system", "content": f"Be brief about {asks[:9]}."}, {"role": "user", "content": asks}]
            acted = []
            for number in range(6):
                accounts = [turn(server, chat)["prune"] for server in (pruned, dense)]
                self.assertLessEqual(accounts[0]["flops"], accounts[1]["flops"] * 1.001, (number, accounts[0].get("reason")))
                self.assertEqual(accounts[0]["active"], "reason" not in accounts[0], accounts[0])
                acted.append(accounts[0]["active"])
                # Once another client has read the turn densely, on the same server.
                fields = {"prune": "none", "cache_salt": "another"}
                turn(pruned, chat, **fields)
                again, most = turn(pruned, chat, cache_salt="another")["prune"], turn(pruned, chat, **fields)["prune"]
                self.assertLessEqual(again["flops"], most["flops"] * 1.001, (number, again.get("reason")))
                call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{number}"}}'}}
                begin = 900 * number
                chat += [{"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": f"c{number}", "content": DOCUMENT[begin:begin + 1800]}]
            self.assertIn(True, acted, "a new result is worth pruning")
        self.assertEqual([server.stop() for server in (pruned, dense)], [0, 0])


if __name__ == "__main__":
    unittest.main()
