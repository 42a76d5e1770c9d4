#!/usr/bin/env python3
"""A day of coding agents: sessions in the manner of Claude Code, Codex and OpenCode, and what they cost to read.

    agent_day.py -m MODEL.gguf [--client claude] [--turns 20] [--scale 0.2] [-o day.json]
    agent_day.py --server http://127.0.0.1:8080

Each session has a title request beside its first turn, tool results of 500 to 5,000 tokens (times --scale, as all
texts), a sub-agent, a reminder that moves, thinking that is removed, tools in another order once, and a compaction
(agent_script.py). The model answers; where it makes no call, the script makes one or the user hands over the output.

    new    tokens of a prompt behind its longest common beginning with an earlier prompt of the session and its answer,
           as the template writes both; the client's own line about billing is no part of it. Counted with
           /v1/chat/completions/render, not taken from the replies
    read   prompt tokens less cached tokens, as the replies report them

Afterwards every --check N-th request is sent again, with cache_prompt false and, under -m, to a second server that has no
cache; the answers must be equal.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import anthropic
import openai

from agent_clients import CLIENTS, Agent, Answer, Call, Request
from agent_script import Writer, plan

REFUSED = (anthropic.APIStatusError, openai.APIStatusError, anthropic.APIError, openai.APIError)


def post(base: str, key: str, path: str, body: dict | None = None):
    request = urllib.request.Request(base + path, None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def common(a: list[int], b: list[int]) -> int:
    """The length of the common beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


class Ledger:
    """What of a session has been read: prompts, and prompts with their answers, as lists of tokens."""

    def __init__(self, render):
        self.render, self.known, self.lock = render, [], threading.Lock()

    def new(self, tokens: list[int]) -> int:
        """Tokens that no earlier prompt began with; at least the one whose output is the answer's first token."""
        with self.lock:
            shared = max((common(tokens, known) for known in self.known), default=0)
            self.known.append(tokens)
        return max(1, len(tokens) - shared)

    def learn(self, tokens: list[int]):
        with self.lock:
            self.known.append(tokens)

    def forget(self, tokens: list[int]):
        """A prompt that was refused."""
        with self.lock:
            self.known.remove(tokens)


def renderer(base: str, key: str):
    """Tokens of a chat as the model's template writes it. A template that refuses a later system message gets a user's."""
    def render(chat: dict) -> list[int]:
        path = "/v1/chat/completions/render"
        try:
            return post(base, key, path, chat)["token_ids"]
        except urllib.error.HTTPError:
            tame = [m if m["role"] != "system" or i == 0 else {**m, "role": "user"} for i, m in
                    enumerate(chat["messages"])]
            return post(base, key, path, {**chat, "messages": tame})["token_ids"]
    return render


class Session:
    """One client's day. `rows` has an entry for each request, `sent` what must be answered alike without a cache."""

    def __init__(self, agent: Agent, ledger: Ledger, settle, turns: int, seed: int):
        self.agent, self.ledger, self.settle = agent, ledger, settle
        self.day, self.rows, self.sent = plan(turns, seed), [], []
        self.heads, self.history = agent.opening()
        self.number = 0

    def send(self, request: Request, counted: bool = False) -> Answer:
        """The answer, an empty one if the server refuses; then the client is plain from here on and asks again."""
        row = {"client": self.agent.name, "turn": self.number, "kind": request.kind}
        self.rows.append(row)
        body = self.agent.body(request)
        try:
            answer = self.ask(request, body, row, counted)
        except REFUSED as error:
            row["refused"] = str(error)[:300]
            if self.agent.plain:
                return Answer()
            self.agent.plain = True
            return self.send(request)
        self.sent.append((row, body, answer))
        return answer

    def ask(self, request: Request, body: dict, row: dict, counted: bool) -> Answer:
        if counted and (count := self.agent.count(request)) is not None:
            row["counted"] = count
        chat = self.agent.chat(request)
        tokens = self.ledger.render(chat)
        new = self.ledger.new(tokens)
        try:
            answer = self.agent.ask(body)
        except REFUSED:
            self.ledger.forget(tokens)
            raise
        row |= {"prompt": answer.prompt, "rendered": len(tokens), "new": new, "cached": answer.cached,
                "read": answer.prompt - answer.cached, "ttft": round(answer.first or answer.seconds, 4),
                "seconds": round(answer.seconds, 4), "calls": len(answer.calls)}
        if "cache" in answer.timings:
            row["cache"] = answer.timings["cache"]
        if request.kind != "title":
            said = self.agent.chat_answer({"text": answer.text, "calls": answer.calls, "thinking": None})
            chat["messages"].append(said)
            self.ledger.learn(self.ledger.render({**chat, "add_generation_prompt": False}))
        return answer

    def beside(self, kind: str) -> threading.Thread:
        request = self.agent.side(kind)
        thread = threading.Thread(target=self.send, args=(request,))
        thread.start()
        return thread

    def run(self):
        answer = None
        for turn in self.day:
            self.number = turn.number
            self.prepare(turn, answer)
            tools = self.agent.tools
            if turn.shuffled:  # two neighbours in the middle, as a map without order would give them
                middle = len(tools) // 2
                tools = tools[:middle] + [tools[middle + 1], tools[middle]] + tools[middle + 2:]
            request = Request("turn", self.heads, self.history, tools, self.agent.closed if turn.forced else None)
            title = self.beside("title") if turn.number == 1 else None
            answer = self.send(request, counted=turn.counts)
            if title:
                title.join()
            self.settle()
            if turn.agents:
                self.sub_agent(turn.agents)
            if turn.compacts:
                self.compact(request, answer)
                answer = None

    def prepare(self, turn, answer: Answer | None):
        """Appends the last answer, as it came or with a scripted call, and what follows it."""
        write, history = self.agent.writer, self.history
        if turn.number == 1:
            return
        if turn.forgets:
            for entry in history:
                entry["thinking"] = None
        calls = list(answer.calls) if answer else []
        if answer and not calls and turn.scripted and not turn.says:
            calls = [self.scripted(turn)]
        if answer:
            thinking = write.prose(400) if turn.thinks else None
            history.append({"kind": "answer", "text": answer.text, "calls": calls, "thinking": thinking})
        for call in calls:
            history.append({"kind": "result", "call": call, "text": write.source(turn.result // len(calls)),
                            "odd": turn.odd})
        if turn.odd:
            history += [{"kind": "search", "query": write.sentence()}, self.agent.user(write.sentence())]
        if turn.says:
            moved = [e["reminder"] for e in history if e["kind"] == "user" and e["reminder"]]
            for entry in history:
                entry["reminder"] = None
            text = f"<system-reminder>\n{write.prose(600)}\n</system-reminder>" if turn.reminder else None
            history.append(self.agent.user(write.prose(300), reminder=text or (moved[0] if moved else None)))
        elif not calls:
            history.append(self.agent.user("Output of the command:\n" + write.source(turn.result)))
        if turn.note:
            history.append({"kind": "note", "text": f"<total_tokens>{200000 - 7919 * turn.number} tokens left"
                                                    "</total_tokens>"})

    def scripted(self, turn) -> Call:
        call = self.agent.writer.call(self.agent.tools)
        if self.agent.name == "codex" and turn.number % 4 == 0:
            call.name, call.free = "apply_patch", f"*** Begin Patch\n+{self.agent.writer.sentence()}\n*** End Patch"
        return call

    def sub_agent(self, requests: int):
        """A task with a system prompt of its own, and for Claude Code a search with a tool of the service."""
        if self.agent.name == "claude":
            self.send(self.agent.side("search"))
        request = self.agent.side("agent")
        for _ in range(requests):
            answer = self.send(request)
            calls = answer.calls or [self.agent.writer.call(request.tools)]
            request.history.append({"kind": "answer", "text": answer.text, "calls": calls, "thinking": None})
            request.history += [{"kind": "result", "call": c, "text": self.agent.writer.source(900), "odd": False}
                                for c in calls]
            self.settle()

    def compact(self, request: Request, answer: Answer):
        """The conversation is summed up, and goes on from the summary."""
        said = {"kind": "answer", "text": answer.text, "calls": [], "thinking": None}
        request.history.append(said)
        summary = self.send(self.agent.compaction(request))
        self.history = self.agent.resume(request.history, summary.text)
        self.settle()


def check(session: Session, agent: Agent, every: int) -> list[str]:
    """Sends requests again through `agent`, whose server reuses nothing; the answers that differ."""
    wrong = []
    for row, body, answer in session.sent[::every]:
        body = {**body, "extra_body": {**body["extra_body"], "cache_prompt": False}}
        again = agent.ask(body)
        row["equal"] = again.said() == answer.said()
        if not row["equal"]:
            wrong.append(f"{row['client']} {row['kind']} {row['turn']}: {answer.said()!r}, without cache {again.said()!r}")
        if again.cached:
            wrong.append(f"{row['client']} {row['kind']} {row['turn']}: {again.cached} tokens were cached in the check")
    return wrong


def totals(rows: list[dict]) -> dict:
    """Of the requests that were answered. `whole`: turns after the first that read 95 % of their prompt or more."""
    done = [r for r in rows if "read" in r]
    later = [r for r in done if r["kind"] == "turn" and r["turn"] > 1]
    share = lambda a, b: round(a / b, 3) if b else None
    return {"requests": len(done), "refused": sum("refused" in r for r in rows),
            "prompt": sum(r["prompt"] for r in done), "new": sum(r["new"] for r in done),
            "read": sum(r["read"] for r in done),
            "read_per_new": share(sum(r["read"] for r in done), sum(r["new"] for r in done)),
            "read_per_new_later": share(sum(r["read"] for r in later), sum(r["new"] for r in later)),
            "whole": sum(r["read"] >= 0.95 * r["prompt"] for r in later), "later_turns": len(later),
            "ttft_later": share(sum(r["ttft"] for r in later), len(later))}


def reason(row: dict) -> str:
    if "refused" in row:
        return "refused: " + row["refused"][:90]
    cache = row.get("cache")
    if not isinstance(cache, dict):
        return str(cache or "")
    return " ".join(f"{k}={json.dumps(v)[:60]}" for k, v in cache.items() if k != "cached_tokens")


def table(rows: list[dict]) -> str:
    lines = [f"{'client':<9}{'turn':>4} {'kind':<11}{'prompt':>7}{'new':>7}{'read':>7}{'cached':>7}{'TTFT s':>8}  reason"]
    for r in rows:
        figures = "".join(f"{r.get(key, '-'):>7}" for key in ("prompt", "new", "read", "cached"))
        ttft = f"{r['ttft']:>8.3f}" if "ttft" in r else f"{'-':>8}"
        lines.append(f"{r['client']:<9}{r['turn']:>4} {r['kind']:<11}{figures}{ttft}  {reason(r)}")
    return "\n".join(lines)


def summary(name: str, rows: list[dict]) -> str:
    t = totals(rows)
    return (f"{name}: {t['requests']} requests ({t['refused']} refused), {t['prompt']} prompt tokens, {t['new']} new, "
            f"{t['read']} read: {t['read_per_new']} per new one, {t['read_per_new_later']} after the first turn; "
            f"{t['whole']} of {t['later_turns']} later turns read their whole prompt; "
            f"mean TTFT {t['ttft_later']} s")


@contextlib.contextmanager
def serve(options: argparse.Namespace, more: list[str]):
    """The address of a server that this program starts, on a port of its own."""
    process = subprocess.Popen([options.program, "serve", "-m", options.model, "--port", "0", *options.options.split(),
                                *more], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on ") or not process.stdout.readline().startswith("ready"):
            raise SystemExit(f"{options.program}: the server did not start")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(60)


def settler(base: str, key: str, pause: float):
    """Waits as a user or a tool does: `pause` seconds, and until nothing is computed."""
    def settle():
        time.sleep(pause)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not any(s.get("is_processing") or s.get("is_completing") for s in post(base, key, "/slots")):
                return
            time.sleep(0.02)
    return settle


def spend(base: str, dry: str, key: str, name: str, options) -> tuple[Session, list[str]]:
    """A client's day at `base`, checked at `dry`; `options` as main's."""
    extra = {"prune": options.prune} if options.prune else {}
    make = lambda where: CLIENTS[name](where, key, Writer(options.seed, options.scale), options.answer, extra)
    session = Session(make(base), Ledger(renderer(base, key)), settler(base, key, options.pause), options.turns,
                      options.seed)
    session.run()
    return session, check(session, make(dry), options.check) if options.check else []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a GGUF file, for a server that this program starts and ends")
    parser.add_argument("--server", metavar="URL", help="a server that runs already")
    parser.add_argument("--program", default="build/coppice")
    parser.add_argument("--options", default="-np 4", help="of the server, beside the model and the port")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--client", default="all", choices=[*CLIENTS, "all"])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of all texts: 1 is as large as the clients' own")
    parser.add_argument("--answer", type=int, default=48, help="tokens of an answer, at most")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between turns, in which the server is idle")
    parser.add_argument("--prune", metavar="SPEC")
    parser.add_argument("--check", type=int, default=1, metavar="N", help="every Nth request; 0 checks nothing")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="all rows and totals as JSON")
    options = parser.parse_args()
    if bool(options.model) == bool(options.server):
        parser.error("give either -m or --server")
    return options


def main() -> int:
    options = arguments()
    names = list(CLIENTS) if options.client == "all" else [options.client]
    rows, wrong = [], []
    for name in names:  # each client gets a fresh server, so that its day costs the same alone and among others
        with contextlib.ExitStack() as servers:
            base = dry = options.server and options.server.rstrip("/")
            if options.model:
                base = servers.enter_context(serve(options, []))
                dry = servers.enter_context(serve(options, ["--cache-ram", "0"])) if options.check else base
            session, differing = spend(base, dry, options.api_key, name, options)
        rows += session.rows
        wrong += differing
        print(table(session.rows) + "\n" + summary(name, session.rows), flush=True)
    if len(names) > 1:
        print(summary("all", rows))
    print("\n".join(wrong) if wrong else "the checked answers equal those without cache" if options.check else "unchecked")
    if options.output:
        by_client = {name: totals([r for r in rows if r["client"] == name]) for name in names}
        record = {key: getattr(options, key) for key in ("model", "turns", "seed", "scale", "answer", "prune", "options")}
        options.output.write_text(json.dumps({**record, "rows": rows, "totals": by_client, "all": totals(rows),
                                              "different": wrong}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
