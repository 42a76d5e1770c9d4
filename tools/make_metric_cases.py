#!/usr/bin/env python3
"""Writes tests/data/metric_cases.json: pairs of prediction and reference with the scores of the official programs.

    python3 -m venv venv && venv/bin/pip install rouge==1.0.1 fuzzywuzzy==0.18.0 jieba==0.42.1
    git clone https://github.com/THUDM/LongBench https://github.com/OpenLMLab/LEval https://github.com/NVIDIA/RULER \
        https://github.com/booydar/babilong                                             # beside each other
    venv/bin/pip install jinja2 pyyaml && venv/bin/pip download --no-deps lm_eval==0.4.8 && unzip lm_eval*.whl -d FOLDER/lm
    venv/bin/python tools/make_metric_cases.py --sources FOLDER [--shared ../shared/data]

The functions are run as they lie in those repositories: LongBench/metrics.py, LEval's Evaluation/em.py and the text
functions of auto_eval.py, RULER's scripts/eval/synthetic/constants.py, babilong/metrics.py; questions of the five-shot tasks come from
lm_eval's templates. Texts are made here, of
words that meet the corners of each metric (articles, punctuation, repeated words, empty sentences, other scripts), so
the table may be shipped; with --shared it also holds scores of real pairs, by file, row and index, without their texts.
python-Levenshtein must not be installed: LongBench's requirements do not name it, and its ratio differs.

jieba runs on its own data, and once more on a tiny dictionary made here (tests/data/jieba), so that the algorithm is
tested where the data are not installed.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import pathlib
import random
import re
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/data/metric_cases.json"
TINY = ROOT / "tests/data/jieba"

ENGLISH = ("the a an The cat sat on mat, dog's ran. over under it is was 48213 3.14 U.S. e-mail co-operate Über naïve "
           "ÉCOLE ΣΟΦΙΑ Москва _x_ (brackets) \"quoted\" don't Answer: yes no A; B? C! * river bank 1,000 x² ① Ⅷ").split(" ")
CHINESE = ("我们 今天 去 北京 大学 图书馆 看 书 ， 。 《 红楼梦 》 的 作者 是 曹雪芹 ！ 2023 年 3.5% iPhone 15 pro 天气 很 好 "
           "他 说 ： “ 不 知道 ” 杭研 大厦 小明 硕士 毕业 于 中国 科学院 计算所 AT&T c++ _ab 、 ﹏ 龘 靐 齉 爩").split(" ")
CODE = ["return x + 1", "for (int i = 0; i < n; ++i) {", "# comment", "// note", "```python", "x = foo(bar, baz)", "", "  }",
        "def f(a, b):", "self.value = self.value * 2 + offset", "print('héllo')"]
CLASSES = ["Number", "Number of something", "Location", "City", "Other location", "Human", "Group or organization of person",
           "Person", "Date", "Description of a person"]
TINY_WORDS = {"北京": 500, "大学": 300, "北京大学": 60, "图书": 90, "图书馆": 80, "学生": 200, "大学生": 100, "生前": 10, "来到": 150,
              "我": 900, "们": 300, "我们": 700, "的": 2000, "研究": 120, "研究生": 90, "生命": 100, "命": 40, "起源": 60, "A股": 5,
              "去": 400, "看": 350, "书": 200, "杭": 3}


def load(path: pathlib.Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part_of(path: pathlib.Path, *names: str) -> dict:
    """Functions of a program that cannot be imported as a whole."""
    source = path.read_text(encoding="utf-8")
    scope = {"re": re, "args": types.SimpleNamespace(pred_file="")}
    for name in names:
        body = re.search(rf"^def {name}\(.*?(?=^def |^if __name__|\Z)", source, re.DOTALL | re.MULTILINE)
        exec(body.group(0), scope)
    return scope


def text(rng: random.Random, words: list[str], longest: int, joint: str) -> str:
    chosen = [rng.choice(words) for _ in range(rng.randrange(longest))]
    joints = [joint, joint, joint, "\n", ". ", " . ", ".", "..", "\t "]
    return "".join(word + rng.choice(joints) for word in chosen).strip(" ") if chosen else ""


def near(rng: random.Random, of: str, words: list[str], joint: str) -> str:
    """A text that shares much with another."""
    parts = re.split(r"(?<=[ .\n])", of) if joint else list(of)
    kept = [part if rng.random() < 0.7 else rng.choice(words) + joint for part in parts if rng.random() < 0.85]
    return "".join(kept)


def pairs(rng: random.Random, words: list[str], count: int, longest: int, joint: str) -> list[tuple[str, str]]:
    found = [("", ""), ("", words[0]), (words[0], ""), (".", "."), (" ", " . "), ("...", "cat")]
    while len(found) < count:
        reference = text(rng, words, longest, joint)
        found.append((near(rng, reference, words, joint), reference))
    return found


def longbench_cases(lb, rng: random.Random) -> list:
    rows = []
    add = lambda metric, p, r, score, **more: rows.append({"metric": metric, "p": p, "r": r, "score": score, **more})
    for p, r in pairs(rng, ENGLISH, 60, 25, " "):
        add("qa_f1", p, r, lb.qa_f1_score(p, r))
        add("rouge_l", p, r, lb.rouge_score(p, r))
    for p, r in pairs(rng, CHINESE, 60, 20, ""):
        add("qa_f1_zh", p, r, lb.qa_f1_zh_score(p, r))
        add("rouge_l_zh", p, r, lb.rouge_zh_score(p, r))
    for _ in range(60):
        classes = rng.sample(CLASSES, rng.randrange(2, 9))
        p = " ".join(rng.sample(classes, rng.randrange(0, min(4, len(classes)))) + rng.sample(ENGLISH, 2))
        r = rng.choice(classes)
        add("classification", p, r, lb.classification_score(p, r, all_classes=classes), classes=classes)
    for _ in range(30):
        number = str(rng.randrange(1, 31))
        p = " ".join(rng.choice([number, "Paragraph " + number, "5", "٣", "no", "12a", "Paragraph"])
                     for _ in range(rng.randrange(5)))
        add("retrieval", p, "Paragraph " + number, lb.retrieval_score(p, "Paragraph " + number))
        add("retrieval", p, "段落" + number, lb.retrieval_zh_score(p, "段落" + number))
        add("count", p, number, lb.count_score(p, number))
    for _ in range(60):
        lines = [rng.choice(CODE) for _ in range(rng.randrange(1, 4))]
        r = rng.choice(CODE)
        lines[-1] = near(rng, r, CODE, "") if rng.random() < 0.6 else r
        p = "\n" * rng.randrange(3) + "\n".join(lines)
        add("code_sim", p, r, lb.code_sim_score(p, r))
    long = "".join(rng.choice("abcdef  ") for _ in range(260))  # popular characters matter from 200 on
    for _ in range(6):
        p = "".join(c for c in long if rng.random() < 0.8)
        add("code_sim", p, long, lb.code_sim_score(p, long))
    return rows


def ruler_cases(ruler, babilong, rng: random.Random) -> list:
    rows = []
    for _ in range(40):
        references = [rng.choice(ENGLISH) for _ in range(rng.randrange(1, 5))]
        p = text(rng, ENGLISH + references, 12, " ")
        p = re.sub(r"[\x00-\x1f]", "\n", p.strip()).strip()  # evaluate.py, postprocess_pred
        for name in ("string_match_all", "string_match_part"):
            # The official functions round to two digits of a percentage.
            score = getattr(ruler, name)([p], [references]) / 100
            rows.append({"metric": name, "p": p, "references": references, "score": score, "within": 5e-5})
    labels = babilong.TASK_LABELS["qa1"]
    for _ in range(40):
        asked = rng.choice(labels + ["John"])
        question = f"Where was the apple before the {asked}?"
        p = " ".join(rng.choice(labels + ["The", "apple", "is in.", "<example>", "Kitchen"]) for _ in range(rng.randrange(6)))
        r = rng.choice(labels)
        rows.append({"metric": "only_label", "p": p, "r": r, "question": question, "classes": labels,
                     "score": float(babilong.compare_answers(r, p, question, labels))})
    return rows


def leval_cases(em, auto: dict, rng: random.Random) -> list:
    rows = []

    def add(metric, prediction, reference, p, r):
        with contextlib.redirect_stdout(io.StringIO()):
            rows.append({"metric": metric, "p": prediction, "r": reference, "score": em.exact_match_score(p, r)})

    parts = ["A", "B.", "C)", "D", "AC", "The answer is B.", "Question 2", "(A)", "none", "and", "E.", "A B", " ", "\n", "BD,"]
    for _ in range(60):
        p = rng.choice(["", " "]).join(rng.choice(parts) for _ in range(rng.randrange(5)))
        for file, metric in (("coursera", "choice_several"), ("tpo", "choice")):
            auto["args"].pred_file = file
            r = rng.choice(["A", "B", "AC", "BCD", "(B) Their subconscious"]) if metric == "choice_several" else \
                rng.choice(["A", "B", "C", "D", "(C) He did"])
            add(metric, p, r, auto["process_output_mc"](p), auto["process_gt_mc"](r))
    words = ["The answer is 18", "The answer is", "18", "$1,200.50", "so 7 ducks", "no", "\n\n", "x2", "18.", "x.5"]
    for _ in range(40):
        p, r = " ".join(rng.choice(words) for _ in range(rng.randrange(6))), rng.choice(["18", "1200", "7"])
        add("final_number", p, r, auto["process_math"](p), auto["process_math"](r))
    words = ["[1, 2]", "'ab'", "the final output", "will be", "12", "3.0", "of the code is", "[[1], [2]]", "\n", "x"]
    for _ in range(40):
        p, r = " ".join(rng.choice(words) for _ in range(rng.randrange(7))), rng.choice(["[1, 2]", "ab 12", "3.0", "[[1], [2]]"])
        add("code_output", p, r, auto["process_output_code"](p, r), auto["process_gt_code"](r))
    for _ in range(30):
        p = f"{rng.choice(['True', 'It is false', 'maybe', 'untrue'])} [fact: {rng.choice(['True', 'False.', 'unknown', 'so false'])}]"
        r = f"{rng.choice(['True', 'False'])} [fact: {rng.choice(['True', 'False'])}]"
        with contextlib.redirect_stdout(io.StringIO()):
            both = [em.exact_match_score(a, b) for a, b in zip(auto["process_output_judge"](p), auto["process_gt_judge"](r))]
        rows.append({"metric": "loyalty_fact", "p": p, "r": r, "score": sum(both) / 2})
    for p, r in [("The Role of Art", "the role of art"), ("about space  tourism", "Space tourism"), ("7", "7.0"), ("x", "y"), ("3", "30")]:
        add("exact", p, r, p, r)
    return rows


def tiny_jieba(jieba, rng: random.Random) -> list:
    """The algorithm of jieba over data of our own, which are written beside the cases."""
    (TINY / "finalseg").mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{word} {frequency} n\n" for word, frequency in TINY_WORDS.items())
    (TINY / "dict.txt").write_text(lines, encoding="utf-8", newline="\n")
    characters = sorted(set("".join(TINY_WORDS)) - set("A") | set("小明硕士毕业于龘"))
    emit = {state: {c: -rng.randrange(20, 120) / 10 for c in characters if rng.random() < 0.9} for state in "BEMS"}
    literal = ",\n ".join(f"'{s}': {{" + ",\n       ".join(f"'\\u{ord(c):04x}': {v}" for c, v in emit[s].items()) + "}" for s in "BEMS")
    (TINY / "finalseg/prob_emit.py").write_text("P={" + literal + "}\n", encoding="ascii", newline="\n")
    sys.modules["jieba.finalseg"].emit_P = emit
    tokenizer = jieba.Tokenizer(str(TINY / "dict.txt"))
    tokenizer.cache_file = f"/tmp/tiny-jieba-{rng.random()}.cache"
    alphabet = characters + list("A股b1 .%，-") + ["北京大学生前来到", "研究生命的起源", "3.14%", "\r\n"]
    rows = []
    for _ in range(60):
        sentence = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 16)))
        rows.append({"text": sentence, "words": list(tokenizer.cut(sentence))})
    pathlib.Path(tokenizer.cache_file).unlink(missing_ok=True)
    return rows


def shared_cases(lb, folder: pathlib.Path, rng: random.Random) -> list:
    rows = []
    for name, metrics in (("leval_scientific_qa", ("qa_f1", "rouge_l")), ("leval_gov_report_summ", ("rouge_l",))):
        data = [json.loads(line) for line in (folder / f"longctx/{name}.jsonl").open(encoding="utf-8")]
        outputs = [(i, j) for i, row in enumerate(data) for j in range(len(row["outputs"]))]
        for _ in range(40 if len(metrics) == 2 else 8):
            a, b = rng.choice(outputs), rng.choice(outputs)
            p, r = data[a[0]]["outputs"][a[1]], data[b[0]]["outputs"][b[1]]
            for metric in metrics:
                score = lb.qa_f1_score(p, r) if metric == "qa_f1" else lb.rouge_score(p, r)
                rows.append({"metric": metric, "file": f"longctx/{name}.jsonl", "p": a, "r": b, "score": score})
    return rows


FEWSHOT = {
    "copa": [{"premise": "The man opened the tap. ", "choice1": "Water ran.", "choice2": "Élan vital.", "question": "effect", "label": 0},
             {"premise": "She laughed.", "choice1": "It was late.", "choice2": "He joked.", "question": "cause", "label": 1}],
    "piqa": [{"goal": "open a jar", "sol1": "turn the lid", "sol2": "turn the table ", "label": 0}],
    "winogrande": [{"sentence": "The cup fell off the shelf because the _ was small.", "option1": "cup", "option2": "shelf", "answer": "2"},
                   {"sentence": "Ann thanked Eve, since _.", "option1": "she helped", "option2": "it rained", "answer": "1"}],
    "mathqa": [{"Problem": "what is 2 + 2 ?", "options": "a ) 3 , b ) 4.5 , c ) 1,000 , d ) 4 , e ) none of these", "correct": "d"}],
    "boolq": [{"question": "is water wet", "passage": "Water -- It is a liquid.", "label": True}],
    "cb": [{"premise": "`I think it rains,' he said.", "hypothesis": "it rains", "label": 2},
           {"premise": "It rains.", "hypothesis": "it is dry", "label": 1}],
    "wic": [{"sentence1": "The über bank.", "sentence2": "A bank of mist.", "start1": 9, "end1": 13, "label": False}],
    "wsc": [{"text": "Tom told Ray that he ( n't knowing ) was \" late \" , sadly .", "span1_text": "Tom", "span2_text": "he",
             "span2_index": 4, "label": True},
            {"text": "He  left .", "span1_text": "Bob", "span2_text": "He", "span2_index": 0, "label": False}],
}
FEWSHOT_FILES = {"copa": "super_glue/copa/default.yaml", "piqa": "piqa/piqa.yaml", "winogrande": "winogrande/default.yaml",
                 "mathqa": "mathqa/mathqa.yaml", "boolq": "super_glue/boolq/default.yaml", "cb": "super_glue/cb/default.yaml",
                 "wic": "super_glue/wic/default.yaml", "wsc": "super_glue/wsc/default.yaml"}


def fewshot_cases(folder: pathlib.Path) -> list:
    """What lm_eval's task files make of a row: the context and continuation of each choice, as its construct_requests
    joins them, and the row as a shot."""
    import jinja2
    import yaml

    detokenize = part_of(folder / "utils.py", "general_detokenize")["general_detokenize"]
    sys.modules["lm_eval"] = types.ModuleType("lm_eval")
    sys.modules["lm_eval.utils"] = types.ModuleType("lm_eval.utils")
    sys.modules["lm_eval.utils"].general_detokenize = detokenize
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    cases = []
    for name, rows in FEWSHOT.items():
        path = folder / "tasks" / FEWSHOT_FILES[name]

        class Loader(yaml.SafeLoader):
            pass

        def function(loader, node):
            module, attribute = loader.construct_scalar(node).rsplit(".", 1)
            return lambda row: getattr(load(path.parent / f"{module}.py", module), attribute)(row)

        Loader.add_constructor("!function", function)
        config = yaml.load(path.read_text(encoding="utf-8"), Loader)

        def value(field, row):
            source = config[field]
            if callable(source):
                return source(row)
            if isinstance(source, list):
                return source
            if source in row:
                return row[source]
            text = environment.from_string(source).render(**row)
            return eval(text) if field == "doc_to_choice" or text.isdigit() else text

        for row in rows:
            text, target, choices = (value(field, row) for field in ("doc_to_text", "doc_to_target", "doc_to_choice"))
            if isinstance(text, int):  # several contexts
                pairs, gold = [[choice, f" {target}"] for choice in choices], text
                shot = choices[text] + " " + target + "\n\n"
            else:
                pairs = [[text, f" {choice}"] for choice in choices]
                gold = choices.index(target) if isinstance(target, str) else int(target)
                shot = text + " " + choices[gold] + "\n\n"
            cases.append({"task": name, "row": row, "pairs": pairs, "gold": gold, "shot": shot, "lengths": [len(c) for c in choices]})
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=pathlib.Path, required=True, help="the folder of the four repositories and of lm")
    parser.add_argument("--shared", type=pathlib.Path, help="the project's shared test data")
    args = parser.parse_args()
    assert importlib.util.find_spec("Levenshtein") is None, "uninstall python-Levenshtein"
    sys.setrecursionlimit(100_000)  # rouge walks long sentences recursively, and LongBench scores its failure as 0
    lb = load(args.sources / "LongBench/LongBench/metrics.py", "longbench_metrics")
    ruler = load(args.sources / "RULER/scripts/eval/synthetic/constants.py", "ruler_constants")
    babilong = load(args.sources / "babilong/babilong/metrics.py", "babilong_metrics")
    em = load(args.sources / "LEval/Evaluation/em.py", "leval_em")
    auto = part_of(args.sources / "LEval/Evaluation/auto_eval.py", "process_output_mc", "process_gt_mc", "process_math",
                   "process_gt_code", "process_output_code", "process_gt_judge", "process_output_judge")
    rng = random.Random(20240601)
    cases = longbench_cases(lb, rng) + ruler_cases(ruler, babilong, rng) + leval_cases(em, auto, rng)
    shared = shared_cases(lb, args.shared, rng) if args.shared else json.loads(CASES.read_text(encoding="utf-8"))["shared"]
    cuts = [{"text": t, "words": list(lb.jieba.cut(t))} for t in (text(rng, CHINESE, 20, "") for _ in range(40))]
    tables = {"cases": cases, "shared": shared, "jieba": cuts, "tiny_jieba": tiny_jieba(lb.jieba, rng),
              "fewshot": fewshot_cases(args.sources / "lm/lm_eval")}
    line = lambda row: json.dumps(row, ensure_ascii=False)
    lists = ",\n".join(f'"{name}": [\n' + ",\n".join(map(line, rows)) + "\n]" for name, rows in tables.items())
    CASES.write_text("{\n" + lists + "\n}\n", encoding="utf-8", newline="\n")
    print({name: len(rows) for name, rows in tables.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
