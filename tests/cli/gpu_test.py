"""`--backend gpu` from the command line and in the server, over the driver without a device (src/kernels/gpu/fake/).

    gpu_test.py PROGRAM SOURCE_DIR FAKE_DRIVER [unittest arguments]

The fake driver computes the kernels in plain C++, so answers are compared, and times mean nothing.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

FAKE = sys.argv.pop(3)
os.environ |= {"COPPICE_CUDA_LIBRARY": FAKE, "COPPICE_CUBLASLT_LIBRARY": "none"}

from cli_support import Case, MODEL, PROGRAM, PROMPT_2K, run  # noqa: E402: it reads the arguments that are left
from chat_model import write_chat_model  # noqa: E402
from server_support import Server  # noqa: E402

TEXT = pathlib.Path(PROMPT_2K).read_text()
QUESTION = TEXT[TEXT.rindex("Question:"):]
FACT = TEXT.index(re.search(r"of the \w+ \w+ is", QUESTION).group(0))
# 230 tokens: the fact that the question asks for, in its surroundings.
PROMPT = TEXT[FACT - 250:FACT + 250] + "\n" + QUESTION
SHORT = "The secret code of the misty harbor is 48213."
SLIMINFER = "sliminfer:layers=4/6/8,keep=160/112/96,decode_keep=80/64/48,block=16,last=1,unit=8,window=1,gamma=2,min=0"
LAZYLLM = "lazyllm:layers=4/6/8,keep=0.7,min=0"
GREEDY = ["--temp", "0", "-n", "6"]


def with_environment(**variables):
    return {**os.environ, **variables}


class Gpu(Case):
    def answer(self, backend, prune, *more, **kwargs):
        return json.loads(self.good("run", "-m", MODEL, "-p", PROMPT, "--backend", backend, "--prune", prune, "--json",
                                    *GREEDY, *more, **kwargs))

    def fails(self, *args, says, **variables):
        """The command ends with one line, whatever failed."""
        done = run(*args, timeout=60, env=with_environment(**variables))
        message = done.stderr.decode()
        self.assertEqual((done.returncode, message.count("\n")), (1, 1), (variables, message))
        self.assertTrue(message.startswith("coppice: "), message)
        self.assertIn(says, message, variables)
        return message


class Run(Gpu):
    def test_answers_are_those_of_the_reference(self):
        for prune in ["none", SLIMINFER, LAZYLLM, f"{SLIMINFER}+ftp:eta=0.9,min=0"]:
            gpu, reference = (self.answer(backend, prune) for backend in ["gpu", "reference"])
            self.assertEqual(gpu["backend"], "gpu")
            self.assertEqual(gpu["text"], reference["text"], prune)
            # Budgets and shares of tokens; which ones the scores choose may differ in the last bit.
            self.assertEqual(gpu["prune"]["kept_per_layer"], reference["prune"]["kept_per_layer"], prune)
            self.assertEqual(gpu["prune"]["active"], prune != "none")
            if prune != "none":
                self.assertGreater(gpu["prune"]["revived"], 0, prune)
            if prune == SLIMINFER:
                self.assertGreater(gpu["prune"]["blocks_loaded"], 0)
                self.assertGreater(gpu["prune"]["cold_bytes"], 0)

    def test_8_bit_keys(self):
        self.assertEqual(self.answer("gpu", SLIMINFER, "--cache-type", "q8_0")["text"], self.answer("gpu", "none")["text"])

    def test_compare_and_bench_print_their_tables(self):
        table = self.good("compare", "-m", MODEL, "-p", SHORT, "--backend", "gpu", "-n", "2", "-r", "1", "--prune", LAZYLLM)
        self.assertIn("backend gpu", table)
        self.assertRegex(table, r"\ndense +100 % / 100 %")
        self.assertRegex(table, r"\nlazyllm:\S+ +\d+ % / \d+ %")
        bench = json.loads(self.good("bench", "--shape", "tiny", "--backend", "gpu", "-p", "64", "-n", "2", "-r", "1",
                                     "--prune", "lazyllm:layers=1/2,keep=0.7,min=0", "-o", "json"))
        self.assertEqual([row["prune"].split(":")[0] for row in bench], ["none", "lazyllm"])
        self.assertEqual({row["backend"] for row in bench}, {"gpu"})
        self.assertIn("| none ", self.good("bench", "--shape", "tiny", "--backend", "gpu", "-p", "32", "-n", "1", "-r", "1"))


class Refusals(Gpu):
    command = ["run", "-m", MODEL, "-p", SHORT, "--backend", "gpu", *GREEDY]

    def test_no_driver_or_device(self):
        self.fails(*self.command, says="cannot load /no/such/driver.so", COPPICE_CUDA_LIBRARY="/no/such/driver.so")
        self.fails(*self.command, says="libm.so.6 has no cuInit: it is too old", COPPICE_CUDA_LIBRARY="libm.so.6")
        self.fails(*self.command, says="there is no CUDA device", COPPICE_FAKE_CUDA_DEVICES="0")

    def test_what_does_not_fit_with_its_arithmetic(self):
        message = self.fails(*self.command, says="does not fit into the memory of fake device", COPPICE_FAKE_CUDA_BYTES="4000000")
        parts = re.search(r"weights (\d+) \+ keys and values (\d+) \+ workspace (\d+) = (\d+) bytes, and (\d+) bytes are free",
                          message)
        weights, keys, workspace, total, free = map(int, parts.groups())
        self.assertEqual(weights + keys + workspace, total)
        self.assertGreater(total, free)
        self.assertLessEqual(free, 4000000)

    def test_cubins_of_a_real_device(self):
        """What a build without Triton says on a GPU, and that one with it chooses the cubins of the device's architecture."""
        done = run(*self.command, env=with_environment(COPPICE_FAKE_CUDA_CAPABILITY="71")).stderr.decode()
        built = set(done.partition("this program has kernels for")[2].split())
        none = "this program was built without GPU kernels: its build had no Triton"
        self.fails(*self.command, says="this program has kernels for sm_" if built else none,
                   COPPICE_FAKE_CUDA_CAPABILITY="71")
        other = "this program has kernels for" if built else none
        for capability, cubins in [("80", "sm_80"), ("86", "sm_80"), ("90", "sm_90"), ("100", "sm_100"), ("120", "sm_120")]:
            self.fails(*self.command, says="loading kernels failed" if cubins in built else other,
                       COPPICE_FAKE_CUDA_CAPABILITY=capability)
        self.fails(*self.command, says=f"fake device is sm_91; {other}" if built else none, COPPICE_FAKE_CUDA_CAPABILITY="91")

    def test_other_arithmetic(self):
        self.fails(*self.command, "--exact", says="no exact arithmetic")
        self.fails(*self.command, "--cache-type", "f32", says="bf16 or q8_0")

    def test_the_cold_tier_is_pinned_or_a_file(self):
        """A failing transfer between the tiers ends the run; --cold-dir takes a folder in place of pinned memory."""
        command = ["run", "-m", MODEL, "-p", PROMPT, "--backend", "gpu", "--prune", SLIMINFER, *GREEDY]
        # The first ones are for transfers of other kinds; then the parked states' and the cold tier's own come.
        messages = [self.fails(*command, says="pinned", COPPICE_FAKE_CUDA_FAIL=f"cuMemHostAlloc:{call}") for call in range(1, 5)]
        self.assertTrue(any("[cold tier] no more pinned host memory" in message for message in messages), messages)
        for call in [1, 5, 15, 30]:  # in prefill, where states are parked, and in decode
            self.fails(*command, says="[gpu] ", COPPICE_FAKE_CUDA_FAIL=f"cuStreamWaitEvent:{call}")
        self.fails(*command, "--cold-dir", "/no/such/folder", says="[cold tier] /no/such/folder")
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.good(*command, "--cold-dir", folder), self.good(*command))

    def test_a_call_that_fails_ends_the_run_with_a_line(self):
        calls = ["cuInit:1", "cuMemPoolSetAttribute:1", "cuMemAllocAsync:1", "cuMemAllocAsync:30", "cuMemHostAlloc:1",
                 "cuModuleLoadData:3", "cuLaunchKernel:1", "cuLaunchKernel:300", "cuMemcpyHtoDAsync_v2:20",
                 "cuStreamBeginCapture_v2:2", "cuStreamEndCapture:2", "cuGraphLaunch:2", "cuCtxSetCurrent:700"]
        for call in calls:
            self.fails(*self.command, says="[gpu] ", COPPICE_FAKE_CUDA_FAIL=call)


class Serve(Gpu):
    def serve(self, *options, model=MODEL, **variables):
        before = {name: os.environ.get(name) for name in variables}
        os.environ |= variables
        try:
            server = Server(PROGRAM, model, "--backend", "gpu", "-c", "1024", *options).wait_ready()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def test_chat_and_two_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/chat.gguf"
            write_chat_model(MODEL, model)
            server = self.serve("-np", "2", model=model)
            chat = server.good("/v1/chat/completions", {"messages": [{"role": "user", "content": SHORT}], "max_tokens": 4,
                                                        "temperature": 0})
            self.assertEqual(chat["choices"][0]["message"]["role"], "assistant")
            self.assertEqual(chat["usage"]["completion_tokens"], 4)
            bodies = [{"prompt": f"{SHORT} {name}", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
                      for name in ["The", "And"]]
            alone = [server.good("/v1/completions", body)["choices"][0]["text"] for body in bodies]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                together = list(pool.map(lambda body: server.good("/v1/completions", body)["choices"][0]["text"], bodies))
            self.assertEqual(together, alone)  # a row has the same bits in company
            pruned = server.good("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "prune": SLIMINFER})
            self.assertEqual(pruned["choices"][0]["text"], self.answer("gpu", SLIMINFER)["text"])

    def test_a_request_that_fails_is_answered_and_the_next_one_served(self):
        server = self.serve(COPPICE_FAKE_CUDA_FAIL="cuLaunchKernel:600")
        body = {"prompt": SHORT, "max_tokens": 6, "temperature": 0, "cache_prompt": False}
        replies = [server.ask("/v1/completions", body) for _ in range(6)]
        failed = [reply for status, _, reply in replies if status == 500]
        self.assertEqual(len(failed), 1, replies)
        self.assertIn("[gpu] starting a kernel failed", failed[0]["error"]["message"])
        texts = {reply["choices"][0]["text"] for status, _, reply in replies if status == 200}
        self.assertEqual(len(texts), 1, "the requests before and after the fault have the same answer")
        self.assertEqual(replies[-1][0], 200)

    def test_a_prompt_that_does_not_fit_is_refused(self):
        server = self.serve(COPPICE_FAKE_CUDA_BYTES="30000000")
        server.good("/v1/completions", {"prompt": SHORT, "max_tokens": 2})
        status, _, reply = server.ask("/v1/completions", {"prompt": PROMPT * 4, "max_tokens": 2})
        self.assertEqual(status, 500, reply)
        self.assertIn("does not fit into the memory of fake device: weights 0 + keys and values", reply["error"]["message"])
        server.good("/v1/completions", {"prompt": SHORT, "max_tokens": 2})


if __name__ == "__main__":
    unittest.main()
