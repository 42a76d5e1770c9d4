"""The model of lm-evaluation-harness, where that is installed."""

import importlib.util
import math
import types
import unittest

from support import DOCUMENT, LONG, MINI, PROMPT


def request(*arguments):
    return types.SimpleNamespace(args=arguments)


@unittest.skipUnless(importlib.util.find_spec("lm_eval"), "lm_eval is not installed (pip install lm-eval)")
class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from coppice_llm.lm_eval import CoppiceLM
        cls.lm = CoppiceLM.create_from_arg_obj({"path": str(MINI), "ctx": 1024, "cache_ram": 64}, {"batch_size": 1, "device": None})
        cls.addClassCleanup(cls.lm.llm.close)

    def test_registered(self):
        from coppice_llm.lm_eval import CoppiceLM, register
        from lm_eval.api.registry import get_model
        register()
        register()
        self.assertIs(get_model("coppice"), CoppiceLM)

    def test_loglikelihood(self):
        (value, greedy), (other, _) = self.lm.loglikelihood([request(PROMPT, " He was"), request(PROMPT, " xq zz")], disable_tqdm=True)
        ids = self.lm.tok_encode(PROMPT.rstrip() + "  He was")
        kept = len(self.lm.tok_encode(PROMPT.rstrip()))
        self.assertAlmostEqual(value, sum(map(float, self.lm.llm.score(ids)[kept:])), places=4)
        self.assertGreater(value, other)
        best = self.lm.llm.generate(self.lm.tok_encode("The"), max_tokens=1, temperature=0)
        (_, greedy), = self.lm._loglikelihood_tokens([(None, self.lm.tok_encode("The"), best.token_ids)])
        self.assertTrue(greedy)
        (_, greedy), = self.lm._loglikelihood_tokens([(None, self.lm.tok_encode("The"), [best.token_ids[0] + 1])])
        self.assertFalse(greedy)

    def test_rolling(self):
        short, long = self.lm.loglikelihood_rolling([request(DOCUMENT[:600]), request(DOCUMENT[:8000])])
        ids = [self.lm.prefix_token_id, *self.lm.llm.tokenize(DOCUMENT[:600])]
        self.assertAlmostEqual(short, sum(map(float, self.lm.llm.score(ids)[1:])), places=2)
        self.assertLess(long, short)
        self.assertTrue(math.isfinite(long))

    def test_generate(self):
        whole, = self.lm.generate_until([request(PROMPT, {"until": [], "max_gen_toks": 16, "do_sample": False})])
        self.assertEqual(whole, self.lm.llm.generate(PROMPT, max_tokens=16, temperature=0).text)
        word = whole.split()[2]
        cut, = self.lm.generate_until([request(PROMPT, {"until": word, "max_gen_toks": 16})])
        self.assertEqual(cut, whole[:whole.index(word)])
        tail, = self.lm.generate_until([request(LONG * 4, {"until": ["."], "max_gen_toks": 8})])
        self.assertNotIn(".", tail)


if __name__ == "__main__":
    unittest.main()
