#!/usr/bin/env python3
"""Asks a server for answers that fit the schemas of the JSON-Schema-Test-Suite, and validates them with jsonschema.

    json_schemas.py SUITE [--server http://127.0.0.1:8080] [--drafts draft4,draft7,draft2020-12] [--answers 3] [--tokens 200]

SUITE is the suite's folder, the one with `tests` (PyPI's sdist of jsonschema has it as `json`). Each schema goes to
/v1/completions as response_format, with a prompt that says nothing; refusals, answers that ended, and answers that
max_tokens cut are counted. An answer that ended and does not validate is printed, and the exit code is 1. Then each
schema goes to /v1/chat/completions as the parameters of a function that must be called: none is refused, and arguments
may miss only keywords that the reply names as not enforced, or what it lists under tool_call_errors.
"""

import argparse
import decimal
import json
import pathlib
import sys
import urllib.error
import urllib.request

import jsonschema
from jsonschema.validators import validator_for

NAMES = {"draft4": jsonschema.Draft4Validator, "draft7": jsonschema.Draft7Validator, "draft2020-12": jsonschema.Draft202012Validator}


def schemas(suite: pathlib.Path, draft: str) -> list:
    """Those of the draft that are objects and refer to no other document."""
    found = []
    for path in sorted((suite / "tests" / draft).glob("*.json")):
        for group in json.loads(path.read_text()):
            if isinstance(group["schema"], dict) and path.stem not in ("refRemote", "vocabulary"):
                found.append(group["schema"])
    return found


def ask(server: str, path: str, body: dict) -> tuple[int, dict]:
    request = urllib.request.Request(server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def fits(schema: dict, draft: str, text: str) -> bool:
    written = json.dumps(schema)
    if "multipleOf" in written:  # -5.1 is no multiple of 0.0001 in binary
        schema, value = json.loads(written, parse_float=decimal.Decimal), json.loads(text, parse_float=decimal.Decimal)
    else:
        value = json.loads(text)
    try:
        return validator_for(schema, default=NAMES[draft])(schema).is_valid(value)
    except (OSError, jsonschema.exceptions._WrappedReferencingError):
        return False  # a reference to another document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--drafts", default="draft4,draft7,draft2020-12")
    parser.add_argument("--answers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    counts = dict.fromkeys(["schemas", "refused", "answered", "ended", "cut", "failed", "calls", "calls that fit", "not enforced",
                            "with errors", "calls cut", "untold"], 0)
    for draft in arguments.drafts.split(","):
        for schema in schemas(arguments.suite, draft):
            counts["schemas"] += 1
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            common = {"model": "any", "max_tokens": arguments.tokens, "temperature": 1.5, "seed": counts["schemas"]}
            status, reply = ask(arguments.server, "/v1/completions", {**common, "prompt": "x", "n": arguments.answers, "response_format": form})
            if status != 200:
                counts["refused"] += 1
            ended = [c["text"] for c in reply.get("choices", []) if c["finish_reason"] == "stop"]
            counts["ended"] += len(ended)
            counts["answered"] += bool(ended)
            counts["cut"] += len(reply.get("choices", [])) - len(ended)
            for text in ended:
                if not fits(schema, draft, text):
                    counts["failed"] += 1
                    print(json.dumps(schema), text, file=sys.stderr)
            tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
            status, reply = ask(arguments.server, "/v1/chat/completions", {**common, "messages": [{"role": "user", "content": "x"}], "tools": [tool],
                                                                          "tool_choice": "required"})
            assert status == 200, (schema, reply)
            calls = reply["choices"][0]["message"].get("tool_calls") or []
            counts["calls"] += len(calls)
            counts["calls cut"] += not calls
            dropped = any(name.startswith("tools.f: ") for name in reply.get("ignored_parameters", []))
            counts["not enforced"] += dropped
            counts["with errors"] += "tool_call_errors" in reply
            for call in calls:
                right = fits(schema, draft, call["function"]["arguments"])
                counts["calls that fit"] += right
                if not right and not (dropped and "tool_call_errors" in reply):
                    counts["untold"] += 1
                    print(json.dumps(schema), json.dumps(reply), file=sys.stderr)
    print(json.dumps(counts, indent=1))
    return 1 if counts["failed"] or counts["untold"] else 0


if __name__ == "__main__":
    sys.exit(main())
