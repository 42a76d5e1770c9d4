"""`coppice doctor`: doctor_test.py PROGRAM SOURCE_DIR"""

import json
import os
import re
import shutil
import tempfile
import unittest

from cli_support import Case, MODEL

MACHINE = ["program", "cpu", "isa", "vector_units", "cores", "threads", "memory", "huge_pages", "io_uring", "gpu",
           "arithmetic", "memory_bandwidth"]
OF_A_MODEL = ["model", "fit", "calibration", "model_rates", "expected_ttft_4096", "expected_ttft_32768",
              "expected_decode", "estimate"]
USABLE = len(os.sched_getaffinity(0))


class Doctor(Case):
    def found(self, *args, isa=None):
        env = {name: value for name, value in os.environ.items() if name != "COPPICE_ISA"}
        if isa is not None:
            env["COPPICE_ISA"] = isa
        return json.loads(self.good("doctor", *args, "--json", env=env))

    def test_the_machine(self):
        found = self.found()
        self.assertEqual([key for key in found if key != "load"], MACHINE)
        for key, one in found.items():
            self.assertEqual((type(one["finding"]), type(one["hints"])), (str, list), key)
            self.assertTrue(one["finding"], key)
        isa = found["isa"]
        self.assertEqual((isa["used"], isa["forced"], isa["hints"] == []), (isa["found"], None, isa["found"] != "scalar"))
        self.assertEqual(found["threads"]["used"], USABLE)
        self.assertEqual(found["cores"]["usable"], USABLE)
        self.assertLessEqual(found["cores"]["physical_cores"], found["cores"]["online"])
        for rate in ["bf16_flops_per_second", "q4_0_flops_per_second"]:
            self.assertGreater(found["arithmetic"][rate], 0)
        self.assertGreater(found["memory_bandwidth"]["bytes_per_second"], 0)
        self.assertGreater(found["memory"]["total_bytes"], found["memory"]["available_bytes"])

    def test_the_table_lines_up_and_says_the_same(self):
        lines = self.good("doctor").splitlines()
        column = lines[0].index("0.")
        for line in lines:
            self.assertRegex(line, r"^.{%d}  \S" % (column - 2))
        names = {re.split(r" {2,}", line)[0] for line in lines}
        self.assertLessEqual({"coppice", "CPU", "kernels", "threads", "memory", "io_uring", "GPU", "products"}, names)

    def test_a_lower_isa_and_none(self):
        slow = self.found(isa="scalar")
        self.assertEqual((slow["isa"]["used"], slow["isa"]["forced"]), ("scalar", "scalar"))
        if slow["isa"]["found"] != "scalar":
            self.assertEqual(slow["isa"]["hints"],
                             [f"COPPICE_ISA=scalar is set, but this CPU has {slow['isa']['found']}: unset it"])
        none = self.found("-m", MODEL, isa="mmx")
        self.assertIsNone(none["isa"]["used"])
        self.assertIn("COPPICE_ISA=mmx", none["isa"]["finding"])
        self.assertIn("unset it", none["isa"]["hints"][0])
        self.assertIsNone(none["arithmetic"]["bf16_flops_per_second"])
        self.assertEqual(list(none)[-3:], OF_A_MODEL[:3])

    def test_more_threads_than_cpus(self):
        many = self.found("-t", str(USABLE + 3))["threads"]
        self.assertEqual(many["used"], USABLE + 3)
        self.assertIn(f"{USABLE + 3} threads, but this process may use {USABLE} CPU", many["hints"][0])
        self.assertRegex(many["hints"][0], r": -t \d+$")
        self.assertEqual(self.found("-t", "1")["threads"], {"finding": "1 (-t)", "used": 1, "hints": []})

    def test_a_model(self):
        found = self.found("-m", MODEL)
        self.assertEqual([key for key in found if key != "load"], MACHINE + OF_A_MODEL)
        self.assertEqual((found["model"]["architecture"], found["model"]["type"]), ("llama", "F16"))
        said = self.good("inspect", "-m", MODEL)
        self.assertIn(f"{found['model']['parameters'] / 1e6:.2f} M in ", said)
        self.assertRegex(said, rf"context +{found['model']['context']}\n")
        self.assertTrue(found["fit"]["fits"])
        for tokens in [4096, 32768]:
            one = found[f"expected_ttft_{tokens}"]
            self.assertEqual((one["tokens"], one["beyond_context"]), (tokens, tokens > found["model"]["context"]))
            for arm in [one["dense"], one["pruned"]]:
                parts = [arm[f"{part}_seconds"] for part in ["products", "attention", "packing"]]
                self.assertAlmostEqual(arm["seconds"], sum(parts), delta=1e-9 * arm["seconds"])
                self.assertGreater(min(parts), 0)
            self.assertLess(one["pruned"]["seconds"], one["dense"]["seconds"])
        self.assertGreater(found["expected_ttft_32768"]["dense"]["attention_seconds"],
                           60 * found["expected_ttft_4096"]["dense"]["attention_seconds"])
        self.assertGreater(found["expected_decode"]["tokens_per_second"], 0)
        self.assertIn("estimate", found["estimate"]["finding"])

    def test_a_calibration_that_is_broken_is_a_hint(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(MODEL, folder)
            with open(f"{model}.coppice.json", "w", encoding="utf-8") as file:
                file.write("{")
            calibration = self.found("-m", model)["calibration"]
        self.assertIn("coppice.json", calibration["finding"])
        self.assertIn("coppice tune", calibration["hints"][0])

    def test_a_model_that_cannot_be_opened(self):
        self.bad("doctor", "-m", "/no/such/model.gguf", says=["/no/such/model.gguf"])
        self.bad("doctor", "-m", __file__, "--json", says=["doctor_test.py"])
        self.bad("doctor", "-t", "1025", code=2, says=["--threads"])


if __name__ == "__main__":
    unittest.main()
