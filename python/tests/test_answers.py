"""Answers, and each line of the sketch in docs/python.md."""

import asyncio
import html
import json
import math
import pathlib
import re
import tempfile
import unittest

from coppice_llm import LLM, Answer, CoppiceError, InvalidRequest
from support import DOCUMENT, LONG, MESSAGES, MINI, PROMPT, SMOL, ModelCase, mini, needs_smol, post, program


class Sketch(ModelCase):
    options = {"prune": "auto", "threads": 0, "cache_ram": 256, "ctx": 8192}

    def test_ask(self):
        answer = self.llm.ask(LONG, "Who had a key?", max_tokens=5)
        self.assertIsInstance(answer, Answer)
        self.assertEqual(str(answer), answer.text)
        self.assertEqual(answer.completion_tokens, 5)
        self.assertEqual(answer.finish_reason, "length")
        self.assertEqual(len(answer.token_ids), 5)
        self.assertGreater(answer.ttft, 0)
        self.assertEqual(answer.ttft, answer.timings["prompt_ms"] / 1000)
        self.assertGreater(answer.prompt_tokens, 400)
        self.assertEqual(answer.prompt_tokens, answer.cached_tokens + answer.timings["prompt_n"])
        self.assertIn("coppice-mini", answer.raw["model"])
        self.assertFalse(answer.prune["active"])
        self.assertIn("no calibration", answer.prune["auto"])

    def test_question_is_marked(self):
        """The question's own tokens score the document's, and not those of all that the user said."""
        answer = self.llm.ask(LONG, "Who had a key?", max_tokens=1, prune="coppice:min=0", trace=True)
        (begin, end), = answer.prune["question"]
        self.assertEqual("".join(answer.trace.pieces()[begin:end]).strip(), "Who had a key?")

    def test_template_that_demands_one_message(self):
        """It gets document and question joined, and the question is still known."""
        template = ("{% for m in messages %}{% if not loop.first and m['role'] == messages[loop.index0 - 1]['role'] %}"
                    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}[assistant]")
        with mini(chat_template=template) as llm:
            answer = llm.ask(LONG, "Who had a key?", max_tokens=1, prune="coppice:min=0", trace=True)
            (begin, end), = answer.prune["question"]
            pieces = answer.trace.pieces()
            self.assertEqual("".join(pieces[begin:end]).strip(), "Who had a key?")
            self.assertEqual("".join(pieces).count("[user]"), 1)
            doc = llm.read(LONG)
            self.assertGreater(doc.ask("Who?", max_tokens=1).cached_tokens, doc.tokens - 20)

    def test_questions(self):
        questions = ["Who?", "Where did the mill stand?", "When?"]
        together = self.llm.ask(LONG, questions, max_tokens=6)
        alone = [self.llm.ask(LONG, question, max_tokens=6) for question in questions]
        self.assertEqual([a.token_ids for a in together], [a.token_ids for a in alone])
        self.assertEqual([a.prompt[-1]["content"] for a in together], questions)

    def test_generate_lists(self):
        first, second = LONG, DOCUMENT[:2000]
        answers = self.llm.generate([first, second], max_tokens=8, temperature=0, prune="lazyllm:keep=0.5,min=0",
                                    protect=[(0, 200)], stop=["\n"])
        self.assertEqual([a.prompt for a in answers], [first, second])
        for answer in answers:
            self.assertTrue(answer.prune["spec"].startswith("lazyllm:"))
            self.assertTrue(answer.prune["active"])
            self.assertEqual(answer.prune["protected"], [[0, 200]])
            self.assertNotIn("\n", answer.text)
        self.assertEqual(self.llm.generate([], max_tokens=1), [])
        self.assertEqual([a.prompt for a in self.llm.generate((p for p in "ab"), max_tokens=1)], ["a", "b"])

    def test_generate_ids(self):
        ids = self.llm.tokenize(PROMPT, add_special=True)
        by_text, by_ids = (self.llm.generate(p, max_tokens=8, temperature=0) for p in (PROMPT, ids))
        self.assertEqual(by_text.token_ids, by_ids.token_ids)
        both = self.llm.generate([ids, PROMPT], max_tokens=8, temperature=0)
        self.assertEqual([a.token_ids for a in both], [by_ids.token_ids] * 2)

    def test_stop_and_seed(self):
        whole = self.llm.generate(PROMPT, max_tokens=24, temperature=0).text
        word = whole.split()[2]
        stopped = self.llm.generate(PROMPT, max_tokens=24, temperature=0, stop=word)
        self.assertEqual(stopped.text, whole[:whole.index(word)])
        self.assertEqual(stopped.finish_reason, "stop")
        drawn = [self.llm.generate(PROMPT, max_tokens=12, temperature=1.5, seed=7).text for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])

    def test_openai_dicts(self):
        reply = self.llm.create_chat_completion(MESSAGES, max_tokens=4, temperature=0)
        self.assertEqual(reply["object"], "chat.completion")
        chunks = list(self.llm.create_chat_completion(MESSAGES, max_tokens=4, temperature=0, stream=True))
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]),
                         reply["choices"][0]["message"]["content"])
        reply = self.llm.create_completion(PROMPT, max_tokens=4, temperature=0)
        self.assertEqual(reply["choices"][0]["text"], self.llm.generate(PROMPT, max_tokens=4, temperature=0).text)
        vectors = self.llm.create_embedding(["a", "b"])["data"]
        self.assertEqual([entry["index"] for entry in vectors], [0, 1])

    def test_forms_and_tools(self):
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
                  "additionalProperties": False}
        reply = self.llm.create_chat_completion(
            MESSAGES, max_tokens=400, temperature=0,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        self.assertIn(json.loads(reply["choices"][0]["message"]["content"])["n"], (1, 2))
        tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
        reply = self.llm.create_chat_completion(MESSAGES, tools=tools, tool_choice="required", max_tokens=400, temperature=0)
        call, = reply["choices"][0]["message"]["tool_calls"]
        self.assertEqual(call["function"]["name"], "look")
        self.assertEqual(self.llm.chat(MESSAGES, tools=tools, tool_choice="required", max_tokens=400, temperature=0)
                         .tool_calls[0]["function"], call["function"])

    def test_chat(self):
        answer = self.llm.chat(MESSAGES, max_tokens=4, temperature=0, logprobs=True)
        self.assertEqual(len(answer.logprobs), 4)
        self.assertTrue(all(value <= 0 for value in answer.logprobs))
        stream = self.llm.chat(MESSAGES, max_tokens=4, temperature=0, stream=True)
        self.assertEqual("".join(chunk.text for chunk in stream), answer.text)

    def test_tokens(self):
        ids = self.llm.tokenize("a river, two rivers")
        self.assertEqual(self.llm.detokenize(ids), "a river, two rivers")
        self.assertEqual(len(self.llm.tokenize("a river", add_special=True)), len(self.llm.tokenize("a river")) + 1)
        self.assertIn("Name a town.", self.llm.apply_template(MESSAGES))

    def test_trace(self):
        answer = self.llm.generate(LONG + "<b>&", max_tokens=4, temperature=0, prune="random:keep=0.5,min=0", trace=True)
        trace = answer.trace
        self.assertEqual(len(trace.depth()), answer.prompt_tokens)
        self.assertEqual(len(trace.pieces()), answer.prompt_tokens)
        self.assertEqual(sum(trace.depth()), sum(answer.prune["kept_per_layer"]))
        self.assertLess(min(trace.depth()), trace.layers)
        self.assertEqual(max(trace.depth()), trace.layers)
        with tempfile.TemporaryDirectory() as folder:
            page = trace.html(pathlib.Path(folder, "run.html")).read_text(encoding="utf-8")
        self.assertNotIn("<b>", page)
        self.assertNotRegex(page, r"(src|href)=|https?:")
        shown = re.search(r'<div id="prompt">(.*?)</div>', page, re.DOTALL).group(1)
        self.assertEqual(html.unescape(re.sub(r"<[^>]*>", "", shown)), "".join(trace.pieces()))
        self.assertEqual(shown.count("<span"), 1 + sum(a != b for a, b in zip(trace.depth(), trace.depth()[1:])))
        with self.assertRaisesRegex(CoppiceError, "trace=True"):
            self.llm.generate(PROMPT, max_tokens=1).trace

    def test_plan_and_methods(self):
        plan = self.llm.plan(900, "coppice")
        self.assertFalse(plan["active"])
        self.assertIn("break-even", plan["reason"])
        self.assertTrue(self.llm.plan(3000, "coppice:min=0")["active"])
        self.assertIn("lazyllm", [method["name"] for method in self.llm.methods()])

    def test_n_is_refused(self):
        with self.assertRaises(InvalidRequest) as caught:
            self.llm.generate(PROMPT, n=2)
        self.assertEqual(caught.exception.param, "n")

    def test_ignored_fields_warn(self):
        with self.assertWarnsRegex(UserWarning, "bogus"):
            self.llm.generate(PROMPT, max_tokens=1, bogus=1)

    def test_async(self):
        async def ask():
            return (await self.llm.agenerate([PROMPT, "A"], max_tokens=4, temperature=0),
                    await self.llm.aask(LONG, "Who?", max_tokens=4),
                    await self.llm.achat(MESSAGES, max_tokens=4, temperature=0),
                    "".join([chunk.text async for chunk in self.llm.astream(PROMPT, max_tokens=4, temperature=0)]))

        generated, asked, chat, streamed = asyncio.run(ask())
        self.assertEqual(generated[0].text, self.llm.generate(PROMPT, max_tokens=4, temperature=0).text)
        self.assertEqual(len(generated), 2)
        self.assertEqual(asked.text, self.llm.ask(LONG, "Who?", max_tokens=4).text)
        self.assertEqual(chat.text, self.llm.chat(MESSAGES, max_tokens=4, temperature=0).text)
        self.assertEqual(streamed, generated[0].text)


class SameAsElsewhere(ModelCase):
    def test_program(self):
        """The text of `coppice run`."""
        for prompt in (PROMPT, DOCUMENT[:1500]):
            said = program("run", "-m", MINI, "-c", 4096, "-p", prompt, "-n", 24, "--temp", 0, "-q")
            text = self.llm.generate(prompt, max_tokens=24, temperature=0).text
            self.assertIn(text.strip(), said)
            self.assertGreater(len(text), 20)

    def test_program_pruned(self):
        said = json.loads(program("run", "-m", MINI, "-c", 4096, "-p", LONG, "-n", 16, "--temp", 0, "-q", "--json",
                                  "--prune", "coppice:min=0"))
        answer = self.llm.generate(LONG, max_tokens=16, temperature=0, prune="coppice:min=0", cache_prompt=False)
        self.assertEqual(answer.text, said["text"])
        self.assertEqual(answer.prune["kept_per_layer"], said["prune"]["kept_per_layer"])
        self.assertTrue(answer.prune["active"])

    def test_http(self):
        """Texts, scores and vectors are those of the server, to the bit."""
        server = self.llm.serve(port=0)
        self.assertEqual(server.url, f"http://127.0.0.1:{server.port}")
        status, reply = post(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "return_tokens": True})
        self.assertEqual(status, 200)
        self.assertEqual(reply["choices"][0]["tokens"], self.llm.generate(PROMPT, max_tokens=12, temperature=0).token_ids)
        ids = self.llm.tokenize(DOCUMENT[:1500], add_special=True)
        _, reply = post(server, "/v1/completions", {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 1})
        sent = reply["choices"][0]["logprobs"]["token_logprobs"]
        _, values, _ = self.llm._scored(ids)
        self.assertEqual(values[1:], sent[1:])
        self.assertTrue(math.isnan(values[0]) and sent[0] is None)
        _, reply = post(server, "/v1/embeddings", {"input": PROMPT})
        self.assertEqual(list(map(float, self.llm.embed(PROMPT)))[:8], [float(x) for x in _float32(reply["data"][0]["embedding"][:8])])


def _float32(values):
    import array
    return array.array("f", values)


class Numbers(ModelCase):
    def test_score(self):
        ids = self.llm.tokenize(DOCUMENT[:900], add_special=True)
        scores = self.llm.score(ids)
        self.assertEqual(len(scores), len(ids))
        self.assertTrue(math.isnan(scores[0]))
        self.assertTrue(all(value <= 0 for value in scores[1:]))
        likely, unlikely = self.llm.score(PROMPT), self.llm.score(PROMPT[::-1])
        self.assertGreater(sum(likely[1:]) / len(likely), sum(unlikely[1:]) / len(unlikely))

    def test_perplexity(self):
        ids = self.llm.tokenize(DOCUMENT[:900], add_special=True)
        mean = -sum(map(float, self.llm.score(ids)[1:])) / (len(ids) - 1)
        self.assertAlmostEqual(math.log(self.llm.perplexity(ids)), mean, places=4)

    def test_embed(self):
        vectors = self.llm.embed([PROMPT, "something else", PROMPT])
        self.assertEqual(len(vectors), 3)
        self.assertAlmostEqual(sum(float(x) ** 2 for x in vectors[0]), 1, places=4)
        self.assertEqual(list(vectors[0]), list(vectors[2]))
        self.assertNotEqual(list(vectors[0]), list(vectors[1]))
        self.assertEqual(list(self.llm.embed(PROMPT)), list(vectors[0]))

    def test_without_numpy(self):
        """The same numbers in arrays of the standard library."""
        from unittest import mock
        from coppice_llm import _texts
        scores, vectors = self.llm.score(PROMPT), self.llm.embed([PROMPT, "b"])
        with mock.patch.object(_texts, "numpy", None):
            plain, rows = self.llm.score(PROMPT), self.llm.embed([PROMPT, "b"])
        self.assertEqual(plain.typecode, "f")
        self.assertEqual(list(plain[1:]), list(scores[1:]))
        self.assertEqual([list(row) for row in rows], [list(row) for row in vectors])

    def test_arrays_outlive_the_model(self):
        with mini() as other:
            scores, vector, text = other.score(PROMPT), other.embed(PROMPT), other.generate(PROMPT, max_tokens=4).text
        self.assertEqual(list(scores[1:]), list(self.llm.score(PROMPT)[1:]))
        self.assertEqual(list(vector), list(self.llm.embed(PROMPT)))
        self.assertIsInstance(text, str)


@needs_smol
class RealModel(unittest.TestCase):
    def test_answers_a_question(self):
        with LLM(SMOL, ctx=4096, cache_ram=512) as llm:
            answer = llm.ask("The report is signed by Anna Weber of the harbour office.", "Who signed the report?", max_tokens=24)
            self.assertIn("Anna Weber", answer.text)
            self.assertEqual(answer.finish_reason, "stop")
            self.assertLess(llm.perplexity("The cat sat on the mat."), llm.perplexity("Mat the on sat cat the."))


if __name__ == "__main__":
    unittest.main()
