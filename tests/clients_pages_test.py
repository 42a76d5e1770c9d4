"""The blocks of docs/clients.md, with a model that answers by heart: commands run where their program is installed, and
the addresses of the other programs' settings get a request of the form that these send.

    clients_pages_test.py PROGRAM SOURCE_DIR [unittest arguments]

Programs are looked for in SOURCE_DIR/.venv-agents (tools/agents-lock.txt), in .venv-clients, and in PATH.
"""

import json
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from agent_model import write_agent_model
from fenced import blocks_of
from server_support import Server

PROGRAM = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
BLOCKS = blocks_of(SOURCE / "docs/clients.md")
PLAIN, SAYS = "Good day to you all.", "The code word is heron."
TASK = """
task: mytask
dataset_path: json
dataset_kwargs: {{data_files: {{validation: "{data}"}}}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: label
metric_list: [{{metric: acc}}]
"""
# What the clients send, each field with the least that shows its form.
FUNCTION = {"type": "function", "function": {"name": "read", "description": "d", "parameters": {
    "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"path": {"type": "string"}},
    "required": ["path"], "additionalProperties": False}}}
CALLED = [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
                                                               "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "heron"}]
CHAT = {"model": "local", "stream": True, "stream_options": {"include_usage": True}}
USER = {"role": "user", "content": [{"type": "text", "text": "Say hello."}]}
SENT = {
    "OpenCode": {**CHAT, "max_tokens": 8192, "tools": [FUNCTION], "tool_choice": "auto",
                 "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, *CALLED]},
    "Cline": {**CHAT, "temperature": 0, "messages": [{"role": "system", "content": "<tools>"}, USER]},
    "Continue": {"model": "local", "stream": True, "max_tokens": 4096, "messages": [{"role": "user", "content": "Say hello."}]},
    "Open WebUI": {"model": "local", "stream": True, "messages": [{"role": "user", "content": "Say hello."}]},
}


def section(name, *languages):
    found = [block for block in BLOCKS if block.section == name and block.language in languages]
    assert found, f"docs/clients.md: no block of {languages} below {name}"
    return found


def call(name, **arguments):
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


def program(name):
    """Where it is; the test is skipped where it is not installed."""
    packages = sorted(SOURCE.glob(".venv-agents/lib/python3*/site-packages"))
    inside = {"claude": "claude_agent_sdk/_bundled/claude", "codex": "codex_cli_bin/bin/codex"}.get(name)
    places = [folder / inside for folder in packages if inside]
    places += [SOURCE / ".venv-agents/bin" / name, pathlib.Path(sys.executable).parent / name, SOURCE / ".venv-clients/bin" / name]
    found = next((place for place in places if place.is_file()), None) or shutil.which(name)
    if not found:
        raise unittest.SkipTest(f"{name} is not installed")
    return pathlib.Path(found)


class Page(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.home, self.work = self.folder / "home", self.folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        (self.work / "notes.txt").write_text(SAYS + "\n")

    def serve(self, reading=PLAIN):
        """A server whose model makes the call `reading` where it is asked what notes.txt says."""
        model = self.folder / "agent.gguf"
        write_agent_model(model, SOURCE / "models/coppice-mini-f16.gguf", PLAIN, SAYS, {"What does notes.txt say": reading})
        self.server = Server(PROGRAM, model, "-c", "65536", "--temp", "0").wait_ready()
        self.addCleanup(self.server.stop)

    def here(self, text):
        """The page's text with this server's address."""
        return text.replace("127.0.0.1:8080", f"127.0.0.1:{self.server.port}")

    def run_block(self, block, *programs, python=None):
        """What the block prints, in a home and a folder of its own; `programs` by the names that it uses."""
        bin_folder = self.folder / "bin"
        bin_folder.mkdir(exist_ok=True)
        for found in programs:
            if not found.stat().st_mode & stat.S_IXUSR:
                found.chmod(found.stat().st_mode | stat.S_IXUSR)  # wheels do not always keep it
            (bin_folder / found.name).symlink_to(found)
        env = {"HOME": str(self.home), "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "IS_SANDBOX": "1",
               "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        command = ["bash", "-e", "-c", self.here(block.text)] if python is None else [python, "-c", self.here(block.text)]
        done = subprocess.run(command, cwd=self.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=240 * self.server.patience)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def comes_out(self, name, printed):
        """The lines of the page's transcript, in their order."""
        at = 0
        for line in section(name, "text")[0].text.splitlines():
            found = printed.find(line, at)
            self.assertGreaterEqual(found, 0, f"{line!r} is not in {printed[at:]!r}")
            at = found + len(line)

    def reused(self, turns):
        """The last prompts took over all but little of what the turn before read."""
        counted = self.server.metrics()
        read = sum(value for name, value in counted.items() if name.startswith("coppice_prompt_tokens_computed_total"))
        prompts = sum(value for name, value in counted.items() if name.startswith("coppice_prompts_total"))
        self.assertEqual(prompts, turns, counted)
        return read

    def test_claude_code(self):
        claude = program("claude")
        self.serve(call("Read", file_path=str(self.work / "notes.txt")))
        self.comes_out("Claude Code", self.run_block(section("Claude Code", "sh")[0], claude))
        self.assertLess(self.reused(3), 26000)  # of three prompts of 22,000 tokens each

    def test_claude_code_searches_for_a_tool(self):
        """The definition that it then sends does not move the conversation."""
        claude = program("claude")
        self.serve(call("ToolSearch", query="select:WebFetch", max_results=5))
        self.run_block(section("Claude Code", "sh")[0], claude)
        self.assertLess(self.reused(3), 26000)

    def test_codex(self):
        codex = program("codex")
        self.serve(call("exec_command", cmd="cat notes.txt"))
        config = section("Codex", "toml")[0]
        self.assertIn("`~/.codex/config.toml`", config.before)
        (self.home / ".codex").mkdir()
        (self.home / ".codex/config.toml").write_text(self.here(config.text))
        self.comes_out("Codex", self.run_block(section("Codex", "sh")[0], codex))
        self.assertLess(self.reused(3), 20000)  # of three prompts of 16,000 tokens each

    def test_aider(self):
        aider = program("aider")
        self.serve()
        self.comes_out("aider", self.run_block(section("aider", "sh")[0], aider))

    def test_langchain(self):
        if subprocess.run([sys.executable, "-c", "import langchain_openai"], capture_output=True).returncode:
            self.skipTest("langchain-openai is not installed")
        self.serve()
        self.comes_out("LangChain", self.run_block(section("LangChain", "python")[0], python=sys.executable))

    def test_lm_eval(self):
        found = program("lm_eval")
        self.serve()
        (self.work / "tasks").mkdir()
        data = self.work / "data.jsonl"
        data.write_text(json.dumps({"question": "Good day", "choices": ["to you.", "x"], "label": 0}) + "\n")
        (self.work / "tasks/mytask.yaml").write_text(TASK.format(data=data))
        block = section("lm-evaluation-harness", "sh")[0]
        block.text = "export OPENAI_API_KEY=any\n" + block.text
        self.comes_out("lm-evaluation-harness", self.run_block(block, found).replace(" ", ""))

    def test_requests_of_the_others(self):
        """Settings of programs that are not run: they can be read, and their address answers what such a program sends."""
        self.serve()
        for name, body in SENT.items():
            with self.subTest(name):
                block = section(name, "json", "yaml", "sh")[0]
                if block.language == "json":
                    json.loads(block.text)
                base = re.search(r"http://127\.0\.0\.1:8080(/[\w/]*)", block.text)
                self.assertTrue(base, f"docs/clients.md: no address below {name}")
                events = self.server.stream(base[1] + "/chat/completions", body)
                said = "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1] if event["choices"])
                self.assertEqual(said, SAYS if name == "OpenCode" else PLAIN)
                self.assertEqual(self.server.good(base[1] + "/models")["data"][0]["object"], "model")

    def test_every_section_is_tested(self):
        sections = {block.section for block in BLOCKS} - {"Clients"}
        self.assertEqual(sections, {"Claude Code", "Codex", "aider", "LangChain", "lm-evaluation-harness", *SENT})


if __name__ == "__main__":
    unittest.main(verbosity=2)
