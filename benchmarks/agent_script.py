"""Scripts of coding agents' sessions, whatever form a client gives them: what is said, called, returned and changed.

A session is a list of `Turn`s. A client (agent_clients.py) makes requests of it, from a history of entries:

    {"kind": "user", "texts": [...], "reminder": text or None}    what the user, or the client in its name, says
    {"kind": "answer", "text", "calls": [Call], "thinking"}       what the model answered, or is made to have answered
    {"kind": "result", "call": Call, "text", "odd": bool}         what a tool returned; odd: with parts that are no text
    {"kind": "note", "text"}                                      a system message in the middle, as Claude Code adds them
    {"kind": "search", "query"}                                   a call of a tool of the service, which no local server has

All texts are made of words drawn from a seed; none is a client's own. Sizes are in characters, four to a token.
"""

import dataclasses
import random

WORDS = """account adapter archive balance batch border branch buffer builder bundle cache carrier channel client cluster
column command commit compass config counter courier cursor daemon dataset delta device digest driver editor engine
entry event factory feature filter folder format frame gateway handle harbor header index journal kernel label ledger
library limit marker matrix member memory meter module monitor network object offset option packet parser patch pattern
payload pointer policy portal process profile project query queue reader record region registry relay report request
resource result router sample schema scope section segment sender server session signal sketch socket source stage
status storage stream string switch symbol table target template thread ticket timer token trace transfer trigger tunnel
update value vector version volume walker window worker writer zone""".split()
VERBS = "checks reads writes opens closes returns keeps drops joins splits moves counts names finds marks holds".split()

# Tools by client: name, size of the description in characters, parameters ("!" marks those that are required). The names
# and sizes are those of the clients' tools in 2026; the descriptions are made here.
CLAUDE_TOOLS = """Bash 7000 command! timeout:number description run_in_background:boolean
Read 1900 file_path! offset:integer limit:integer
Edit 1200 file_path! old_string! new_string! replace_all:boolean
Write 800 file_path! content!
Glob 500 pattern! path
Grep 1700 pattern! path glob output_mode=content|files_with_matches|count -i:boolean head_limit:integer
Task 5200 description! prompt! subagent_type!
TodoWrite 6000 todos:list!
WebFetch 1300 url:uri! prompt!
NotebookEdit 500 notebook_path! new_source! cell_type=code|markdown
ToolSearch 1400 query! max_results:integer
TaskStop 300 state=done|failed!"""
CODEX_TOOLS = """exec_command 1100 cmd! workdir yield_time_ms:number max_output_tokens:number justification
write_stdin 500 session_id:number! chars yield_time_ms:number
update_plan 700 explanation plan:list!
view_image 300 path!
list_mcp_resources 400 server cursor
list_mcp_resource_templates 400 server cursor
read_mcp_resource 300 server! uri!
request_user_input 600 questions:list!
spawn_agent 2400 message! agent_type
wait_agent 500 ids:list! timeout_ms:number
close_agent 300 state=done|failed!"""
OPENCODE_TOOLS = """bash 6800 command! timeout:number workdir description!
read 1400 filePath! offset:integer limit:integer
edit 1300 filePath! oldString! newString! replaceAll:boolean
write 700 filePath! content!
glob 500 pattern! path
grep 700 pattern! path include
list 400 path ignore:list
task 3700 description! prompt! subagent_type!
todowrite 5600 todos:list!
todoread 800 state=done|open!
webfetch 900 url:uri! format=text|markdown|html! timeout:number
skill 1500 name!"""
CLOSED = {"claude": "TaskStop", "codex": "close_agent", "opencode": "todoread"}  # arguments that end soon, whatever the model


@dataclasses.dataclass
class Call:
    id: str
    name: str
    arguments: dict
    text: str | None = None  # the arguments as the server wrote them
    free: str | None = None  # the input of a tool that takes a text in place of arguments (Codex: apply_patch)


@dataclasses.dataclass
class Turn:
    number: int
    says: bool = False  # the user speaks; otherwise tools return
    scripted: bool = False  # an answer without a call gets one
    forced: bool = False  # the request demands a call
    thinks: bool = False  # the answer gets a text of thinking
    forgets: bool = False  # thinking of earlier turns is removed before this one
    reminder: bool = False  # a reminder, which stands behind the newest words of the user from then on
    note: bool = False
    odd: bool = False  # results with pictures, a search of the service
    shuffled: bool = False  # tools in another order, in this request only
    counts: bool = False  # the client has the prompt's tokens counted first
    agents: int = 0  # requests of a sub-agent after this turn
    compacts: bool = False  # the conversation is summed up after this turn
    result: int = 0  # tokens of a tool's result


def plan(turns: int, seed: int) -> list[Turn]:
    """At least 8 turns, so that everything has a place of its own."""
    if turns < 8:
        raise ValueError(f"a day has at least 8 turns, not {turns}")
    sizes = random.Random(seed)
    at = lambda share: max(2, round(share * turns))
    day = [Turn(i, result=round(500 * 10 ** sizes.random())) for i in range(1, turns + 1)]  # 500 to 5,000
    turn = lambda number: day[number - 1]
    turn(1).says = turn(1).counts = True
    for number in range(2, turns + 1):
        turn(number).scripted = number % 2 == 0
        turn(number).thinks = number % 3 == 1
        turn(number).note = number % 4 == 3
    for share in (0.2, 0.65):
        turn(at(share)).forced = True
    turn(at(0.3)).agents = 2
    turn(at(0.4)).says = turn(at(0.4)).reminder = True
    turn(at(0.5)).odd = turn(at(0.5)).counts = True
    turn(at(0.6)).says = turn(at(0.6)).forgets = True
    turn(at(0.7)).shuffled = True
    turn(at(0.8)).compacts = True
    return day


class Writer:
    """Texts of about a number of tokens, the same for the same seed."""

    def __init__(self, seed: int, scale: float):
        self.random, self.scale = random.Random(seed), scale

    def size(self, characters: int) -> int:
        return max(40, round(characters * self.scale))

    def sentence(self) -> str:
        one, two, three = self.random.sample(WORDS, 3)
        return f"The {one} {self.random.choice(VERBS)} the {two} of each {three}."

    def prose(self, characters: int) -> str:
        """Whole sentences, scaled."""
        text, wanted = [], self.size(characters)
        while wanted > 0:
            text.append(self.sentence())
            wanted -= len(text[-1]) + 1
        return " ".join(text)

    def headed(self, characters: int, heads: int) -> str:
        """A long text with headings and lists, as system prompts are."""
        part = characters // heads
        return "\n\n".join(f"# {self.random.choice(WORDS).title()}\n- " + self.prose(part).replace(". ", ".\n- ")
                           for _ in range(heads))

    def source(self, tokens: int) -> str:
        """A file as a tool shows it, with numbered lines."""
        lines, wanted = [], self.size(4 * tokens)
        while wanted > 0:
            a, b, c = self.random.sample(WORDS, 3)
            lines.append(f"{len(lines) + 1:5}\t{self.random.choice(['', '  ', '    '])}"
                         f"{self.random.choice(['const', 'auto', 'return', 'if', 'for'])} {a}_{b} = {c}"
                         f"({self.random.randrange(1000)});")
            wanted -= len(lines[-1]) + 1
        return "\n".join(lines)

    def code(self, digits: int) -> str:
        return "".join(self.random.choice("0123456789abcdef") for _ in range(digits))

    def call(self, tools: list[dict]) -> Call:
        """As a model would call one of the first tools."""
        tool = self.random.choice(tools[:3])
        arguments = {name: self.argument(name, schema) for name, schema in tool["schema"]["properties"].items()
                     if name in tool["schema"]["required"]}
        return Call(self.code(12), tool["name"], arguments)

    def argument(self, name: str, schema: dict):
        if schema["type"] in ("number", "integer"):
            return self.random.randrange(1000)
        if schema["type"] == "array":
            return [f"{self.random.choice(VERBS)} {self.random.choice(WORDS)}"]
        word = self.random.choice(WORDS)
        return f"src/{word}/{self.random.choice(WORDS)}.cpp" if "ath" in name else f"grep -n '{word}' src\n"

    def tools(self, table: str) -> list[dict]:
        """Neutral definitions: name, description, schema."""
        made = []
        for line in table.splitlines():
            name, size, *parameters = line.split()
            properties = dict(self.parameter(p.rstrip("!")) for p in parameters)
            required = [p.rstrip("!").split(":")[0].split("=")[0] for p in parameters if p.endswith("!")]
            made.append({"name": name, "description": self.prose(int(size)),
                         "schema": {"type": "object", "properties": properties, "required": required,
                                    "additionalProperties": False}})
        return made

    def parameter(self, text: str) -> tuple[str, dict]:
        if "=" in text:
            name, values = text.split("=")
            return name, {"type": "string", "enum": values.split("|")}
        name, _, kind = text.partition(":")
        schema = {"type": {"": "string", "uri": "string", "list": "array"}.get(kind, kind)}
        if kind == "list":
            schema["items"] = {"type": "string"}
        if kind == "uri":
            schema["format"] = "uri"
        return name, {**schema, "description": self.prose(60)}
