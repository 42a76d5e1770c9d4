#!/usr/bin/env python3
"""llama_server.py OPTIONS: `coppice serve` in llama-server's place, for llama.cpp's own server tests.

They are in llama.cpp's tree, tools/server/tests, and start the program that LLAMA_SERVER_BIN_PATH names. Environment:
COPPICE, the program; COPPICE_MODEL, a GGUF file, because the tests name models by their place on a hub. Options that
`coppice serve --help` lists go through. Those without an effect on what the tests assert are dropped. The rest goes
through too, so that the program refuses it and the test fails.
"""

import os
import re
import subprocess
import sys

HERE = {"--hf-repo", "--hf-file"}                                       # with a value: the model is given here
ALONE = {"--cont-batching", "--kv-unified", "--swa-full", "--no-jinja", "--embedding", "--context-shift", "--no-ui",
         "--backend_sampling", "--no-mmproj", "--offline"}              # without one


def options(given, known):
    out, context, slots, batch = [], None, 1, None
    words = iter(given)
    for word in words:
        if word in HERE:
            next(words)
        elif word == "--ctx-size":
            context = int(next(words))
        elif word == "--batch-size":
            batch = next(words)
        elif word in known or word not in ALONE:
            if word == "--parallel":
                slots = int(next(words))
                out += [word, str(slots)]
            else:
                out.append(word)
    # llama.cpp divides the context among its slots unless they share it; here each sequence has all of it.
    if context:
        out += ["--ctx-size", str(context if "--kv-unified" in given else context // slots)]
    if batch and "--ubatch-size" not in out:
        out += ["--ubatch-size", batch]
    if "--model" not in out:
        out += ["--model", os.environ["COPPICE_MODEL"]]
    # CORS is the tests' default, and by choice here. The names are those of the tests.
    if "--api-key" in out and "--cors-origins" not in out:
        out += ["--cors-origins", "localhost,web.mydomain.fr,origin"]
    return out


program = os.environ["COPPICE"]
help_text = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
listed = set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(l for l in help_text.splitlines() if re.match(r"\s+-", l))))
os.execv(program, ["coppice", "serve", *options(sys.argv[1:], listed)])
