"""`coppice serve` through clients that others wrote, unmodified: the official openai and anthropic packages, LangChain,
LiteLLM, and lm-evaluation-harness's local-completions. Skips (77) where they are not installed: tools/setup_clients.sh does that.

    server_clients_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import asyncio
import json
import os
import pathlib
import sys
import tempfile
import unittest
from typing import Literal, Optional

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  LITELLM_LOCAL_MODEL_COST_MAP="True")
os.environ.setdefault("HF_HOME", tempfile.mkdtemp(prefix="coppice-hf-"))
try:
    import anthropic
    import jsonschema
    import langchain_openai
    import litellm
    import lm_eval
    import lm_eval.tasks
    import openai
    import pydantic
except ImportError as error:
    print(f"skipped: {error}; tools/setup_clients.sh installs the clients")
    sys.exit(77)

from server_case import ANSWER_2K, MODEL, PROGRAM, PROMPT_2K
from chat_model import write_chat_model
from script_model import TEMPLATE as SCRIPT_TEMPLATE, write_script_model
from server_support import Server

KEY = "a-key"

CHOICES = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{validation: "{data}"}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: label
target_delimiter: " "
metric_list:
  - metric: acc
  - metric: acc_norm
"""
GENERATE = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{validation: "{data}"}}
validation_split: validation
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n", "."], max_gen_toks: 8, temperature: 0}}
metric_list:
  - metric: exact_match
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "coppice-mini-f16.gguf"
            write_chat_model(MODEL, model)
            cls.server = Server(PROGRAM, model, "-c", "8192", "--api-key", KEY).wait_ready()
        cls.base = f"http://{cls.server.host}:{cls.server.port}"
        cls.auth = {"Authorization": f"Bearer {KEY}"}

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def good(self, path, body=None):
        return self.server.good(path, body, headers=self.auth)


class OpenAi(Case):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.base + "/v1", api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)

    def test_models(self):
        names = [m.id for m in self.client.models.list()]
        self.assertEqual(names, ["coppice-mini-f16"])
        self.assertEqual(self.client.models.retrieve(names[0]).id, names[0])

    def test_completion(self):
        reply = self.client.completions.create(model="any", prompt=PROMPT_2K, max_tokens=8, temperature=0, logprobs=2)
        self.assertIn(ANSWER_2K, reply.choices[0].text)
        self.assertEqual(len(reply.choices[0].logprobs.tokens), reply.usage.completion_tokens)
        self.assertEqual(reply.usage.prompt_tokens_details.cached_tokens, 0)

    def test_stream(self):
        stream = self.client.completions.create(model="any", prompt=PROMPT_2K, max_tokens=8, temperature=0, stream=True,
                                                stream_options={"include_usage": True},
                                                extra_body={"return_progress": True, "prune": "lazyllm:min=0",
                                                            "prune_when": "always"})
        chunks = list(stream)
        self.assertIn(ANSWER_2K, "".join(c.choices[0].text for c in chunks if c.choices))
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)
        pruned = [c.prune for c in chunks if getattr(c, "prune", None)]
        self.assertTrue(pruned[0]["active"])

    def test_chat(self):
        messages = [{"role": "user", "content": "Hello"}]
        reply = self.client.chat.completions.create(model="any", messages=messages, max_completion_tokens=4, logprobs=True, top_logprobs=2)
        self.assertEqual(reply.choices[0].message.role, "assistant")
        stream = self.client.chat.completions.create(model="any", messages=messages, max_tokens=4, stream=True)
        self.assertIn([c.choices[0].finish_reason for c in stream][-1], ("stop", "length"))

    def test_errors_have_the_clients_types(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="any", prompt="a", best_of=4)
        self.assertEqual(caught.exception.param, "best_of")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.base + "/v1", api_key="no", max_retries=0).models.list()
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_leaving_a_stream(self):
        stream = self.client.completions.create(model="any", prompt="a", max_tokens=8000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_for(lambda: not self.good("/slots")[0]["is_processing"], 1)


class AnswersInAForm(Case):
    """What agents do with the official clients. The model knows nothing of it, so the server has to keep the forms."""

    WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["place", "days"], "additionalProperties": False}}}
    USER = [{"role": "user", "content": "Weather in Ulm?"}]

    def check(self, arguments):
        jsonschema.validate(arguments, self.WEATHER["function"]["parameters"])

    def test_openai(self):
        class Town(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=9)
            people: int = pydantic.Field(ge=0, le=10**6)
            kind: Literal["town", "city"]
            twin: Optional["Town"]

        with openai.OpenAI(base_url=self.base + "/v1", api_key=KEY, max_retries=0) as client:
            for seed in range(3):
                town = client.chat.completions.parse(model="any", messages=self.USER, response_format=Town, seed=seed, max_tokens=1500,
                                                     extra_body={"logit_bias": {}}).choices[0].message.parsed
                self.assertIsInstance(town, Town)
                said = client.responses.parse(model="any", input="A town", text_format=Town, max_output_tokens=1500)
                self.assertIsInstance(said.output_parsed, Town)
            reply = client.chat.completions.create(model="any", messages=self.USER, tools=[self.WEATHER], tool_choice="required",
                                                   parallel_tool_calls=False, max_tokens=1500)
            self.check(json.loads(reply.choices[0].message.tool_calls[0].function.arguments))
            history = [*self.USER, reply.choices[0].message.model_dump(exclude_none=True),
                       {"role": "tool", "tool_call_id": reply.choices[0].message.tool_calls[0].id, "content": "rain"}]
            client.chat.completions.create(model="any", messages=history, tools=[self.WEATHER], max_tokens=4)
            with client.chat.completions.stream(model="any", messages=self.USER, tools=[{**self.WEATHER, "function": {**self.WEATHER["function"], "strict": True}}],
                                                tool_choice="required", parallel_tool_calls=False, max_tokens=1500) as stream:
                call = stream.get_final_completion().choices[0].message.tool_calls[0]
            self.check(call.function.parsed_arguments)

    def test_anthropic(self):
        tool = {"name": "weather", "input_schema": self.WEATHER["function"]["parameters"]}
        choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
        with anthropic.Anthropic(base_url=self.base, api_key=KEY, max_retries=0) as client:
            reply = client.messages.create(model="any", max_tokens=1500, messages=self.USER, tools=[tool], tool_choice=choice)
            self.assertEqual(reply.stop_reason, "tool_use")
            self.check(reply.content[0].input)
            with client.messages.stream(model="any", max_tokens=1500, messages=self.USER, tools=[tool], tool_choice=choice) as stream:
                self.check(stream.get_final_message().content[0].input)
            result = {"type": "tool_result", "tool_use_id": reply.content[0].id, "content": "rain"}
            more = [*self.USER, {"role": "assistant", "content": [block.model_dump() for block in reply.content]}, {"role": "user", "content": [result]}]
            self.assertGreater(client.messages.count_tokens(model="any", messages=more, tools=[tool]).input_tokens, 10)
            self.assertTrue(client.messages.create(model="any", max_tokens=4, messages=more, tools=[tool]).usage.output_tokens)

    def test_anthropics_errors_models_and_outputs(self):
        class Town(pydantic.BaseModel):  # without a text: the client leaves its bounds out of the schema
            kind: Literal["town", "city"]
            large: bool

        with anthropic.Anthropic(base_url=self.base, api_key=KEY, max_retries=0) as client:
            long = [{"role": "user", "content": "word " * 30000}]
            count = client.messages.count_tokens(model="any", messages=long).input_tokens
            with self.assertRaises(anthropic.BadRequestError) as caught:
                client.messages.create(model="any", max_tokens=4, messages=long)
            self.assertIn(f"prompt is too long: {count} tokens > ", str(caught.exception))
            self.assertEqual((caught.exception.type, caught.exception.request_id[:4]), ("invalid_request_error", "req_"))
            with self.assertRaises(anthropic.BadRequestError):
                client.messages.create(model="any", max_tokens=-1, messages=self.USER)
            with self.assertRaises(anthropic.NotFoundError):
                client.models.retrieve("other")
            (model,) = client.models.list()
            self.assertEqual((model.type, model.id, model.lifecycle), ("model", model.display_name, "active"))
            self.assertEqual(client.models.retrieve(model.id).created_at, model.created_at)
            self.assertIsInstance(client.messages.parse(model="any", max_tokens=1500, messages=self.USER, output_format=Town).parsed_output, Town)
        with anthropic.Anthropic(base_url=self.base, api_key="no", max_retries=0) as client:
            with self.assertRaises(anthropic.AuthenticationError):
                client.messages.create(model="any", max_tokens=4, messages=self.USER)

    def test_langchain(self):
        class Town(pydantic.BaseModel):
            """A town."""
            name: str = pydantic.Field(max_length=9)
            people: int = pydantic.Field(ge=0, le=10**6)

        chat = langchain_openai.ChatOpenAI(base_url=self.base + "/v1", api_key=KEY, model="any", max_tokens=1500, max_retries=0)
        short = chat.bind(max_tokens=4)
        self.assertEqual(short.invoke("Hello").usage_metadata["output_tokens"], 4)
        self.assertEqual(len(short.batch(["a", "b"])), 2)
        self.assertTrue("".join(chunk.text for chunk in short.stream("Hello")) is not None)
        self.assertTrue(asyncio.run(short.ainvoke("Hello")).response_metadata)
        self.assertTrue(short.bind(logprobs=True).invoke("Hello").response_metadata["logprobs"]["content"])
        self.assertIsInstance(short.bind(stop=["e"]).invoke("Hello").content, str)
        self.assertIsInstance(short.invoke([("human", "a"), ("ai", "b"), ("human", "c")]).content, str)
        embeddings = langchain_openai.OpenAIEmbeddings(base_url=self.base + "/v1", api_key=KEY, model="any", check_embedding_ctx_length=False)
        vectors = embeddings.embed_documents(["a door", "a key"])
        self.assertEqual(vectors[1], embeddings.embed_query("a key"))
        self.assertNotEqual(vectors[0], vectors[1])
        for method in ["json_schema", "function_calling"]:
            self.assertIsInstance(chat.with_structured_output(Town, method=method).invoke("A town"), Town)
        for parallel in [True, False]:
            tools = chat.bind_tools([self.WEATHER], tool_choice="required", parallel_tool_calls=parallel)
            for call in tools.invoke("Weather?").tool_calls:
                self.check(call["args"])

    def test_litellm(self):
        where = {"model": "openai/any", "api_base": self.base + "/v1", "api_key": KEY, "max_tokens": 1500, "num_retries": 0}
        reply = litellm.completion(messages=self.USER, tools=[self.WEATHER], tool_choice="required", parallel_tool_calls=False, **where)
        self.check(json.loads(reply.choices[0].message.tool_calls[0].function.arguments))
        schema = {"type": "json_schema", "json_schema": {"name": "weather", "schema": self.WEATHER["function"]["parameters"]}}
        self.check(json.loads(litellm.completion(messages=self.USER, response_format=schema, **where).choices[0].message.content))


class Embeddings(Case):
    def test_openai(self):
        with openai.OpenAI(base_url=self.base + "/v1", api_key=KEY, max_retries=0) as client:
            plain = client.embeddings.create(model="any", input=["a", "b"], encoding_format="float")
            packed = client.embeddings.create(model="any", input=["a", "b"])  # in base64
        self.assertEqual(plain.usage.prompt_tokens, plain.usage.total_tokens)
        for one, other in zip(plain.data, packed.data):
            for a, b in zip(one.embedding, other.embedding, strict=True):
                self.assertAlmostEqual(a, b, places=6)

    def test_litellm(self):
        reply = litellm.embedding(model="openai/any", input=["a", "b"], api_base=self.base + "/v1", api_key=KEY)
        self.assertEqual([item["index"] for item in reply.data], [0, 1])


class LmEval(Case):
    QUESTIONS = [
        {"question": "The secret code is 48213. The secret code is", "choices": ["48213.", "unknown to me."], "label": 0, "answer": "48213"},
        {"question": "Once upon a time there was a", "choices": ["king who", "of the and", "x"], "label": 0, "answer": "king"},
        {"question": "Light is \u20ac \u00e9", "choices": ["refracted", "seven \u65e5\u672c"], "label": 1, "answer": "x"},
    ]

    def evaluate(self, template, **model_args):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "data.jsonl"
            data.write_text("".join(json.dumps(q) + "\n" for q in self.QUESTIONS))
            name = "coppice_own_task"
            (pathlib.Path(folder) / "own.yaml").write_text(template.format(name=name, data=data))
            args = {"model": "any", "base_url": self.base + "/v1/completions", "tokenizer_backend": "remote",
                    "auth_token": KEY, "max_retries": 1, **model_args}
            manager = lm_eval.tasks.TaskManager(include_path=folder, include_defaults=False)
            return lm_eval.simple_evaluate(model="local-completions", model_args=args, tasks=[name], task_manager=manager,
                                           log_samples=True, bootstrap_iters=0)["samples"][name]

    def setUp(self):
        os.environ["OPENAI_API_KEY"] = KEY

    def score(self, context, choice):
        """What the task's score has to be, asked for by hand."""
        tokens = [self.good("/tokenize", {"prompt": t, "add_special_tokens": False})["tokens"] for t in [context, context + " " + choice]]
        body = {"prompt": tokens[1], "max_tokens": 1, "echo": True, "logprobs": 5, "temperature": 0}
        log = self.good("/v1/completions", body)["choices"][0]["logprobs"]
        part = slice(len(tokens[0]), -1)
        greedy = all(v == max(t.values()) for v, t in zip(log["token_logprobs"][part], log["top_logprobs"][part]))
        return sum(log["token_logprobs"][part]), greedy

    def test_log_likelihood(self):
        for batch in [1, 4]:
            samples = sorted(self.evaluate(CHOICES, batch_size=batch), key=lambda s: s["doc_id"])
            self.assertEqual(len(samples), len(self.QUESTIONS))
            for question, sample in zip(self.QUESTIONS, samples):
                got = [tuple(r) for r in sample["filtered_resps"]]
                self.assertEqual(got, [self.score(question["question"], c) for c in question["choices"]])
            self.assertEqual(samples[0]["acc"], 1.0)

    def test_generation(self):
        samples = sorted(self.evaluate(GENERATE), key=lambda s: s["doc_id"])
        for question, sample in zip(self.QUESTIONS, samples):
            # The harness sends ids, which get no BOS.
            body = {"prompt": question["question"], "add_special_tokens": False, "max_tokens": 8, "temperature": 0, "stop": ["\n", "."]}
            self.assertEqual(sample["filtered_resps"][0], self.good("/v1/completions", body)["choices"][0]["text"])
        self.assertTrue(samples[0]["filtered_resps"][0])


class Thinking(unittest.TestCase):
    """A model that thinks, by heart."""
    SCRIPT = "<think>\nTwo and two.\n</think>\n\nFour, I say."

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = f"{cls.folder.name}/m.gguf"
        write_script_model(path, {"A": cls.SCRIPT}, template=SCRIPT_TEMPLATE + "{# '<think>' '</think>' #}")
        cls.server = Server(PROGRAM, path).wait_ready()
        base = f"http://{cls.server.host}:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=base + "/v1", api_key="any")
        cls.anthropic = anthropic.Anthropic(base_url=base, api_key="any")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def test_openai_chat(self):
        body = {"model": "m", "messages": [{"role": "user", "content": "A"}], "temperature": 0}
        reply = self.openai.chat.completions.create(**body, reasoning_effort="high")
        message = reply.choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("Two and two.", "Four, I say."))
        self.assertGreater(reply.usage.completion_tokens_details.reasoning_tokens, 0)
        thought, text = "", ""
        for chunk in self.openai.chat.completions.create(**body, stream=True):
            thought += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
            text += chunk.choices[0].delta.content or ""
        self.assertEqual((thought, text), ("Two and two.", "Four, I say."))
        body["messages"] += [message.model_dump(exclude_none=True), {"role": "user", "content": "A"}]
        self.assertEqual(self.openai.chat.completions.create(**body).choices[0].message.content, "Four, I say.")

    def test_openai_responses(self):
        reply = self.openai.responses.create(model="m", input="A", temperature=0, reasoning={"effort": "low", "summary": "auto"})
        self.assertEqual([item.type for item in reply.output], ["reasoning", "message"])
        self.assertEqual((reply.output[0].content[0].text, reply.output_text), ("Two and two.", "Four, I say."))
        with self.openai.responses.stream(model="m", input="A", temperature=0, include=["reasoning.encrypted_content"]) as stream:
            thought = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
            final = stream.get_final_response()
        self.assertEqual((thought, final.output_text), ("Two and two.", "Four, I say."))
        self.assertEqual(final.output[0].content[0].text, thought)
        again = [{"role": "user", "content": "A"}, *[item.model_dump(exclude_none=True) for item in final.output], {"role": "user", "content": "A"}]
        self.assertEqual(self.openai.responses.create(model="m", input=again, temperature=0).output_text, "Four, I say.")

    def test_anthropic(self):
        body = {"model": "m", "max_tokens": 2000, "messages": [{"role": "user", "content": "A"}], "extra_body": {"temperature": 0},
                "thinking": {"type": "enabled", "budget_tokens": 1024}}
        reply = self.anthropic.messages.create(**body)
        self.assertEqual([(block.type, getattr(block, "thinking", None) or block.text) for block in reply.content],
                         [("thinking", "Two and two."), ("text", "Four, I say.")])
        with self.anthropic.messages.stream(**body) as stream:
            thought = "".join(event.thinking for event in stream if event.type == "thinking")
            final = stream.get_final_message()
        self.assertEqual((thought, final.content[0].thinking, final.content[0].signature), ("Two and two.", thought, reply.content[0].signature))
        self.assertEqual(final.content[1].text, "Four, I say.")
        body["messages"] += [{"role": "assistant", "content": final.content}, {"role": "user", "content": "A"}]
        self.assertEqual(self.anthropic.messages.create(**body).content[1].text, "Four, I say.")


if __name__ == "__main__":
    unittest.main()
