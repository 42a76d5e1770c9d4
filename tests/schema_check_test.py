"""Random schemas and values through the checker of arguments and through PyPI's jsonschema: the same verdicts.

    schema_check_test.py PROGRAM [--pairs N] [--seed N] [unittest arguments]

PROGRAM is tests/check_schemas.cpp. Schemas are of draft 2020-12 and use all its keywords for values; formats are
annotations on both sides. Half of the values are made to fit, so that both verdicts come often. Then the schemas of
tests/data/tool_schemas.json, after those that agents, MCP servers, zod 4 and pydantic 2.12 write: which keywords a
grammar for arguments does not enforce. Skips (77) where jsonschema is absent.
"""

import json
import pathlib
import random
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
PAIRS, SEED = 4000, 1
while sys.argv[1:2] and sys.argv[1] in ("--pairs", "--seed"):
    option, value = sys.argv[1:3]
    del sys.argv[1:3]
    if option == "--pairs":
        PAIRS = int(value)
    else:
        SEED = int(value)

try:
    import jsonschema
except ImportError as error:
    print(f"skipped: {error}; `pip install jsonschema`, for {sys.executable}")
    sys.exit(77)

NAMES = ["a", "b", "c", "ka", "kb", "x-1", "ä/~"]
STRINGS = ["", "a", "b", "ab", "abc", "aab", "12", "Ä😀", "2024-02-30", "a b", "\nx"]
# No number so large that the quotient by 1.5 is no longer exact in Python.
NUMBERS = [0, 1, -1, 2, 3, 2.5, 1.0, -0.0, 0.1, 0.3, 10**9, 1e15, 7.0, 1e-3]
# No expression that Python reads in another way than ECMA-262 ("$" before a last line break, letters beyond ASCII).
PATTERNS = ["^a", "b$", "^[a-c]+$", r"^\d{2,4}$", "a|b", "^(ab|c)*$", "^(?=a)", r"^\S+$", "^.$", "^", r"[a-z]\W", "^k"]
# No value that Python takes for another type: jsonschema sees to it that true is not 1, as this program does.
CONSTANTS = [None, True, False, 0, 1, 1.0, "a", "", [], {}, [1], {"a": 1}, [0], [False], {"a": False}, {"a": 0}]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def one_in(self, n):
        return self.r.random() < 1 / n

    def of_number(self):
        r = self.r
        return r.choice([{"minimum": r.choice(NUMBERS)}, {"maximum": r.choice(NUMBERS)}, {"exclusiveMinimum": r.choice(NUMBERS)},
                         {"exclusiveMaximum": r.choice(NUMBERS)}, {"multipleOf": r.choice([1, 2, 0.5, 3, 7, 1.0, 1.5])}])

    def of_string(self):
        r = self.r
        return r.choice([{"minLength": r.randint(0, 3)}, {"maxLength": r.choice([0, 1, 2, 3, 2.0])}, {"pattern": r.choice(PATTERNS)},
                         {"format": r.choice(["date", "email", "uuid"])}])

    def of_array(self, depth):
        r = self.r
        contains = {"contains": self.schema(depth)}
        if self.one_in(2):
            contains |= {"minContains": r.randint(0, 2)}
        if self.one_in(3):
            contains |= {"maxContains": r.randint(0, 2)}
        return r.choice([{"minItems": r.randint(0, 3)}, {"maxItems": r.randint(0, 3)}, {"uniqueItems": r.choice([True, True, False])},
                         {"items": self.schema(depth)}, {"prefixItems": [self.schema(depth) for _ in range(r.randint(1, 2))]},
                         contains, {"unevaluatedItems": self.schema(0)}])

    def of_object(self, depth):
        r = self.r
        some = {name: self.schema(depth) for name in r.sample(NAMES, r.randint(1, 3))}
        return r.choice([{"properties": some}, {"properties": some}, {"required": r.sample(NAMES, r.randint(0, 2))},
                         {"additionalProperties": self.schema(depth)}, {"patternProperties": {r.choice(PATTERNS): self.schema(depth)}},
                         {"propertyNames": self.schema(0)}, {"minProperties": r.randint(0, 2)}, {"maxProperties": r.randint(0, 3)},
                         {"dependentRequired": {r.choice(NAMES): [r.choice(NAMES)]}},
                         {"dependentSchemas": {r.choice(NAMES): self.schema(depth)}}, {"unevaluatedProperties": self.schema(0)}])

    def of_any(self, depth):
        r = self.r
        several = [self.schema(depth) for _ in range(r.randint(1, 3))]
        condition = {"if": self.schema(depth), "then": self.schema(depth), "else": self.schema(depth)}
        if self.one_in(3):
            del condition[r.choice(["then", "else"])]
        return r.choice([{"type": r.choice(TYPES)}, {"type": r.sample(TYPES, 2)}, {"const": r.choice(CONSTANTS)},
                         {"enum": r.sample(CONSTANTS, 3)}, {"allOf": several}, {"anyOf": several}, {"oneOf": several},
                         {"not": self.schema(depth)}, condition, {"$ref": "#/$defs/d"}, {"$ref": "#anchor"}, {"title": "t", "x-y": 1}])

    def schema(self, depth):
        if self.one_in(12):
            return self.r.choice([True, True, False])
        if depth <= 0:
            return self.r.choice([self.of_number, self.of_string, lambda: {"type": self.r.choice(TYPES)}])()
        made = {"type": self.r.choice(TYPES[2:])} if self.one_in(2) else {}
        kind = {"integer": "number"}.get(made.get("type"), made.get("type", self.r.choice(["number", "string", "array", "object"])))
        for _ in range(self.r.choice([1, 1, 2, 3])):
            made |= {"number": self.of_number, "string": self.of_string}.get(kind, lambda: {})()
            made |= self.of_array(depth - 1) if kind == "array" else self.of_object(depth - 1) if kind == "object" else {}
        if self.one_in(3):
            made |= self.of_any(depth - 1)
        return made

    def root(self):
        root = self.schema(3)
        if root is True or root is False:
            return root
        definition = self.schema(1)
        while "$ref" in json.dumps(definition):  # it could refer to itself without end
            definition = self.schema(1)
        return {**root, "$defs": {"d": definition, "e": {"$anchor": "anchor", **self.of_string()}}}

    def value(self, schema=True, depth=3):
        """Towards the schema, without certainty."""
        r = self.r
        if not isinstance(schema, dict) or self.one_in(6):
            schema = {}
        if "const" in schema and not self.one_in(4):
            return schema["const"]
        if "enum" in schema and not self.one_in(4):
            return r.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema and "type" not in schema and self.one_in(2):
                return self.value(r.choice(schema[keyword]), depth)
        kind = schema.get("type") or ("array" if {"items", "prefixItems", "contains"} & schema.keys() else
                                      "object" if {"properties", "required", "patternProperties"} & schema.keys() else r.choice(TYPES))
        kind = r.choice(kind) if isinstance(kind, list) else kind
        if depth <= 0 and kind in ("array", "object"):
            return [] if kind == "array" else {}
        if kind == "array":
            first = schema.get("prefixItems", [])
            count = r.choice([0, 1, 2, 3, schema.get("minItems", 1), len(first)])
            return [self.value(first[i] if i < len(first) else schema.get("items", schema.get("contains", True)), depth - 1) for i in range(count)]
        if kind == "object":
            known = schema.get("properties", {})
            names = {*schema.get("required", []), *r.sample(list(known), r.randint(0, len(known))), *r.sample(NAMES, r.choice([0, 0, 1, 2]))}
            return {name: self.value(known.get(name, schema.get("additionalProperties", True)), depth - 1) for name in sorted(names)}
        return {"null": None, "boolean": r.choice([True, False]), "string": r.choice(STRINGS), "number": r.choice(NUMBERS),
                "integer": r.choice([0, 1, 2, 3, -1, 1.0, 10**9])}[kind]


class SchemaCheck(unittest.TestCase):
    maxDiff = None

    def test_random_schemas(self):
        maker = Maker(SEED)
        counts = dict.fromkeys(["fits", "does not fit"], 0)
        todo = PAIRS
        while todo > 0:
            requests = []
            while todo > 0 and len(requests) < 200:
                schema = maker.root()
                requests.append({"schema": schema, "values": [maker.value(schema) for _ in range(min(8, todo))]})
                todo -= len(requests[-1]["values"])
            done = subprocess.run([PROGRAM], input=json.dumps(requests), capture_output=True, text=True, check=True)
            for request, answer in zip(requests, json.loads(done.stdout), strict=True):
                oracle = jsonschema.Draft202012Validator(request["schema"])
                for value, fits in zip(request["values"], answer["fits"], strict=True):
                    with self.subTest(schema=json.dumps(request["schema"]), value=json.dumps(value)):
                        right = oracle.is_valid(value)
                        counts["fits" if right else "does not fit"] += 1
                        self.assertEqual(fits, right)
        print(f"{PAIRS} pairs, seed {SEED}: {counts}")
        self.assertGreater(min(counts.values()), 0.2 * PAIRS)

    def test_schemas_of_clients(self):
        tools = json.loads((pathlib.Path(__file__).parent / "data/tool_schemas.json").read_text())
        requests = [{"schema": tool["parameters"], "values": [{}]} for tool in tools]
        done = subprocess.run([PROGRAM], input=json.dumps(requests), capture_output=True, text=True, check=True)
        for tool, answer in zip(tools, json.loads(done.stdout), strict=True):
            with self.subTest(tool=tool["name"], of=tool["from"]):
                jsonschema.validators.validator_for(tool["parameters"]).check_schema(tool["parameters"])
                self.assertEqual(answer["not_enforced"], tool.get("not_enforced", []))
                # What a strict function or response_format gets: the same keywords are refused.
                self.assertEqual(answer["refused"] is None, not tool.get("not_enforced"), answer["refused"])


if __name__ == "__main__":
    unittest.main()
