"""The engine against tools/oracle: twelve methods in plain NumPy, on trained weights.

    oracle_real_test.py PROGRAM SOURCE_DIR real|bundled [unittest arguments]

`real` asks SmolLM2-135M-Instruct in models/fetched, or the GGUF file that COPPICE_REAL_MODEL names. `bundled` asks
models/coppice-12, which takes seconds. Skips (77) where NumPy or the model is absent.
"""

import os
import pathlib
import sys
import unittest

PROGRAM, SOURCE, WEIGHTS = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
sys.path.insert(0, str(SOURCE / "tools/oracle"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin, and other tests may run beside this one

try:
    import compare
except ImportError as error:
    print(f"skipped: {error}; `apt-get install python3-numpy`, for {sys.executable}")
    sys.exit(77)

FETCHED = SOURCE / "models/fetched/SmolLM2-135M-Instruct.Q4_1.gguf"
MODELS = {"real": pathlib.Path(os.environ.get("COPPICE_REAL_MODEL") or FETCHED),
          "bundled": SOURCE / "models/coppice-12-q8_0.gguf"}
MODEL = MODELS[WEIGHTS]
SDTP_FILE = SOURCE / "models/coppice-12-sdtp.safetensors"
STEPS = 12


def layers(*shares):
    """Layers at these shares of the model's depth, as a setting."""
    return "/".join(str(round(share * compared().model.layers)) for share in shares)


def compared(made=[]):
    """The weights are read once for all tests."""
    if not made:
        made.append(compare.Comparison(MODEL, PROGRAM))
    return made[0]


class Oracle(unittest.TestCase):
    def compare(self, spec, tokens, seed, steps=STEPS, **kwargs):
        result = compared().compare(spec, compared().prompt(tokens, seed), steps + 1, **kwargs)
        print(result.line(), *(f"\n    {difference}" for difference in result.ties), file=sys.stderr, flush=True)
        self.assertEqual(result.tokens, tokens)
        return result

    def good(self, *args, prunes=True, **kwargs):
        result = self.compare(*args, **kwargs)
        self.assertEqual([str(fault) for fault in result.faults], [])
        self.assertEqual(min(result.kept, result.ffn, result.density) < 1, prunes)
        return result


class EveryMethod(Oracle):
    def test_dense(self):
        self.good("none", 600, seed=1, prunes=False)

    def test_lazyllm(self):
        self.assertGreater(self.good("lazyllm:min=0", 1000, seed=2).revived, 0)
        spec = f"lazyllm:layers={layers(.2, .4, .8)},keep=0.3/0.6/0.5,sink=4,revive_mask=causal,min=0"
        self.assertGreater(self.good(spec, 700, seed=3).revived, 0)
        self.assertEqual(self.good("lazyllm:revive=none,min=0", 600, seed=4, steps=4).revived, 0)

    def test_ftp(self):
        self.good("ftp:min=0", 1500, seed=5, steps=4)
        self.good("ftp:eta=0.6,dense=2,first=20,last=10,min=0", 700, seed=6, steps=4)

    def test_sdtp(self):
        path = compared().random_predictors(seed=7)
        self.good(f'sdtp:file="{path}",min=0', 1000, seed=7, steps=4)
        self.good(f'sdtp:file="{path}",r=0.7,first=10,local=0.05,min=0', 700, seed=8, steps=4)

    # A partial last block, and tails of two blocks and of three.
    def test_uniprefill(self):
        at = layers(.2, .4, .7)
        self.good(f"uniprefill:layers={at},p=0.8,min=0", 1283, seed=15, steps=4)
        self.good(f"uniprefill:layers={at},p=0.5,block=16,sink=32,last=20,min=0", 700, seed=16, steps=4)

    # Of fastkv: tokens of late layers and keys of every kv head, and either of them alone.
    def test_snapkv_and_fastkv(self):
        self.good("snapkv:cap=0.25,min=0", 700, seed=17, steps=4)
        self.good("snapkv:cap=100,window=8,kernel=7,pool=max,min=0", 700, seed=18, steps=4)
        at = layers(.5)
        self.good(f"fastkv:layer={at},keep=0.25,cache=0.125,min=0", 1000, seed=19, steps=4)
        self.good(f"fastkv:layer={at},keep=150,cache=1,pool=max,min=0", 700, seed=20, steps=4)
        self.good(f"fastkv:layer={at},keep=1,cache=100,window=20,kernel=3,min=0", 700, seed=21, steps=4)

    # Every stage skips rows; a dense first stage drops rows; M grows; M is 2. The oracle counts shares itself. Where
    # all but the next M leave, the next stage is dense, and its caches tell who stayed.
    def test_spts(self):
        begin, at = layers(.25), layers(.4, .6, .8)
        spec, shares = f"spts:begin={begin},layers={at},min=0", {"keep": "0.4/0.3/0.2", "drop": "0.1"}
        proxies = compared().random_proxies(seed=35, first_layer=int(begin))
        with_biases = compared().random_proxies(seed=36, layer_norm=True)
        self.good(f"{spec},keep=400/250/150,drop=100", 1000, seed=35, steps=4)
        self.good(f'{spec},proxy="{proxies}",keep=0.4/0.3/0.2,drop=0.1', 703, seed=36, steps=4, altered=shares)
        self.good(f'{spec},proxy="{with_biases}",keep=1/250/150,drop=1', 700, seed=37, steps=4, altered={"drop": "1"})
        grows = f'spts:proxy="{with_biases}",begin=0,layers={at},keep=300/100/200,drop=300,min=0'
        self.good(grows, 700, seed=38, steps=4)
        self.good(f"{spec},keep=2,drop=0", 500, seed=39, steps=4)

    # The model is its own second model.
    def test_specprefill(self):
        self.good(f'specprefill:draft="{MODEL}",keep=0.3,min=0', 700, seed=22, steps=4)
        self.good(f'specprefill:draft="{MODEL}",keep=0.5,look_ahead=3,pool=5,chunk=8,min=0', 500, seed=23, steps=4)

    # Partial last blocks, and last query blocks before the dense rows.
    def test_minference(self):
        self.good("minference:vertical=40,slash=105,min=0", 1500, seed=31, steps=4)
        self.good("minference:pattern=block_sparse,blocks=4,min=0", 1003, seed=32, steps=4)
        self.good("minference:pattern=a_shape,first=65,nearest=130,min=0", 700, seed=33, steps=4)
        heads = compared().random_head_patterns(seed=34)
        self.good(f'minference:heads="{heads}",min=0', 1500, seed=34, steps=4)

    def test_flashprefill(self):
        self.good("flashprefill:alpha=0.5,block=16,sink=1,window=1,min=0", 700, seed=27, steps=4)
        self.good("flashprefill:alpha=0.18,block=32,sink=2,window=2,last=10,min=0", 1003, seed=28, steps=4)

    def test_gemfilter(self):
        self.good("gemfilter:keep=0.25,min=0", 1000, seed=24, steps=4)
        self.good(f"gemfilter:layer={layers(.7)},keep=100,kernel=1,min=0", 700, seed=25, steps=4)
        self.good(f"gemfilter:layer={layers(.2)},keep=0.5,positions=original,kernel=7,min=0", 500, seed=26, steps=4)

    # Prompts of whole blocks, and a cap above all blocks. Twenty blocks leave ten: nine in common are gamma exactly.
    def test_sliminfer(self):
        stages, whole = f"sliminfer:layers={layers(.3, .6, .9)},min=0", ",revive_cap=4096"
        budget = f"{stages},keep=0.5/0.25/0.125"
        self.assertGreater(self.good(budget + whole, 1280, seed=4, steps=20).revived, 0)
        self.assertEqual(self.good(f"{budget}{whole},gamma=0.3", 704, seed=9).revived, 0)
        less = f"{stages},keep=0.6/0.5/0.4,decode_keep=0.4/0.3/0.2,block=32,unit=4,window=8"
        self.good(less + whole, 704, seed=10)
        # A cap below what the steps want, and a prompt whose last block holds three tokens.
        self.assertGreater(self.good(f"{budget},revive_cap=2", 1283, seed=14, steps=20).revived, 0)
        self.good(f"{less},revive=none", 704, seed=11)


@unittest.skipUnless(WEIGHTS == "bundled", "once is enough")
class Itself(Oracle):
    """The comparison finds what differs: the oracle gets one setting that the engine has not."""

    def finds(self, spec, steps=4, **altered):
        result = self.compare(spec, 384, seed=12, steps=steps, altered=altered)
        self.assertNotEqual(result.faults, [])
        return [str(fault) for fault in result.faults]

    def test_other_counts(self):
        self.finds("lazyllm:min=0", steps=0, keep="0.51/0.5/0.5")
        self.finds("ftp:min=0", steps=0, eta="0.94")
        self.finds("uniprefill:p=0.6,block=16,sink=32,last=16,min=0", steps=0, p="0.7")
        self.finds(f'sdtp:file="{SDTP_FILE}",min=0', steps=0, r="0.91")

        self.finds("gemfilter:keep=0.5,min=0", steps=0, keep="0.51")
        for key, other in {"keep": "150/101", "drop": "51", "begin": "4", "layers": "5/7"}.items():
            self.finds("spts:begin=3,layers=5/8,keep=150/100,drop=50,min=0", steps=0, **{key: other})
        self.finds("snapkv:cap=100,min=0", steps=0, cap="101")

    def test_other_scores(self):
        self.finds("gemfilter:keep=0.5,min=0", steps=0, layer="3")
        self.finds("gemfilter:keep=0.5,min=0", steps=0, kernel="3")
        self.finds("gemfilter:keep=0.5,min=0", steps=0, positions="original")
        self.finds("minference:pattern=block_sparse,blocks=2,min=0", steps=0, blocks="3")
        self.finds("flashprefill:alpha=0.5,block=16,sink=1,window=1,min=0", steps=0, alpha="0.6")
        self.finds("fastkv:keep=0.5,cache=1,min=0", steps=0, window="7")
        self.finds("fastkv:keep=1,cache=100,min=0", pool="max")
        self.finds(f'specprefill:draft="{MODEL}",keep=0.3,min=0', steps=0, look_ahead="1")
        self.finds("lazyllm:min=0", steps=0, sink="300")
        self.finds("ftp:min=0", steps=0, last="49")
        self.finds("sliminfer:keep=0.5,block=16,min=0", steps=0, window="1")
        self.finds("sliminfer:keep=0.5,block=16,min=0", steps=0, unit="2")
        self.finds("uniprefill:p=0.6,block=16,sink=32,last=16,min=0", steps=0, last="3")

    def test_other_networks(self):
        other = str(compared().random_predictors(seed=1, stages=10))
        self.finds(f'sdtp:file="{SDTP_FILE}",min=0', steps=0, file=other)

        proxies, others = compared().random_proxies(seed=2), compared().random_proxies(seed=3)
        spec = f'spts:proxy="{proxies}",begin=3,layers=5/8,keep=150/100,drop=50,min=0'
        for other in ("none", str(others)):
            faults = self.finds(spec, steps=0, proxy=other)
            self.assertFalse(any("layer 3, tokens" in fault for fault in faults), faults)  # A needs no proxy

    def test_other_decode(self):
        self.finds("lazyllm:min=0", revive="none")
        faults = self.finds("lazyllm:min=0", revive_mask="causal")
        self.assertFalse(any("prefill" in fault for fault in faults), faults)
        self.finds("sliminfer:keep=0.5,block=16,revive_cap=4096,min=0", gamma="0.1")

    # What the program made: BF16, and few channels of a low rank.
    def test_made_proxies(self):
        path = pathlib.Path(compared().folder.name) / "made.safetensors"
        compared().engine.command("tune", "-m", str(MODEL), "--ffn-proxies", str(path), "--reference",
                                  str(SOURCE / "models/demo-document.txt"), "--proxy-tokens", "300")
        self.good(f'spts:proxy="{path}",keep=300/200/150/100,drop=100,min=0', 1000, seed=40, steps=2)

    def test_trained_predictors(self):
        self.good(f'sdtp:file="{SDTP_FILE}",min=0', 1000, seed=13, steps=2)


if __name__ == "__main__":
    if not MODEL.is_file():
        print(f"skipped: {MODEL} is absent; COPPICE_REAL_MODEL may name a GGUF file of real weights")
        sys.exit(77)
    unittest.main()
