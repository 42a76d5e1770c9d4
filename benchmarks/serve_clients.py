#!/usr/bin/env python3
"""Times servers with several clients at once, in turn (A B A B ...), and writes a table.

    serve_clients.py -m 1b-q4_0.gguf --clients 1,4,8,16 --rounds 3 coppice=build/coppice llama.cpp=PATH/llama-server

Every client sends one prompt of its own, random token ids, to llama.cpp's /completion, which both servers know, and
reads --tokens generated tokens. Each server has as many slots as there are clients. A run is a fresh server, a short
request to warm it up, and then all clients at once. `tokens/s` counts the generated tokens of all clients from the
first request to the last answer, prompts and all; `decode` adds up the clients' rates, each from its first token to
its end, and is 0 unless all generate at one time. It is the rate of decoding only where prompts are short (--prompt 16).
"""

import argparse
import json
import pathlib
import random
import socket
import statistics
import subprocess
import threading
import time
import urllib.request

TIMEOUT = 3600


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, name: str, program: str, model: str, clients: int, room: int, options: list[str]):
        self.port = free_port()
        command = [program]
        if name.startswith("coppice"):
            command += ["serve", "-m", model, "-c", str(room), "-np", str(clients)]
        else:  # llama.cpp divides the context among the slots
            command += ["-m", model, "-c", str(room * clients), "-np", str(clients), "-fa", "on"]
        self.process = subprocess.Popen([*command, "--port", str(self.port), *options], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{program}: the server did not start") from None
                time.sleep(0.1)

    def complete(self, prompt: list[int], tokens: int) -> tuple[float, float]:
        """The moments of the first token and of the end. A chunk may hold several tokens, where the text is not UTF-8
        yet, so chunks are not counted."""
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "cache_prompt": False}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        first = None
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                first = first or time.monotonic()
                event = json.loads(line[6:])
                if event.get("stop"):
                    if event["tokens_predicted"] != tokens:
                        raise RuntimeError(f"{event['tokens_predicted']} tokens instead of {tokens}")
                    return first, time.monotonic()
        raise RuntimeError("the answer ended early")

    def close(self):
        self.process.terminate()
        self.process.wait(60)


def run(server: Server, prompts: list[list[int]], tokens: int) -> dict:
    server.complete(prompts[0][:16], 2)
    answers: list[tuple[float, float] | None] = [None] * len(prompts)

    def ask(i: int):
        answers[i] = server.complete(prompts[i], tokens)

    clients = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    begin = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if None in answers:
        raise SystemExit("a request failed")
    firsts, ends = zip(*answers)
    return {"total": tokens * len(prompts) / (max(ends) - begin), "decode": common_rate(answers, tokens),
            "first": statistics.mean(firsts) - begin}


def common_rate(answers: list[tuple[float, float]], tokens: int) -> float:
    """The sum of the clients' tokens per second, each after its first; 0 if they never all generate at once."""
    first, last = max(a[0] for a in answers), min(a[1] for a in answers)
    return sum((tokens - 1) / (end - begin) for begin, end in answers) if last > first else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--clients", default="1,4,8,16", help="numbers of clients")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--options", action="append", default=[], metavar="NAME=OPTIONS", help="of one server")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="a JSON record of all runs")
    parser.add_argument("servers", nargs="+", metavar="NAME=PROGRAM", help="a name that begins with coppice, or a llama-server")
    args = parser.parse_args()
    options = {name: text.split() for name, text in (o.split("=", 1) for o in args.options)}
    numbers = random.Random(1)
    record = []
    for round_ in range(args.rounds):
        for clients in map(int, args.clients.split(",")):
            prompts = [[numbers.randrange(100, 30000) for _ in range(args.prompt)] for _ in range(clients)]
            for name, program in (s.split("=", 1) for s in args.servers):
                server = Server(name, program, args.model, clients, args.prompt + args.tokens + 8, options.get(name, []))
                try:
                    record.append({"server": name, "clients": clients, "round": round_, **run(server, prompts, args.tokens)})
                finally:
                    server.close()
                print(json.dumps(record[-1]), flush=True)
    print(f"{'server':<12} {'clients':>7} {'tokens/s':>9} {'decode':>9} {'first s':>8}   medians of {args.rounds}")
    for clients in sorted({r["clients"] for r in record}):
        for name in dict.fromkeys(r["server"] for r in record):
            runs = [r for r in record if r["server"] == name and r["clients"] == clients]
            total, decode, first = (statistics.median(r[key] for r in runs) for key in ("total", "decode", "first"))
            print(f"{name:<12} {clients:>7} {total:>9.1f} {decode:>9.1f} {first:>8.2f}")
    if args.output:
        args.output.write_text(json.dumps({"model": args.model, "prompt": args.prompt, "tokens": args.tokens, "runs": record},
                                          indent=1) + "\n")


if __name__ == "__main__":
    main()
