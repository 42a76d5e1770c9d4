"""A short day of coding agents (benchmarks/agent_day.py) through the official clients: a turn costs what is new in it, and
answers are those of a server without a cache. Skips (77) where the clients are not installed.

    server_agents_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import argparse
import pathlib
import sys
import tempfile
import unittest

from server_case import MODEL, PROGRAM, SOURCE
from chat_model import write_chat_model
from server_support import Server

sys.path.append(str(SOURCE / "benchmarks"))
try:
    import agent_day
except ImportError as error:
    print(f"skipped: {error}; tools/setup_clients.sh installs the clients")
    sys.exit(77)
from agent_script import plan

# Tools at the head, thinking only behind the user's last words: both as in templates of models that reason.
TEMPLATE = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- if tools %}[tools] {% for t in tools %}{{ t | tojson }}
{% endfor %}Calls look so: <tool_call>{"name": ..., "arguments": ...}</tool_call>
{% endif %}
{%- for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last -%}
<think>{{ m.reasoning_content }}</think>
{% endif %}{{ m.content or '' }}
{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>
{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""
OPTIONS = argparse.Namespace(turns=8, seed=1, scale=0.03, answer=24, pause=0.1, prune=None, check=1)
MOST = 1.3  # tokens read for one that is new


class Days(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "mini.gguf"
            write_chat_model(MODEL, model, TEMPLATE)
            cls.servers = [Server(PROGRAM, model, "-c", "16384", "-np", "4", *more).wait_ready()
                           for more in ((), ("--cache-ram", "0"))]

    @classmethod
    def tearDownClass(cls):
        assert [server.stop() for server in cls.servers] == [0, 0]

    def day(self, name):
        session, different = agent_day.spend(*(f"http://{s.host}:{s.port}" for s in self.servers), "none", name, OPTIONS)
        rows = session.rows
        shown = agent_day.table(rows) + "\n" + agent_day.summary(name, rows)
        self.assertEqual([row["refused"] for row in rows if "refused" in row], [], shown)
        self.assertEqual(different, [], shown)
        self.assertLessEqual({"turn", "title", "agent", "compaction"}, {row["kind"] for row in rows})
        for row in rows:
            self.assertLess(abs(row["rendered"] - row["prompt"]), 0.05 * row["prompt"] + 64, "new is counted in another text")
            self.assertEqual(row.get("counted", row["prompt"]), row["prompt"], shown)
        forced = [turn.number for turn in session.day if turn.forced]
        self.assertEqual([row["calls"] for row in rows if row["kind"] == "turn" and row["turn"] in forced], [1, 1], shown)
        found = agent_day.totals(rows)
        self.assertEqual(found["whole"], 0, shown)
        self.assertLessEqual(found["read_per_new"], MOST, shown)
        self.assertLessEqual(found["read_per_new_later"], MOST, shown)

    def test_claude(self):
        self.day("claude")

    def test_codex(self):
        self.day("codex")

    def test_opencode(self):
        self.day("opencode")


class Counting(unittest.TestCase):
    def test_common_beginnings(self):
        for a, b, length in [([], [], 0), ([1], [2], 0), ([1, 2, 3], [1, 2], 2), ([1, 2, 3, 4], [1, 2, 9, 4], 2)]:
            self.assertEqual(agent_day.common(a, b), length)

    def test_new_tokens(self):
        ledger = agent_day.Ledger(None)
        self.assertEqual(ledger.new([1, 2, 3]), 3)
        ledger.learn([1, 2, 3, 4, 5])
        self.assertEqual(ledger.new([1, 2, 3, 4, 9]), 1)
        self.assertEqual(ledger.new([1, 2, 3]), 1, "the last token is always computed")
        ledger.forget([1, 2, 3, 4, 9])
        self.assertEqual(ledger.new([1, 2, 3, 4, 9, 9]), 2)

    def test_a_day_has_everything(self):
        for turns in (8, 10, 20, 33):
            day = plan(turns, 1)
            self.assertEqual([t.number for t in day], list(range(1, turns + 1)))
            for what in ("scripted", "forced", "thinks", "forgets", "reminder", "note", "odd", "shuffled", "agents", "compacts"):
                self.assertTrue(any(getattr(turn, what) for turn in day), (turns, what))
            self.assertTrue(all(500 <= turn.result <= 5000 for turn in day))


if __name__ == "__main__":
    unittest.main()
