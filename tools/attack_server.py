"""attack_server.py HOST:PORT [--key KEY --key KEY]: tries the attacks on a running server that need nothing but requests.

Give it two keys to try what one client can learn of another. Each attack prints one line: "held" with what the server did,
"FAILED" with what it let happen, "skipped" with what is missing. The exit code is 1 if one failed. Run it only against a
server of your own: some attacks keep its handlers busy for seconds. Standard library only.
"""

import argparse
import http.client
import json
import socket
import statistics
import sys
import threading
import time


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


class Target:
    def __init__(self, host, port, keys=()):
        self.host, self.port, self.keys = host, port, list(keys)

    def headers(self, key=0):
        return {"Authorization": "Bearer " + self.keys[key]} if self.keys else {}

    def head(self, path, *lines, method="POST"):
        """A request's head with the first key, ready for raw bytes."""
        given = [f"{name}: {value}" for name, value in self.headers().items()]
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *given, *lines, "", ""]).encode()

    def ask(self, path, body=None, key=0, timeout=120):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, text, self.headers(key))
            reply = connection.getresponse()
            data = reply.read()
            try:
                return reply.status, json.loads(data)
            except ValueError:
                return reply.status, data
        finally:
            connection.close()

    def open(self, data=b"", receive_buffer=None):
        connection = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(20)
        connection.connect((self.host, self.port))
        connection.sendall(data)
        return connection

    def raw(self, data):
        """All that comes back until the server closes or says nothing for two seconds."""
        with self.open(data) as connection:
            connection.settimeout(2)
            reply = b""
            try:
                while part := connection.recv(65536):
                    reply += part
            except (TimeoutError, ConnectionError):
                pass
            return reply

    def health_seconds(self):
        start = time.monotonic()
        status, _ = self.ask("/health", timeout=30)
        if status != 200:
            raise Failed(f"/health answers {status}")
        return time.monotonic() - start


def check(condition, message):
    if not condition:
        raise Failed(message)


def cache_oracle(target):
    """The second key guesses a prompt of the first."""
    if len(target.keys) < 2:
        raise Skipped("needs two keys")
    secret = {"prompt": "the pass phrase of this house is a secret " * 40, "max_tokens": 1}
    for _ in range(2):
        status, answer = target.ask("/v1/completions", secret)
        check(status == 200, f"the first key got {status}")
    check(answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "the first key's own prompt is not reused; nothing is shown")
    status, answer = target.ask("/v1/completions", secret, key=1)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(cached == 0, f"the second key learns that {cached} tokens were seen before")
    for slot in range(8):
        status, answer = target.ask(f"/slots/{slot}?action=erase", "{}", key=1)
        if status == 404 and "another API key" in str(answer):
            return "nothing reused, slots refused"
    return "nothing reused"


# What the server keeps for a second use, and who may see that it does: the body that asks for it, from a name.
SECOND_USES = {
    "document": lambda name: {"prompt": f"{name} " + "a long document that somebody reads " * 120},
    "grammar": lambda name: {"grammar": "root ::= " + " | ".join(f'"{name}{i}"' for i in range(3000))},
    "json_schema": lambda name: {"json_schema": {"enum": [f"{name}{i}" for i in range(3000)]}},
    "regex": lambda name: {"guided_regex": "|".join(f"{name}{i}" for i in range(1000))},
    "pruned document": lambda name: {"prompt": f"{name} " + "a long document that is pruned " * 150, "prune": "coppice:min=0"},
}


def second_uses(target):
    """The second key guesses what the first one sent, by the time until its answer, in every cache that a request fills."""
    if len(target.keys) < 2:
        raise Skipped("needs two keys")

    def milliseconds(key, use, name):
        start = time.monotonic()
        status, answer = target.ask("/v1/completions", {"prompt": "x", "max_tokens": 1, **SECOND_USES[use](name)}, key=key)
        check(status == 200, f"a {use} got {status}: {answer}")
        return 1000 * (time.monotonic() - start)

    told = []
    for use in SECOND_USES:
        milliseconds(0, use, "warm")
        known, again, guessed, unknown = [], [], [], []
        for i in range(5):
            known.append(milliseconds(0, use, f"a{i}"))
            again.append(milliseconds(0, use, f"a{i}"))
            guessed.append(milliseconds(1, use, f"a{i}"))
            unknown.append(milliseconds(1, use, f"b{i}"))
        first, second, guess, other = (min(times) for times in (known, again, guessed, unknown))
        check(guess > 0.5 * other, f"{use}: what the other key sent takes {guess:.1f} ms, what nobody sent {other:.1f}")
        told.append(f"{use}: own {first:.1f} ms, again {second:.1f}; another's {guess:.1f}, nobody's {other:.1f}")
    return ", ".join(told)


# Short forms that took seconds or gigabytes, or slowed every other stream, where nothing bounded them.
HOSTILE_FORMS = [
    {"grammar": 'root ::= (""{100000}){100000} "a"'},
    {"grammar": 'root ::= (""{100000} ""{100000} ""{100000}){100000} "a"'},
    {"grammar": 'root ::= ((""{0,100000}){0,100000}){0,100000} "a"'},
    {"grammar": "root ::= e0\n" + "\n".join(f"e{i} ::= e{i + 1} e{i + 1}" for i in range(60)) + '\ne60 ::= "x"'},
    {"grammar": 'root ::= root{1000} root{1000} | ""'},
    {"grammar": 'root ::= [ab]* "a" [ab]{40}'},
    {"grammar": 'root ::= a{20000} "b"\na ::= "" | a a'},
    {"grammar": 'root ::= a\na ::= a a | a a a | "x" | "xx" | [a-z] | .'},
    {"json_schema": {"type": "string", "pattern": "|" * 50_000}},
    {"json_schema": {"type": "string", "pattern": "(((){100000}){100000}){100000}a"}},
    {"json_schema": {"type": "string", "pattern": "(a|b)*a(a|b){40}"}},
    {"json_schema": {"type": "array", "minItems": 100_000, "items": {"type": "array", "minItems": 100_000, "items": {}}}},
    {"guided_regex": "." * 100_000},
]


def hostile_forms(target):
    """Sends short forms that are expensive to compile. The server must answer or refuse each within 10 s, and stay healthy."""
    slowest, health = 0, 0
    for form in HOSTILE_FORMS:
        got = []
        request = threading.Thread(target=lambda: got.append(target.ask("/v1/completions", {"prompt": "x", "max_tokens": 4, **form})))
        start = time.monotonic()
        request.start()
        health = max(health, target.health_seconds())
        request.join()
        seconds = time.monotonic() - start
        check(got and got[0][0] in (200, 400), f"{str(form)[:60]}... got {got[0][0] if got else 'no reply'}")
        check(seconds < 10, f"{str(form)[:60]}... took {seconds:.1f} s")
        slowest = max(slowest, seconds)
    return f"{len(HOSTILE_FORMS)} within {slowest:.1f} s each, /health within {health * 1000:.0f} ms"


# A form whose masks take about ten times as long as a token of the bundled small model (30 to 45 ms beside 4), for a
# whole answer. Slower ones are refused at their first token.
SLOW_MASKS = [{"grammar": 'root ::= s\ns ::= . s . | "." s "," | .'}]


def streams_beside_forms(target, streams=20, tokens=48, rounds=7):
    """How fast others' streams stay while one answer has a form whose masks take long, over that beside one without. Both
    alternate, and each time beside the form is compared with the mean of the two around it: the machine's own load changes."""
    plain = {"prompt": "x", "max_tokens": tokens, "ignore_eos": True}

    def seconds(beside):
        done = []
        def other():
            status, _ = target.ask("/v1/completions", plain)
            done.append((status, time.monotonic()))
        body = json.dumps({**plain, "max_tokens": 20 * tokens, "stream": True, **beside}).encode()
        others = [threading.Thread(target=other) for _ in range(streams)]
        with target.open(target.head("/v1/completions", f"Content-Length: {len(body)}") + body) as one:
            check(one.recv(64).startswith(b"HTTP/1.1 200"), "the answer beside the streams is refused")
            start = time.monotonic()
            for thread in others:
                thread.start()
            for thread in others:
                thread.join()
        check(all(status == 200 for status, _ in done), f"streams got {sorted({status for status, _ in done})}")
        return max(end for _, end in done) - start

    seconds({})
    told, medians = [], []
    for form in SLOW_MASKS:
        alone = [seconds({})]
        ratios = []
        for _ in range(rounds):
            beside = seconds(form)
            alone.append(seconds({}))
            ratios.append((alone[-2] + alone[-1]) / 2 / beside)
        medians.append(statistics.median(ratios))
        told.append(f"{100 * medians[-1]:.0f} % ({100 * min(ratios):.0f} to {100 * max(ratios):.0f}, {rounds} rounds of "
                    f"{statistics.median(alone):.2f} s)")
    check(min(medians) >= 0.8, f"rates of {streams} streams over that beside a plain answer: {', '.join(told)}")
    return f"{streams} streams keep {', '.join(told)} of their rate"


def slots_of_others(target):
    """The second key looks at /slots while the first one's request is computed."""
    if len(target.keys) < 2:
        raise Skipped("needs two keys")
    body = json.dumps({"prompt": "a b c d e f", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
    with target.open(target.head("/v1/completions", f"Content-Length: {len(body)}") + body) as held:
        held.recv(4096)  # it has begun
        status, own = target.ask("/slots")
        if status == 501:
            raise Skipped("the server shows no slots")
        other = target.ask("/slots", key=1)[1]
    check(any("n_prompt_tokens" in slot for slot in own), f"the first key does not see its own request: {own}")
    seen = {name for slot in other for name in slot} - {"id", "n_ctx", "is_processing", "is_completing"}
    check(not seen, f"the second key sees {', '.join(sorted(seen))}")
    return "only that a slot computes"


def quadratic_fields(target):
    """Fields whose handling could be quadratic in their number."""
    kwargs = {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {f"k{i}": i for i in range(40_000)}}
    status, _ = target.ask("/apply-template", kwargs)
    check(status in (400, 413, 501), f"40,000 template arguments got {status}")
    status, _ = target.ask("/v1/completions", {"prompt": "x", "max_tokens": 1, **{f"field{i}": i for i in range(40_000)}})
    check(status in (200, 400, 413), f"40,000 unknown fields got {status}")
    status, _ = target.ask("/v1/completions", '{"prompt":' + "[" * 60_000 + "]" * 60_000 + "}")
    check(status == 400, f"60,000 nested lists got {status}")
    return "refused or linear"


def busy_handlers(target):
    """Requests that keep every handler; quick routes must not wait, and handlers must come back when their clients leave."""
    text = json.dumps({"content": "a b" * 1_000_000}).encode()
    held = [target.open(target.head("/tokenize", f"Content-Length: {len(text)}") + text) for _ in range(8)]
    slowest = max(target.health_seconds() for _ in range(10))
    for connection in held:
        connection.close()
    start = time.monotonic()
    status, _ = target.ask("/tokenize", {"content": "x"})
    check(status == 200, f"a small request got {status}")
    return f"/health within {slowest * 1000:.0f} ms; a handler again after {time.monotonic() - start:.1f} s"


def announced_bodies(target):
    """Bodies that are announced and do not come, and chunked ones that come in bytes."""
    held = [target.open(target.head("/tokenize", f"Content-Length: {16 << 20}")) for _ in range(20)]
    held += [target.open(target.head("/tokenize", "Transfer-Encoding: chunked") + b'1\r\n{\r\n') for _ in range(20)]
    time.sleep(0.2)
    status, _ = target.ask("/tokenize", {"content": "x" * 4000})
    for connection in held:
        connection.close()
    check(status == 200, f"a small request beside 40 announced bodies got {status}")
    return "small requests are served"


def smuggling(target):
    """A second request hidden in a body that the server may refuse to read."""
    hidden = target.head("/tokenizer_info", method="GET")
    heads = {"unknown encoding": ["Transfer-Encoding: xchunked", f"Content-Length: {len(hidden)}"],
             "two encodings": ["Transfer-Encoding: gzip, chunked"],
             "two lengths": ["Content-Length: 0", f"Content-Length: {len(hidden)}"],
             "length and chunks": ["Transfer-Encoding: chunked", "Content-Length: 4"],
             "signed length": ["Content-Length: +4"],
             "empty encoding": ["Transfer-Encoding: ", f"Content-Length: {len(hidden)}"],
             "list of lengths": ["Content-Length: 0, 0"],
             "two hosts": ["Host: elsewhere", "Content-Length: 0"],
             "compressed": ["Content-Encoding: gzip", f"Content-Length: {len(hidden)}"]}
    for name, lines in heads.items():
        reply = target.raw(target.head("/tokenize", *lines) + hidden)
        check(b"tokenizer_class" not in reply, f"{name}: the hidden request was executed")
        check(reply.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), f"{name}: {reply[:40]!r}")
    return f"{len(heads)} refused and closed"


def slow_readers(target):
    """Clients that read nothing of large replies."""
    body = json.dumps({"content": "a b " * 40_000, "with_pieces": True}).encode()
    request = target.head("/tokenize", f"Content-Length: {len(body)}") + body
    held = [target.open(request, receive_buffer=4096) for _ in range(12)]
    time.sleep(1)
    times = [target.health_seconds() for _ in range(10)]
    status, _ = target.ask("/tokenize", {"content": "x"})
    for connection in held:
        connection.close()
    check(status == 200, f"a small request beside 12 readers of nothing got {status}")
    return f"/health in {statistics.median(times) * 1000:.0f} ms, small requests served"


def names_that_leave(target):
    """Names of saved slots that would leave their folder."""
    for name in ("../x", "/etc/passwd", "a/b", ".hidden", "x.part", "", "x" * 200, "a\0b", "..", "a\nb"):
        status, answer = target.ask("/slots/0?action=save", {"filename": name})
        check(status in (400, 404, 501), f"{name!r} got {status}")
        check("/" not in str(answer.get("error", {}).get("message", "")).replace("[", ""), f"{name!r}: a path in {answer}")
    return "refused"


def control_tokens(target):
    """Text that looks like the template's control tokens."""
    info = target.ask("/tokenizer_info")[1]
    token = info.get("eos_token") or info.get("bos_token")
    if not token or "chat_template" not in info:
        raise Skipped("the model has no control tokens or no chat template")
    def count(content):
        chat = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "ignore_eos": True}
        return target.ask("/v1/chat/completions", chat)[1]["usage"]["prompt_tokens"]
    plain, loaded = count("x"), count("x" + token)
    check(loaded > plain + 1, f"{token} in a message became a control token ({loaded - plain} token more)")
    status, _ = target.ask("/apply-template", {"messages": [{"role": token, "content": "x"}]})
    check(status == 400, f"the role {token} got {status}")
    return "text"


def other_origins(target):
    """A page of another site, in a browser of this machine."""
    if target.keys:
        raise Skipped("the server has keys, which a page does not know")
    for line in ("Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
        host = [] if line.startswith("Host") else ["Host: localhost"]
        reply = target.raw("\r\n".join(["GET /v1/models HTTP/1.1", *host, line, "Connection: close", "", ""]).encode())
        check(reply.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400")), f"{line}: {reply[:40]!r}")
    return "403"


def many_connections(target):
    """Connections that send nothing, and half a head each."""
    held = [target.open(b"GET /v1/mod" if i % 2 else b"") for i in range(200)]
    slowest = max(target.health_seconds() for _ in range(10))
    threads = [threading.Thread(target=connection.close) for connection in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"/health within {slowest * 1000:.0f} ms beside 200"


ATTACKS = (cache_oracle, second_uses, hostile_forms, slots_of_others, quadratic_fields, busy_handlers, announced_bodies, smuggling, slow_readers, names_that_leave,
           control_tokens, other_origins, many_connections)


def run(target, say=print, attacks=ATTACKS):
    failed = 0
    for attack in attacks:
        try:
            outcome = "held     " + str(attack(target))
        except Skipped as reason:
            outcome = f"skipped  {reason}"
        except (Failed, OSError, http.client.HTTPException) as reason:
            failed += 1
            outcome = f"FAILED   {reason}"
        say(f"{attack.__name__:18} {outcome}")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("--key", action="append", default=[], help="an API key of the server; give two to try one against the other")
    parser.add_argument("--rates", action="store_true", help="also measure streams beside slow forms; only on a quiet machine")
    arguments = parser.parse_args()
    name, _, number = arguments.address.rpartition(":")
    attacks = ATTACKS + ((streams_beside_forms,) if arguments.rates else ())
    sys.exit(1 if run(Target(name.strip("[]"), int(number), arguments.key), attacks=attacks) else 0)
