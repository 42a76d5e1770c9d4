#!/usr/bin/env python3
"""Times decode with prompt lookup beside decode without, on questions about documents.

    prompt_lookup.py -m SmolLM2.gguf --text war_and_peace.txt --rounds 3 build/coppice

The documents are pieces of the text. The questions ask for what people ask a document for: a summary, a correction, a
quotation, what somebody says, and a story that has nothing to do with it. Temperature 0. One server; each question is
sent in turns without and with `prompt_lookup`, so both find the document in the cache. The script fails if the two
answers differ. `speed-up` is the time per token without over that with, the median over the rounds, and `accepted` the
share of the proposed tokens that was right.
"""

import argparse
import json
import pathlib
import statistics
import urllib.request

from serve_clients import Server, TIMEOUT

QUESTIONS = {
    "summary": "Summarize the text above in a few sentences.",
    "correction": "Repeat the text above from its beginning, and correct mistakes of spelling where you find any.",
    "quotation": "Quote the sentences of the text above that name a person.",
    "speech": "Who speaks in the text above, and what do they say? List each speaker with the words said.",
    "story": "Write a story about a fox who learns to sail. It has nothing to do with the text above.",
}


def ask(port: int, document: str, question: str, tokens: int, ahead: int) -> dict:
    body = {"messages": [{"role": "user", "content": f"{document}\n\n{question}"}], "max_tokens": tokens, "temperature": 0,
            "prompt_lookup": ahead, "prune": "none"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
        got = json.load(reply)
    times = got["timings"]
    return {"text": got["choices"][0]["message"]["content"], "tokens": times["predicted_n"],
            "ms": times["predicted_ms"] / max(times["predicted_n"] - 1, 1), "prompt": got["usage"]["prompt_tokens"],
            "proposed": times.get("draft_n", 0), "accepted": times.get("draft_n_accepted", 0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--documents", type=int, default=4)
    parser.add_argument("--characters", type=int, default=6000, help="of each document")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--ahead", type=int, default=7, help="prompt_lookup")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, help="every answer, as JSON")
    parser.add_argument("program")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    step = len(text) // options.documents
    documents = [text[i * step:][:options.characters] for i in range(options.documents)]
    server = Server("coppice", options.program, options.model, 1, 8192, [])
    record, everything = [], []
    print(f"{'question':<12} {'ms/token':>9} {'with':>7} {'speed-up':>9} {'(range)':>13} {'accepted':>9}")
    for name, question in QUESTIONS.items():
        ratios, plain, ahead, proposed, accepted = [], [], [], 0, 0
        for document in documents:
            rounds = []
            for _ in range(options.rounds):
                without, with_it = (ask(server.port, document, question, options.tokens, n) for n in (0, options.ahead))
                if without["text"] != with_it["text"]:
                    raise SystemExit(f"{name}: the answers differ:\n{without['text']}\n---\n{with_it['text']}")
                rounds.append(without["ms"] / with_it["ms"])
                plain.append(without["ms"])
                ahead.append(with_it["ms"])
            record.append({"question": name, "without": without, "with": with_it, "speed_up": rounds})
            ratios.append(statistics.median(rounds))
            proposed += with_it["proposed"]
            accepted += with_it["accepted"]
        everything += ratios
        print(f"{name:<12} {statistics.median(plain):9.2f} {statistics.median(ahead):7.2f} {statistics.median(ratios):8.2f}x "
              f"({min(ratios):.2f} to {max(ratios):.2f}) {100 * accepted / max(proposed, 1):8.0f}%", flush=True)
    print(f"{'all':<12} {'':>9} {'':>7} {statistics.geometric_mean(everything):8.2f}x")
    if options.out:
        options.out.write_text(json.dumps(record, indent=1))
    server.process.terminate()


if __name__ == "__main__":
    main()
