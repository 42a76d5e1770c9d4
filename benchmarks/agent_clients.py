"""Requests in the forms of Claude Code, Codex and OpenCode, sent through the official clients (PyPI's anthropic and openai).

Each client turns a `Request` (heads, history, tools) into the body that it would send, and the same `Request` into plain
chat messages (`chat`), with which agent_day.py counts tokens without the server's word for it. The forms were taken
from what users captured of Claude Code 2.1.30 to 2.1.280 and of OpenCode 1.14, and from Codex' sources (0.139).
"""

import dataclasses
import json
import time
import uuid

import anthropic
import openai

from agent_script import CLAUDE_TOOLS, CLOSED, CODEX_TOOLS, OPENCODE_TOOLS, Call, Writer

PNG = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
BETAS = ["claude-code-20250219", "interleaved-thinking-2025-05-14", "context-management-2025-06-27",
         "prompt-caching-scope-2026-01-05"]


@dataclasses.dataclass
class Request:
    kind: str  # turn, title, agent, compaction, search
    heads: list[str]  # the texts of the system prompt, without lines that mean nothing to the model
    history: list[dict]
    tools: list[dict]
    forced: str | None = None  # the tool that must be called


@dataclasses.dataclass
class Answer:
    text: str = ""
    calls: list[Call] = dataclasses.field(default_factory=list)
    prompt: int = 0
    cached: int = 0
    first: float = 0.0  # seconds to the first piece of the answer
    seconds: float = 0.0
    timings: dict = dataclasses.field(default_factory=dict)

    def said(self) -> tuple:
        return self.text, tuple((c.name, c.text) for c in self.calls)


class Agent:
    """`plain` leaves out what servers are known to refuse; `extra` goes into every body (prune, cache_prompt)."""

    name = ""
    table = ""

    def __init__(self, base: str, key: str, writer: Writer, answer: int, extra: dict):
        self.writer, self.answer, self.extra, self.plain = writer, answer, extra, False
        self.session = str(uuid.UUID(int=writer.random.getrandbits(128)))
        self.tools = writer.tools(self.table)
        self.closed = CLOSED[self.name]
        self.connect(base, key)

    def user(self, *texts: str, reminder: str | None = None) -> dict:
        return {"kind": "user", "texts": list(texts), "reminder": reminder}

    def limit(self, request: Request) -> int:
        """Tokens of the answer; a call that is demanded must come to its end, also if a small model writes much white space."""
        return max(self.answer, 512) if request.forced else self.answer

    def chat(self, request: Request) -> dict:
        """The request as chat messages: what the model has to read, without what only concerns the service."""
        messages = [{"role": "system", "content": head} for head in request.heads]
        for entry in request.history:
            if entry["kind"] == "user":
                texts = entry["texts"] + ([entry["reminder"]] if entry["reminder"] else [])
                messages.append({"role": "user", "content": "\n".join(texts)})
            elif entry["kind"] == "note":
                messages.append({"role": "system", "content": entry["text"]})
            elif entry["kind"] == "result":
                messages.append({"role": "tool", "tool_call_id": entry["call"].id, "content": entry["text"]})
            elif entry["kind"] == "answer":
                messages.append(self.chat_answer(entry))
        tools = [{"type": "function", "function": {"name": t["name"], "description": t["description"],
                                                   "parameters": t["schema"]}} for t in request.tools]
        return {"model": "any", "messages": messages, **({"tools": tools} if tools else {})}

    def chat_answer(self, entry: dict) -> dict:
        message = {"role": "assistant", "content": entry["text"]}
        if entry["thinking"]:
            message["reasoning_content"] = entry["thinking"]
        if entry["calls"]:
            message["tool_calls"] = [{"id": c.id, "type": "function", "function": {
                "name": c.name, "arguments": self.text_of(c)}} for c in entry["calls"]]
        return message

    @staticmethod
    def text_of(call: Call) -> str:
        if call.free is not None:
            return json.dumps({"input": call.free})
        return json.dumps(call.arguments) if call.text is None else call.text


def scan(event: dict, answer: Answer):
    """Takes the server's account out of an event, wherever the form puts it."""
    for place in (event, event.get("response") or {}, event.get("message") or {}):
        if isinstance(place, dict) and place.get("timings"):
            answer.timings = place["timings"]


class Claude(Agent):
    name, table = "claude", CLAUDE_TOOLS

    def connect(self, base: str, key: str):
        for tool in self.tools:
            tool["schema"] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **tool["schema"]}
        self.client = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0, timeout=3600)

    def opening(self) -> tuple[list[str], list[dict]]:
        write = self.writer
        reminder = lambda size: f"<system-reminder>\n{write.prose(size)}\n</system-reminder>"
        heads = [write.sentence(), write.headed(14000, 9)]
        return heads, [self.user(reminder(1800), reminder(3800), reminder(1900), write.prose(300))]

    def side(self, kind: str) -> Request:
        write = self.writer
        asked = self.user(write.prose(300))
        heads = [write.sentence(), write.headed(1500 if kind == "title" else 5000, 3)]
        return Request(kind, heads, [asked], self.tools[:6] if kind == "agent" else [])

    def compaction(self, request: Request) -> Request:
        return dataclasses.replace(request, kind="compaction", forced=None,
                                   history=request.history + [self.user(self.writer.headed(5000, 8))])

    def resume(self, history: list[dict], summary: str) -> list[dict]:
        return [self.user(*history[0]["texts"][:-1], summary + "\n" + self.writer.prose(1500))]

    def body(self, request: Request) -> dict:
        mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        write = self.writer
        billing = (f"x-anthropic-billing-header: cc_version=2.1.177.{write.code(3)}; cc_entrypoint=cli; "
                   f"cch={write.code(5)};")
        system = [{"type": "text", "text": billing}] + [{"type": "text", "text": h, **mark} for h in request.heads]
        body = {"model": "claude", "max_tokens": self.limit(request), "system": system, "messages": self.messages(request),
                "metadata": {"user_id": f"user_{self.session}"}, "extra_body": {**self.extra, "temperature": 0}}
        if request.kind == "title":
            schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"],
                      "additionalProperties": False}
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            body |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"},
                     "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}
        if request.tools:
            body["tools"] = [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]}
                             for t in request.tools]
        if request.kind == "search" and not self.plain:
            body["tools"] = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]
        if request.forced:
            body["tool_choice"] = {"type": "tool", "name": request.forced, "disable_parallel_tool_use": True}
        return body

    def messages(self, request: Request) -> list[dict]:
        messages = []
        for entry in request.history:
            role, blocks = self.blocks(entry)
            if messages and messages[-1]["role"] == role == "user" and entry["kind"] != "note":
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}  # moves with each turn
        return messages

    def blocks(self, entry: dict) -> tuple[str, list[dict]]:
        text = lambda t: {"type": "text", "text": t}
        if entry["kind"] == "user":
            return "user", [text(t) for t in entry["texts"] + ([entry["reminder"]] if entry["reminder"] else [])]
        if entry["kind"] == "note":
            return ("user" if self.plain else "system"), [text(entry["text"])]
        if entry["kind"] == "result":
            content = [text(entry["text"])]
            if entry["odd"] and not self.plain:
                content += [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                            {"type": "tool_reference", "tool_name": "WebFetch"}]
            return "user", [{"type": "tool_result", "tool_use_id": "toolu_" + entry["call"].id, "content": content}]
        if entry["kind"] == "search":
            return "assistant", self.search(entry)
        thinking = [{"type": "thinking", "thinking": entry["thinking"], "signature": "c2lnbmVk"}] \
            if entry["thinking"] else []
        said = [text(entry["text"])] if entry["text"] else []
        return "assistant", thinking + said + [{"type": "tool_use", "id": "toolu_" + c.id, "name": c.name,
                                                "input": json.loads(self.text_of(c))} for c in entry["calls"]]

    def search(self, entry: dict) -> list[dict]:
        if self.plain:
            return [{"type": "text", "text": entry["query"]}]
        number = "srvtoolu_" + self.session[:12]
        found = {"type": "web_search_result", "url": "https://example.org/a", "title": entry["query"],
                 "encrypted_content": "ZW5jcnlwdGVk", "page_age": None}
        return [{"type": "server_tool_use", "id": number, "name": "web_search", "input": {"query": entry["query"]}},
                {"type": "web_search_tool_result", "tool_use_id": number, "content": [found]},
                {"type": "text", "text": entry["query"]}]

    def count(self, request: Request) -> int:
        body = self.body(request)
        kept = {k: body[k] for k in ("model", "system", "messages", "tools", "thinking") if k in body}
        return self.client.beta.messages.count_tokens(**kept).input_tokens

    def ask(self, body: dict) -> Answer:
        answer, begin, arguments = Answer(), time.monotonic(), {}
        for event in self.client.beta.messages.create(**body, betas=BETAS, stream=True):
            event = event.model_dump()
            scan(event, answer)
            kind, block, delta = event["type"], event.get("content_block") or {}, event.get("delta") or {}
            if kind.startswith("content_block_") and kind != "content_block_stop" and not answer.first:
                answer.first = time.monotonic() - begin
            if block.get("type") == "tool_use":
                arguments[event["index"]] = ""
                answer.calls.append(Call(block["id"].removeprefix("toolu_"), block["name"], {}))
            answer.text += delta.get("text") or ""
            if event.get("index") in arguments:
                arguments[event["index"]] += delta.get("partial_json") or ""
            usage = event.get("usage") or (event.get("message") or {}).get("usage") or {}
            if usage.get("input_tokens") is not None:
                answer.cached = usage.get("cache_read_input_tokens") or 0
                answer.prompt = usage["input_tokens"] + answer.cached + (usage.get("cache_creation_input_tokens") or 0)
        for call, text in zip(answer.calls, arguments.values()):
            call.text = text or "{}"
        answer.seconds = time.monotonic() - begin
        return answer


class OpenCode(Agent):
    name, table = "opencode", OPENCODE_TOOLS

    def connect(self, base: str, key: str):
        self.client = openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=0, timeout=3600)

    def opening(self) -> tuple[list[str], list[dict]]:
        write = self.writer
        return [write.headed(8000, 9), write.headed(2500, 2)], [self.user(write.prose(300))]

    def side(self, kind: str) -> Request:
        write = self.writer
        heads = [write.headed(1800 if kind == "title" else 2500, 3)]
        first = [self.user(write.sentence())] if kind == "title" else []  # two messages of the user in a row
        return Request(kind, heads, first + [self.user(write.prose(300))], self.tools[:6] if kind == "agent" else [])

    def compaction(self, request: Request) -> Request:
        asked = self.user(self.writer.prose(600))
        return Request("compaction", [self.writer.headed(900, 2)], request.history + [asked], [])

    def resume(self, history: list[dict], summary: str) -> list[dict]:
        told = {"kind": "answer", "text": summary + "\n" + self.writer.prose(1500), "calls": [], "thinking": None}
        return [self.user(self.writer.sentence()), told, self.user(self.writer.sentence())]

    def body(self, request: Request) -> dict:
        chat = self.chat(request)
        for message, entry in zip(chat["messages"][len(request.heads):], [e for e in request.history
                                                                         if e["kind"] != "search"]):
            if entry["kind"] == "user" and entry["reminder"]:
                message["content"] = [{"type": "text", "text": t} for t in entry["texts"] + [entry["reminder"]]]
        body = {**chat, "max_tokens": self.limit(request), "temperature": 0, "stream_options": {"include_usage": True},
                "extra_headers": {"x-session-affinity": self.session, "x-opencode-request": self.writer.code(8)},
                "extra_body": dict(self.extra)}
        if request.tools:
            body["tool_choice"] = "auto"
        if request.forced:
            body["tool_choice"] = {"type": "function", "function": {"name": request.forced}}
            body["parallel_tool_calls"] = False
        return body

    def count(self, request: Request) -> None:
        return None  # OpenCode asks for no count

    def ask(self, body: dict) -> Answer:
        answer, begin = Answer(), time.monotonic()
        for chunk in self.client.chat.completions.create(**body, stream=True):
            chunk = chunk.model_dump()
            scan(chunk, answer)
            delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
            if (delta.get("content") or delta.get("tool_calls")) and not answer.first:
                answer.first = time.monotonic() - begin
            answer.text += delta.get("content") or ""
            for part in delta.get("tool_calls") or []:
                if part["index"] == len(answer.calls):
                    answer.calls.append(Call(part["id"], part["function"]["name"], {}, ""))
                answer.calls[part["index"]].text += part["function"].get("arguments") or ""
            if chunk.get("usage"):
                answer.prompt = chunk["usage"]["prompt_tokens"]
                answer.cached = (chunk["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        answer.seconds = time.monotonic() - begin
        return answer


class Codex(Agent):
    name, table = "codex", CODEX_TOOLS
    PATCH = {"type": "custom", "name": "apply_patch", "description": "Changes files by a patch.", "format": {
        "type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\" LF line+ \"*** End Patch\"\n"
                                                           "line: /[^\\n]*/ LF\nLF: \"\\n\"\n"}}

    connect = OpenCode.connect

    def opening(self) -> tuple[list[str], list[dict]]:
        write = self.writer
        place = ("<environment_context>\n  <cwd>/home/user/project</cwd>\n  <shell>bash</shell>\n"
                 f"</environment_context>\n{write.prose(900)}")
        return [write.headed(18000, 12), write.headed(3500, 4)], [self.user(place), self.user(write.prose(300))]

    def side(self, kind: str) -> Request:
        write = self.writer
        heads = [write.headed(1200 if kind == "title" else 6000, 3), write.headed(800, 1)]
        return Request(kind, heads, [self.user(write.prose(300))], self.tools[:6] if kind == "agent" else [])

    def compaction(self, request: Request) -> Request:
        return Request("compaction", request.heads, request.history + [self.user(self.writer.prose(900))], [])

    def resume(self, history: list[dict], summary: str) -> list[dict]:
        return [*history[:2], self.user(summary + "\n" + self.writer.prose(1500))]

    def body(self, request: Request) -> dict:
        body = {"model": "local", "instructions": request.heads[0], "max_output_tokens": self.limit(request), "temperature": 0,
                "input": [self.message("developer", [head]) for head in request.heads[1:]],
                "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"},
                "store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": self.session,
                "text": {"verbosity": "low"}, "extra_headers": {"session-id": self.session, "thread-id": self.session},
                "extra_body": {**self.extra, "client_metadata": {"turn_id": self.writer.code(8)}}}
        for entry in request.history:
            body["input"] += self.items(entry)
        body["tools"] = [{"type": "function", "name": t["name"], "description": t["description"], "strict": False,
                          "parameters": t["schema"]} for t in request.tools]
        if request.tools and not self.plain:
            body["tools"] += [self.PATCH, {"type": "web_search", "external_web_access": False}, {"type": "local_shell"}]
        if request.forced:
            body["tool_choice"] = {"type": "function", "name": request.forced}
            body["parallel_tool_calls"] = False
        return body

    @staticmethod
    def message(role: str, texts: list[str]) -> dict:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": t} for t in texts]}

    def items(self, entry: dict) -> list[dict]:
        if entry["kind"] == "user":
            return [self.message("user", entry["texts"] + ([entry["reminder"]] if entry["reminder"] else []))]
        if entry["kind"] == "note":
            return [self.message("developer", [entry["text"]])]
        if entry["kind"] == "search":
            return [] if self.plain else [{"type": "web_search_call", "id": "ws_1", "status": "completed",
                                           "action": {"type": "search", "query": entry["query"]}}]
        if entry["kind"] == "result":
            free = entry["call"].free is not None and not self.plain
            output = entry["text"]
            if entry["odd"] and not free and not self.plain:
                output = [{"type": "input_text", "text": output},
                          {"type": "input_image", "image_url": "data:image/png;base64," + PNG}]
            return [{"type": "custom_tool_call_output" if free else "function_call_output",
                     "call_id": "call_" + entry["call"].id, "output": output}]
        items = []
        if entry["thinking"]:
            items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": entry["thinking"]}],
                          "encrypted_content": "Z0FBQUFB"})
        if entry["text"]:
            items.append(self.message("assistant", [entry["text"]]))
        return items + [self.call_item(call) for call in entry["calls"]]

    def call_item(self, call: Call) -> dict:
        item = {"call_id": "call_" + call.id, "name": call.name}
        if call.free is not None and not self.plain:
            return {"type": "custom_tool_call", **item, "input": call.free}
        return {"type": "function_call", **item, "arguments": self.text_of(call)}

    def count(self, request: Request) -> None:
        return None  # Codex asks for no count

    def ask(self, body: dict) -> Answer:
        answer, begin = Answer(), time.monotonic()
        for event in self.client.responses.create(**body, stream=True):
            event = event.model_dump(warnings=False)
            scan(event, answer)
            if event["type"].endswith(".delta") and not answer.first:
                answer.first = time.monotonic() - begin
            if event["type"] == "response.output_text.delta":
                answer.text += event["delta"]
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
                item = event["item"]
                answer.calls.append(Call(item["call_id"].removeprefix("call_"), item["name"], {}, item["arguments"]))
            if event["type"] in ("response.completed", "response.incomplete"):
                usage = event["response"]["usage"]
                answer.prompt = usage["input_tokens"]
                answer.cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
        answer.seconds = time.monotonic() - begin
        return answer


CLIENTS = {agent.name: agent for agent in (Claude, Codex, OpenCode)}
