"""Programs of others over a model in this process, where they are installed: LangChain, and lm-evaluation-harness, whose
task has the same scores in process and by its own local-completions over HTTP."""

import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from support import LONG, MESSAGES, MINI, ROOT, ModelCase, python

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


class Afternoon(unittest.TestCase):
    """examples/methods.py: five methods over a table of prompts, and a picture of them."""

    def run_example(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "Agg"}
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"^(\S+) +speed-up +([\d.]+)  loss +([\d.]+)$", done.stdout, re.MULTILINE)
        self.assertEqual(len(lines), 5, done.stdout)
        self.assertEqual((lines[0][0], float(lines[0][1])), ("none", 1))
        losses = {method: float(loss) for method, _, loss in lines}
        self.assertGreater(losses["random:min=0"], losses["none"])  # half of the fact's tokens are gone
        return done.stdout

    def test_without_matplotlib(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "matplotlib").mkdir()
            pathlib.Path(folder, "matplotlib/__init__.py").write_text("raise ImportError('hidden by the test')")
            with mock.patch.object(sys, "path", [folder, *sys.path]):
                said = self.run_example(ROOT / "examples/methods.py", MINI, os.path.join(folder, "a.png"))
            self.assertIn("no picture: matplotlib is not installed", said)
            self.assertFalse(os.path.exists(os.path.join(folder, "a.png")))

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed (make clients)")
    def test_picture(self):
        """It has the five points in five colours, each inside the axes, and a legend that names the methods."""
        code = ("import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
                "import matplotlib.pyplot as plt\naxes = plt.gca()\n"
                "for points in axes.collections:\n"
                "    x, y = axes.transAxes.inverted().transform(axes.transData.transform(points.get_offsets()[0]))\n"
                "    print('point', 0 < x < 1 and 0 < y < 1, points.get_facecolor()[0].tolist())\n"
                "print('legend', [text.get_text() for text in axes.get_legend().get_texts()])")
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder, "methods.png")
            said = self.run_example("-c", code, ROOT / "examples/methods.py", MINI, picture)
            points = re.findall(r"^point True (.*)$", said, re.MULTILINE)
            self.assertEqual(len(set(points)), 5, said)
            for method in ("none", "coppice:min=0", "lazyllm:min=0", "fastkv:min=0", "random:min=0"):
                self.assertIn(f"'{method}'", said.split("legend")[-1])
            import matplotlib.image
            pixels = matplotlib.image.imread(picture)
            self.assertGreaterEqual(pixels.shape[0] * pixels.shape[1], 300000)
            for colour in map(json.loads, points):  # of a point, and of its mark in the legend
                near = abs(pixels[:, :, :3] - colour[:3]).max(axis=2) < 0.02
                self.assertGreater(int(near.sum()), 20, colour)


@unittest.skipUnless(importlib.util.find_spec("tqdm"), "tqdm is not installed")
class Bars(ModelCase):
    """progress=True with the real tqdm."""

    def test_terminal(self):
        with mock.patch("sys.stderr", io.StringIO()) as said:
            answer = self.llm.generate(LONG, max_tokens=1, progress=True, cache_prompt=False)
        last = said.getvalue().split("\r")[-1]
        self.assertIn("prompt: 100%", last)
        self.assertIn(f"{answer.prompt_tokens}/{answer.prompt_tokens} [", last)
        self.assertTrue(last.endswith("\n"), "what is printed next begins on a line of its own")

    def test_work_that_ends_early_closes_its_bar(self):
        bars, plain = [], tqdm_class()

        class Interrupted(plain):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                bars.append(self)

            def update(self, n=1):
                super().update(n)
                raise KeyboardInterrupt

        with mock.patch("tqdm.auto.tqdm", Interrupted), mock.patch("sys.stderr", io.StringIO()) as said:
            with self.assertRaises(KeyboardInterrupt):
                self.llm.generate(LONG, max_tokens=1, progress=True, cache_prompt=False)
            self.assertTrue(bars[0].disable, "closed")
            self.assertTrue(said.getvalue().endswith("\n"))
        self.assertTrue(self.idle())

    @unittest.skipUnless(importlib.util.find_spec("ipywidgets") and importlib.util.find_spec("IPython"),
                         "ipywidgets is not installed (make clients)")
    def test_notebook(self):
        """In a kernel of IPython the bar is a widget, which turns red where the work ends early."""
        code = ("import sys, types\nsys.modules['ipykernel.zmqshell'] = types.ModuleType('zmqshell')  # a notebook\n"
                "from IPython.core.interactiveshell import InteractiveShell\nInteractiveShell.instance()\n"
                "from coppice_llm import LLM\nimport tqdm.notebook\nbars, plain = [], tqdm.notebook.tqdm.display\n"
                "def display(bar, *words, **options):\n"
                "    bars.append(bar)\n    return plain(bar, *words, **options)\n"
                "tqdm.notebook.tqdm.display = display\n"
                "llm = LLM(sys.argv[1], ctx=2048)\nanswer = llm.generate(sys.argv[2], max_tokens=1, progress=True)\n"
                "bar = bars[-1].container.children[1]\n"
                "print('bar', type(bar).__name__, bar.value == bar.max == answer.prompt_tokens, bar.bar_style)\n"
                "from coppice_llm import _progress\nreport = _progress.reporter(True)\nreport(3, 10, None)\n"
                "_progress.closed(report)\nbar = bars[-1].container.children[1]\nprint('bar', bar.value, bar.bar_style)")
        said, error = python(code, MINI, LONG).communicate(timeout=600)
        lines = [line for line in said.decode().splitlines() if line.startswith("bar ")]  # the widgets show texts as well
        self.assertEqual(lines, ["bar FloatProgress True success", "bar 3.0 danger"], error.decode())


def tqdm_class():
    import tqdm.auto
    return tqdm.auto.tqdm


if __name__ == "__main__":
    unittest.main()
