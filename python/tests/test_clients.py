"""Programs of others over a model in this process, where they are installed: LangChain, and lm-evaluation-harness, whose
task has the same scores in process and by its own local-completions over HTTP."""

import importlib.util
import json
import os
import pathlib
import tempfile
import unittest

from support import MESSAGES, MINI, ModelCase

TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{validation: "{data}"}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: label
target_delimiter: " "
metric_list:
  - metric: acc
"""
QUESTIONS = [
    {"question": "Once upon a time there was a", "choices": ["king who", "of the and", "x"], "label": 0},
    {"question": "The mill stood by the", "choices": ["water.", "seven"], "label": 0},
]


@unittest.skipUnless(importlib.util.find_spec("langchain_openai"), "langchain_openai is not installed")
class LangChain(ModelCase):
    def test_chat(self):
        from langchain_openai import ChatOpenAI
        server = self.llm.serve()
        chat = ChatOpenAI(base_url=server.url + "/v1", api_key="any", model="any", temperature=0, max_tokens=8, max_retries=0)
        here = self.llm.chat(MESSAGES, temperature=0, max_tokens=8)
        self.assertEqual(chat.invoke(MESSAGES[0]["content"]).content, here.text)
        self.assertEqual("".join(part.content for part in chat.stream(MESSAGES[0]["content"])), here.text)


class LlamaCppPython(unittest.TestCase):
    """A program written for llama-cpp-python, of which only the import and the constructor are changed."""

    def test_program(self):
        from coppice_llm import LLM as Llama
        llm = Llama(MINI, ctx=2048, threads=1)
        self.addCleanup(llm.close)

        output = llm("One day a fox", max_tokens=16, stop=["\n", "Q:"], echo=True, temperature=0.0, seed=1)
        self.assertEqual(output["object"], "text_completion")
        self.assertTrue(output["choices"][0]["text"].startswith("One day a fox"))
        self.assertIn(output["choices"][0]["finish_reason"], ("length", "stop"))
        self.assertLessEqual(output["usage"]["completion_tokens"], 16)

        text = "".join(chunk["choices"][0]["text"] for chunk in llm("One day a fox", max_tokens=16, temperature=0, stream=True))
        self.assertEqual(text, llm.create_completion("One day a fox", max_tokens=16, temperature=0)["choices"][0]["text"])

        chat = llm.create_chat_completion(
            messages=[{"role": "system", "content": "You answer in JSON."}, {"role": "user", "content": "A town?"}],
            response_format={"type": "json_object", "schema": {"type": "object", "properties": {"town": {"enum": ["Rome"]}},
                                                               "required": ["town"]}}, temperature=0, max_tokens=256)
        content = chat["choices"][0]["message"]["content"]  # with as many spaces as so small a model likes
        self.assertTrue("".join(content.split()).startswith('{"town":"Rome"'), content)

        vector = llm.create_embedding("A river")["data"][0]["embedding"]
        self.assertAlmostEqual(sum(value * value for value in vector), 1, places=4)
        self.assertEqual(llm.detokenize(llm.tokenize(b"A river")).strip(), "A river")


@unittest.skipUnless(importlib.util.find_spec("lm_eval"), "lm_eval is not installed")
class Harness(ModelCase):
    def samples(self, model, **more):
        import lm_eval
        import lm_eval.tasks
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "data.jsonl"
            data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
            (pathlib.Path(folder) / "own.yaml").write_text(TASK.format(name="coppice_own_task", data=data))
            manager = lm_eval.tasks.TaskManager(include_path=folder, include_defaults=False)
            found = lm_eval.simple_evaluate(model=model, tasks=["coppice_own_task"], task_manager=manager, log_samples=True,
                                            bootstrap_iters=0, **more)["samples"]["coppice_own_task"]
        return [[tuple(answer) for answer in sample["filtered_resps"]] for sample in sorted(found, key=lambda s: s["doc_id"])]

    def test_one_task_in_process_and_over_http(self):
        from coppice_llm.lm_eval import CoppiceLM
        os.environ.setdefault("OPENAI_API_KEY", "any")
        here = CoppiceLM(str(self.llm.path), ctx=4096, cache_ram=256, packed_ram=0, add_bos=False)
        self.addCleanup(here.llm.close)
        in_process = self.samples(here)
        server = self.llm.serve()
        remote = self.samples("local-completions", model_args={
            "model": "any", "base_url": server.url + "/v1/completions", "tokenizer_backend": "remote", "max_retries": 1,
            "batch_size": 1})
        self.assertEqual(in_process, remote)
        self.assertEqual([len(answers) for answers in in_process], [3, 2])


if __name__ == "__main__":
    unittest.main()
