"""`coppice tune`, and what `auto` does with its calibration.

    cli_tune_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from cli_support import ANSWER_2K, Case, MODEL, PROGRAM, PROMPT_2K, run
from server_support import Server


class Tune(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = f"{self.folder}/m.gguf"
        shutil.copy(MODEL, self.model)

    def tune(self, *args):
        return ["tune", "-m", self.model, "-t", "1", "--tasks", "niah", "--needles", "2", "--methods", "static:layer=5,keep=0.5",
                "--least", "50", "--steps", "1", *args]

    def auto(self, prompt, *args):
        """What `run --prune auto` answers, and says on stderr."""
        done = run("run", "-m", self.model, "-f", prompt, "-n", "8", "--temp", "0", "--prune", "auto", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode(), re.sub(r"(?m)^read [\d,]+ tokens in .*\n", "", done.stderr.decode())

    @contextlib.contextmanager
    def serving(self, *options):
        """What a server says of auto behind `ready`, in lines of its own."""
        server = Server(PROGRAM, self.model, *options).wait_ready()
        os.set_blocking(server.process.stdout.fileno(), False)
        said = (server.process.stdout.read() or b"").decode().splitlines(keepends=True)
        yield "".join(line for line in said if line.startswith("auto: "))
        self.assertEqual(server.stop(), 0)

    def test_from_tuning_to_auto(self):
        text, said = self.auto(PROMPT_2K)
        self.assertEqual(said, "auto: no calibration for this model: dense; `coppice tune -m MODEL` makes one\n")
        self.assertIn(ANSWER_2K, text)
        with self.serving("--prune", "auto:loss=5%") as start:
            self.assertEqual(start, said)
        with self.serving("--prune", "static:layer=5") as start:
            self.assertEqual(start, "")
        lines = self.good(*self.tune("--lengths", "2048", "--samples", "6", "--out", f"{self.folder}/spec.txt")).splitlines()
        self.assertTrue(lines[-1].startswith("static:"), lines)
        self.assertIn("static: " + lines[-1], lines)
        self.assertTrue(all(len(line) < 120 for line in lines if line.startswith("* static")), lines)
        self.assertEqual(pathlib.Path(f"{self.folder}/spec.txt").read_text(), lines[-1] + "\n")
        calibration = f"{self.model}.coppice.json"
        self.assertIn(f"calibration: {calibration}", lines)
        entry = json.loads(pathlib.Path(calibration).read_text())["entries"][0]
        self.assertEqual((entry["loss"], entry["min_tokens"], entry["max_tokens"], entry["prune"]), (0.01, 1844, 3072, lines[-1]))
        self.assertEqual((entry["held_out"]["n"], entry["made"]["tasks"][0]["used"]), (3, True))
        self.assertEqual((entry["kinds"], entry["chosen_tasks"]), (["competing_facts"], True))
        # What the user did not choose, and what asks no question, is not believed to be kept.
        pathlib.Path(calibration).write_text(json.dumps({**json.loads(pathlib.Path(calibration).read_text()),
                                                         "entries": [{**entry, "chosen_tasks": False}]}))
        _, said = self.auto(PROMPT_2K)
        self.assertIn("1,844 to 3,072 tokens: dense, it was measured on facts that compete only; `coppice tune", said)
        pathlib.Path(calibration).write_text(json.dumps({**json.loads(pathlib.Path(calibration).read_text()), "entries": [entry]}))
        text = pathlib.Path(self.folder, "text.txt")
        text.write_text(pathlib.Path(PROMPT_2K).read_text().rsplit("\nQuestion:", 1)[0] + " The secret code is a")
        _, said = self.auto(text)
        self.assertRegex(said, "dense, the prompt asks no question, and the setting was measured on facts that compete only\n$")
        # Covered, then not.
        text, said = self.auto(PROMPT_2K)
        self.assertRegex(said, r"^auto: calibration m\.gguf\.coppice\.json: 1 % loss, 1,844 to 3,072 tokens: held-out .*, n=3, "
                               rf"measured on facts that compete only: {re.escape(lines[-1])}\n$")
        with self.serving("--prune", "auto") as start:
            self.assertRegex(start, r"^auto: prompts of 1844 to 3072 tokens: static:.* \(calibration m\.gguf\.coppice\.json: .*, n=3, "
                                    r"measured on facts that compete only\)\nauto: prompts of other lengths run densely\n$")
        answer = json.loads(self.auto(PROMPT_2K, "--json")[0])["prune"]
        self.assertTrue(answer["active"])
        self.assertTrue(answer["spec"].startswith("static:"), answer["spec"])
        self.assertIn("1,844 to 3,072", answer["auto"])
        short = pathlib.Path(self.folder, "short.txt")
        short.write_text(pathlib.Path(PROMPT_2K).read_text()[-1000:])
        _, said = self.auto(short)
        self.assertRegex(said, r"covers 1,844 to 3,072 tokens, the prompt has \d+: dense\n$")
        self.assertEqual(json.loads(self.auto(short, "--json")[0])["prune"]["spec"], "none")
        rows = json.loads(self.good("compare", "-m", self.model, "-f", PROMPT_2K, "-n", "2", "-r", "1", "--prune", "auto", "--json"))
        self.assertEqual(rows[1]["prune"]["spec"], answer["spec"])
        self.assertIn("auto ran static:", self.good("compare", "-m", self.model, "-f", PROMPT_2K, "-n", "2", "-r", "1", "--prune", "auto"))
        plan = self.good("bench", "-m", self.model, "-p", "2048,100", "--dry-run", "--prune", "auto", "-o", "jsonl").splitlines()
        self.assertEqual([json.loads(line)["prune"] for line in plan], ["none", answer["spec"], "none", "none"])
        self.bad("run", "-m", self.model, "-f", PROMPT_2K, "--prune", "auto+ftp", says=["auto stands alone"])
        pathlib.Path(calibration).write_text("{}")
        self.bad("run", "-m", self.model, "-f", PROMPT_2K, "--prune", "auto", says=[calibration, "format is missing"])

    def test_goes_on_and_says_where_nothing_is_found(self):
        command = self.tune("--lengths", "512", "--samples", "6", "-o", f"{self.folder}/c.json", "--work", f"{self.folder}/work")
        budgets = ["--budget", "40%", "--budget", "kl=9"]
        first = self.good(*command, *budgets).splitlines()
        self.assertEqual(sorted(os.listdir(f"{self.folder}/work")), ["tune.json", "tune.jsonl"])
        size = os.path.getsize(f"{self.folder}/work/tune.jsonl")
        self.assertEqual(self.good(*command, *budgets).splitlines()[-1], first[-1])
        self.assertEqual(os.path.getsize(f"{self.folder}/work/tune.jsonl"), size, "nothing is run again")
        entries = json.loads(pathlib.Path(self.folder, "c.json").read_text())["entries"]
        self.assertEqual([entry["loss"] for entry in entries], [0.4], "a divergence has no loss to ask for")
        done = run(*command, "--budget", "kl=0", "--out", f"{self.folder}/none.txt")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing meets the budget of KL 0: at 512 tokens no setting kept it", done.stderr)
        self.assertIn(b"static: none: nothing within the budget: the nearest is static:", done.stdout)
        self.assertFalse(os.path.exists(f"{self.folder}/none.txt"))
        self.bad(*command, "--budget", "1", says=["--budget 1"])
        self.bad(*command, "--budget", "1%", "--budget", "1%", says=["--budget 1%: named twice"])
        self.bad(*command, "--methods", "h2o", says=["--methods h2o"])
        before = pathlib.Path(self.folder, "c.json").read_text()
        done = run(*command, "--budget", "40%", "--time-limit", "0.0001", "--seed", "2", "--work", f"{self.folder}/other")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"--time-limit", done.stderr)
        self.assertRegex(done.stderr.decode(), r"tune: 512 tokens: 1 task, \d samples? of each .* a dense answer: less than a minute")
        self.assertIn(b"tested no setting; the time limit (--time-limit) ended it: the same command goes on from here", done.stdout)
        self.assertEqual(json.loads(pathlib.Path(self.folder, "c.json").read_text())["entries"][0]["prune"],
                         json.loads(before)["entries"][0]["prune"], "what was found before stays")
        self.bad(*self.tune("-o", f"{self.folder}/missing/c.json"), says=["missing/c.json"])
        self.bad("tune", "-m", self.model, "--least", "200", code=2, says=["--least"])
        self.bad("tune", "-m", self.model, "--head-patterns", "h.json", code=2, says=["--reference"])
        self.bad("tune", "-m", self.model, "--head-budget", "99", code=2, says=["--head-patterns"])
        heads, text = f"{self.folder}/heads.json", pathlib.Path(f"{self.folder}/text.txt")
        text.write_text("A line of the reference. " * 100)
        said = self.good("tune", "-m", self.model, "--head-patterns", heads, "--reference", text, "-c", "400", "--head-budget", "99")
        self.good("run", "-m", self.model, "-f", text, "-n", "1", "--prune", f"{said.splitlines()[-1]},min=0")
        self.bad("tune", "-m", self.model, "--reference", text, code=2, says=["--head-patterns or --ffn-proxies"])

    def until_killed(self, command, signal_number):
        """Ends the command once it has answered more, with a setting; its code, output and records."""
        journal = pathlib.Path(command[command.index("--work") + 1], "tune.jsonl")
        before = journal.stat().st_size if journal.exists() else 0
        process = subprocess.Popen([PROGRAM, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not (journal.exists() and journal.stat().st_size > before and b"static:" in journal.read_bytes()):
            self.assertIsNone(process.poll(), "it ended before")
            time.sleep(0.02)
        process.send_signal(signal_number)
        out, err = process.communicate(timeout=120)
        return process.returncode, out.decode(), journal.read_text().splitlines()

    def test_interrupted_and_killed(self):
        """Ctrl-C leaves a file that says how far it came; the same command goes on, also after a kill."""
        command = ["tune", "-m", self.model, "-t", "1", "--tasks", "niah", "--needles", "2", "--methods", "static", "--least", "50",
                   "--lengths", "1024", "--samples", "16", "--work", f"{self.folder}/work", "--time-limit", "0"]
        code, _, killed = self.until_killed(command, signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        calibration = pathlib.Path(f"{self.model}.coppice.json")
        self.assertFalse(calibration.exists())
        shutil.copytree(f"{self.folder}/work", f"{self.folder}/copy")
        # Begun again, it has the records of before and is interrupted at once.
        code, out, interrupted = self.until_killed(command, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn("interrupted: the same command goes on from here", out)
        whole = killed if killed[-1].endswith("}") else killed[:-1]
        self.assertEqual(interrupted[: len(whole)], whole)
        entry = json.loads(calibration.read_text())["entries"][0]
        self.assertEqual((entry["prune"], entry["unfinished"]), ("none", True))
        self.assertIn("goes on from here", entry["why"])
        lines = self.good(*command).splitlines()
        self.assertTrue(lines[-1].startswith("static:"), lines)
        entry = json.loads(calibration.read_text())["entries"][0]
        self.assertEqual((entry["prune"], entry.get("unfinished")), (lines[-1], None))
        after = pathlib.Path(self.folder, "work/tune.jsonl").read_text().splitlines()
        self.assertEqual(after[: len(interrupted)], interrupted)
        self.assertIn("The frontier, on the samples of the search", "\n".join(lines))

    def test_ffn_proxies(self):
        text, proxies = pathlib.Path(f"{self.folder}/text.txt"), f"{self.folder}/proxies.safetensors"
        text.write_text("".join(f"Line {i * i} of the reference says {i * 7919}. " for i in range(200)))
        make = ("tune", "-m", self.model, "--reference", text, "-c", "400", "--proxy-tokens", "200", "--ffn-proxies")
        said = self.good(*make, proxies, "--proxy-channels", "64", "--proxy-rank", "24").splitlines()
        self.assertEqual(said[-1], f"spts:proxy={proxies}")
        self.assertIn("200 calibrate, 50 are held out; 64 channels, rank 24", said[0])
        self.assertEqual([row.split()[0] for row in said if "%" in row and row[0].isdigit()], [str(l) for l in range(10)])
        with open(proxies, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(header["__metadata__"]["rank"], "24")
        self.assertEqual(header["spts.9.down"]["shape"], [24, 64])
        chosen = self.good("run", "-m", self.model, "-f", text, "-n", "1", "--json", "--prune",
                           f"{said[-1]},begin=4,layers=6/8,keep=0.5/0.3,drop=0.1,min=0")
        self.assertTrue(json.loads(chosen)["prune"]["active"])
        self.assertEqual(header["spts.9.down"]["dtype"], "BF16")
        other = f"{self.folder}/other"
        self.bad("tune", "-m", self.model, "--ffn-proxies", other, code=2, says=["--reference"])
        self.bad("tune", "-m", self.model, "--proxy-rank", "9", code=2, says=["--ffn-proxies"])
        self.bad(*make, other, "--head-patterns", "h.json", code=2, says=["--head-patterns"])
        self.bad(*make, other, "--proxy-rank", "999", says=["rank 999"])
        self.bad(*make, f"{self.folder}/missing/p", says=["missing/p"])
        text.write_text("Too short.")
        self.bad(*make, other, says=["at least 256"])
        self.assertFalse(os.path.exists(other))


if __name__ == "__main__":
    unittest.main(verbosity=2)
