// The output of each feature of the template language. Expected values come from Jinja 3.1 in the environment
// of transformers' apply_chat_template: ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
// with loop controls, and tojson as json.dumps(ensure_ascii=False).
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/jinja/chat_template.h"

namespace coppice {
namespace {

struct Case {
  std::string source, expected;
};

const nlohmann::ordered_json& Context() {
  static const nlohmann::ordered_json kContext = nlohmann::ordered_json::parse(
      R"json({  "messages": [   {    "role": "system",    "content": "Be  kind.\n"   },
   {    "role": "user",    "content": "Hi 'there' \"you\" é 日本 😀"   },
   {    "role": "assistant",    "content": null,    "tool_calls": [     {      "type": "function",      "function": {       "name": "f",       "arguments": {        "a": 1,        "b": [         1.0,         2.5e+20,         null,         true        ],        "c": "x\ny"       }      }     }    ]   }  ],  "tools": [   {    "type": "function",    "function": {     "name": "get_weather",     "description": "Get <it> & 'go'",     "parameters": {      "type": "object",      "properties": {       "city": {        "type": "string",        "items": "x"       },
       "n": {        "type": "integer"       }      },
      "required": [       "city"      ]     }    }   }  ],  "add_generation_prompt": true,  "bos_token": "<s>",  "eos_token": "</s>",  "x": 5,  "y": -7,  "f": 2.5,  "s": "Hello World",  "l": [   3,   1,   2  ],  "d": {   "b": 1,   "a": 2,   "C": 3  },
  "e": [],  "n": null,  "t": true,  "u": "ÄÖü ß ñ",  "nested": {   "a": {    "b": {     "c": 1    }   }  },
  "people": [   {    "name": "Bob",    "age": 3   },
   {    "name": "alice",    "age": 5   },
   {    "name": "Cid",    "age": 1   }  ] })json");
  return kContext;
}

void ExpectAll(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    try {
      EXPECT_EQ(ChatTemplate(c.source).Render(Context()), c.expected);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(ChatTemplateFeatures, Expressions) {
  ExpectAll({
      {"{{ x + y }} {{ x - y }} {{ x * y }} {{ x / y }} {{ x // y }} {{ x % y }} {{ y // x }} {{ y % x }} {{ "
       "2 ** 10 }} {{ 2 ** -1 }} {{ -x ** 2 }} {{ 2**3**2 }}",
       "-2 12 -35 -0.7142857142857143 -1 -2 -2 3 1024 0.5 25 64"},
      {"{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ 1e-5 }} {{ 0.0001 }} {{ "
       "1.0 }} {{ -0.0 }} {{ 1e300*1e10 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1e3 }} {{ "
       "3.14e-10 }}",
       "3.0 0.5 1e+16 1000000000000000.0 123456789.125 1e-05 0.0001 1.0 -0.0 inf 1000 31 3 15 1000.0 "
       "3.14e-10"},
      {"{{ true }} {{ none }} {{ [1, 'a', \"it's\", 'q\"', none, true, 1.5, undefinedx] }} {{ {'a': 1, 'b': "
       "[1,2]} }} {{ (1,) }} {{ (1,2) }} {{ () }} {{ 1, 2 }}",
       "True None [1, 'a', \"it's\", 'q\"', None, True, 1.5, Undefined] {'a': 1, 'b': [1, 2]} (1,) (1, 2) () "
       "(1, 2)"},
      {"{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing }} {{ 'a' + 'b' * 3 }} {{ [1] + [2] }} {{ [1,2] * 2 }} {{ 3 "
       "* 'ab' }} {{ 'abc' * 0 }} {{ 'x' * -1 }}",
       "a1NoneTrue1.0 abbb [1, 2] [1, 2, 1, 2] ababab  "},
      {"{{ 1 if x > 3 else 2 }} {{ 1 if x > 30 }}| {{ x == 5.0 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 1 < 3 < "
       "2 }} {{ not x }} {{ not not x }} {{ x and 'y' }} {{ e or 'z' }} {{ x in [5] }} {{ 'ell' in s }} {{ "
       "'a' in d }} {{ 9 not in l }} {{ not 9 in l }}",
       "1 | True True True False False True y z True True True True True"},
      {"{{ s[0] }} {{ s[-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ s[::2] }} {{ l[::-1] }} {{ l[5] }} {{ l[-1] }} "
       "{{ l[:2] }} {{ l[1:] }} {{ s[10:2:-2] }} {{ l[-100:100] }} {{ u[::-1] }} {{ l[2:0:-1] }} {{ "
       "(1,2,3)[1:] }}",
       "H d el dlroW olleH HloWrd [2, 1, 3]  2 [3, 1] [1, 2] drWo [3, 1, 2] ñ ß üÖÄ [2, 1] (2, 3)"},
      {"{{ d.a }} {{ d['a'] }} {{ d.items is defined }} {{ nested.a.b.c }} {{ d.zzz }} {{ d['zzz'] is "
       "defined }} {{ l.0 }} {{ tools[0].function.parameters.properties.city['items'] }}",
       "2 2 True 1  False 3 x"},
      {"{{ tools | tojson(indent=4) }}",
       "[\n    {\n        \"type\": \"function\",\n        \"function\": {\n            \"name\": "
       "\"get_weather\",\n            \"description\": \"Get <it> & 'go'\",\n            \"parameters\": {\n "
       "               \"type\": \"object\",\n                \"properties\": {\n                    "
       "\"city\": {\n                        \"type\": \"string\",\n                        \"items\": "
       "\"x\"\n                    },\n                    \"n\": {\n                        \"type\": "
       "\"integer\"\n                    }\n                },\n                \"required\": [\n            "
       "        \"city\"\n                ]\n            }\n        }\n    }\n]"},
      {"{{ 'line\\\ncont' }} {{ \"tab\\tq\\\"\\x41\\u00e9\\101\" }} {{ 'a' 'b' \"c\" }} {{ '\\q' }} {{ "
       "'\\d+\\.' }}",
       "linecont tab\tq\"AéA abc \\q \\d+\\."},
      {"{{ messages[-1].tool_calls[0].function.arguments.items() | list }}",
       "[('a', 1), ('b', [1.0, 2.5e+20, None, True]), ('c', 'x\\ny')]"},
      {"{{ ns }}", ""},
      {"{{ s.__class__ }}", ""},
      {"{{ [1,2]|join(missing) }}", "12"},
      {"{{ loop }}", ""},
      {"{{ x is string and s is string or t }}", "True"},
      {"{{ s is string == true }}", "True"},
      {"{{ ['a', 'b'][loop_index | default(1)] }}", "b"},
      {"{{ messages[0]['content'] | replace(\"\\n\", \"\\\\n\") }}", "Be  kind.\\n"},
      {"{{ \"a\" if false }}{{ (\"a\" if false) is defined }}", "False"},
      {"{{ namespace(a=1).a }}{{ namespace({'a':2}).a }}", "12"},
      {"{{ 1.e3 }}", ""},
      {"{{ l.append }}", ""},
      {"{{ l|sort(attribute='x') }}", "[3, 1, 2]"},
      {"{{ 9223372036854775807 }} {{ -9223372036854775807 }} {{ 1.7976931348623157e308 }} {{ 5e-324 }} {{ "
       "100000000000000000000.0 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 10/2 }}",
       "9223372036854775807 -9223372036854775807 1.7976931348623157e+308 5e-324 1e+20 0.30000000000000004 "
       "0.3333333333333333 5.0"},
  });
}

TEST(ChatTemplateFeatures, WhiteSpace) {
  ExpectAll({
      {"a\n  {% if x %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"a\n  {%- if x %}\n  b\n  {%- endif -%}\nc\n\n", "a  bc\n"},
      {"  {% if x %}  y  {% endif %}  \n z", "  y    \n z"},
      {"{% if x -%}\n\n  y  \n{%- endif %}\n\n", "y"},
      {"  {# c #}\n  x\n", "  x"},
      {"  {#- c -#}\n  x\n", "x"},
      {"a {{- x -}} b\n  {{ x }}\n  {{- x }}", "a5b\n  55"},
      {"a\r\nb\rc\n\n", "a\nb\nc\n"},
      {"  {%+ if x %}z{% endif +%}\nq", "  z\nq"},
      {"{{ x }}\n{% set a = 1 %}\n{% set b = 2 %}\n{{ a }}", "5\n1"},
      {"x\n\t{% set a = 1 %}\n", "x\n"},
      {"{% raw -%}  {{ a }}  {%- endraw %}\nq", "{{ a }}q"},
      {"  {% raw %}\n q {% endraw %}\nx", "\n q x"},
      {"{% for i in l %}\n    {{ i }}\n{% endfor %}\n", "    3\n    1\n    2\n"},
      {"{% for i in l -%}\n    {{ i }}\n{%- endfor %}\n end", "312 end"},
      {"text {% if x %} y{% endif %}\n  ", "text  y  "},
      {"\n\n{% if x %}\n\na{% endif %}\n\n", "\n\n\na"},
      {"{#- a -#} \n {#- b #}\nc", "c"},
      {"{{ x -}}\n\n  {% if x %}q{% endif %}", "5q"},
      {"{{ x -}}\n  {%- if x %}\nq{% endif %}", "5q"},
      {"{%- set a %}\n  foo\n{% endset %}[{{ a }}]", "[  foo\n]"},
      {"{{ '{{' }}{{ '%}' }}{{ {'a':{'b':1}} }}", "{{%}{'a': {'b': 1}}"},
      {"{{ {'a':{}}}}", "{'a': {}}"},
      {"}} %} #} { % {x", "}} %} #} { % {x"},
      {"{{x}}{{y}}", "5-7"},
      {"{%if x%}a{%else%}b{%endif%}", "a"},
      {"{{-x-}}", "5"},
      {"{{- -1 -}}", "-1"},
      {"\xc2\xa0"
       "{% if x %}a{% endif %}",
       "a"},
      {"{#+ c +#}\nx", "\nx"},
      {"{# a -#}\n\n b", "b"},
      {"a {#- b #} c", "a c"},
      {"  {%- macro m() -%}\n q \n{%- endmacro -%}\n\n{{ m() }}", "q"},
      {"{{ x }}\n\n", "5\n"},
      {"", ""},
      {"\n", ""},
      {" ", " "},
  });
}

TEST(ChatTemplateFeatures, Statements) {
  ExpectAll({
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %}",
       "b=1, a=2, C=3"},
      {"{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
       "loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth "
       "}}{{ loop.cycle('a','b') }};{% endfor %}",
       "1032TrueFalse311a;2121FalseFalse3321b;3210FalseTrue311a;"},
      {"{% for i in e %}x{% else %}empty{% endfor %}|{% for i in l if i > 1 %}{{ loop.index }}/{{ "
       "loop.length }}:{{ i }} {% else %}none{% endfor %}|{% for i in l if i > 10 %}x{% else %}none{% endfor "
       "%}",
       "empty|1/2:3 2/2:2 |none"},
      {"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif "
       "%}{{ i }}{% endfor %}",
       "02"},
      {"{% for a, (b, c) in [[1,[2,3]],[4,[5,6]]] %}{{ a }}{{ b }}{{ c }} {% endfor %}", "123 456 "},
      {"{% for c in 'aé' %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for q in missing %}x{% "
       "endfor %}",
       "a.é.baC"},
      {"{% set a = 1 %}{% for i in l %}{{ a }}{% set a = i %}{{ a }} {% endfor %}{{ a }}", "13 11 12 1"},
      {"{% for i in l %}{{ zz }}{% set zz = i %}{% endfor %}{{ zz }}", ""},
      {"{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a "
       "}}{{ ns.b }}{{ ns.c }}",
       "7x"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set q = 1, 2 %}{{ q }}", "12(1, 2)"},
      {"{% set blk %}hello {{ x }}{% endset %}[{{ blk }}]{% set blk | upper | trim %} hi {% endset %}[{{ blk "
       "}}]",
       "[hello 5][HI]"},
      {"{% if x == 1 %}1{% elif x == 5 %}five{% else %}other{% endif %}{% if missing %}m{% elif n %}n{% else "
       "%}e{% endif %}",
       "fivee"},
      {"{% macro m(a, b=2, c=a) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m(b=1, "
       "a=3) }}{{ m() }}",
       "(1,2,1)(1,2,5)(3,1,3)(,2,)"},
      {"{% macro v(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1,2,3,z=4) }}{{ v(1) }}",
       "1(2, 3){'z': 4}1(){}"},
      {"{% macro w() %}[{{ caller('q') }}]{% endmacro %}{% call(z) w() %}body {{ z }} {{ x }}{% endcall %}",
       "[body q 5]"},
      {"{% macro fact(n) %}{% if n > 1 %}{{ n * fact(n-1)|int }}{% else %}1{% endif %}{% endmacro %}{{ "
       "fact(5) }}",
       "120"},
      {"{% macro outer() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ outer() }}", "L"},
      {"{% filter upper %}abc{{ x }}{% endfilter %}{% filter trim | upper %} abc {% endfilter %}", "ABC5ABC"},
      {"{% with a = 1, b = x %}{{ a }}{{ b }}{% endwith %}", "15"},
      {"{% raw %}{{ x }} {% if %}{% endraw %}|{# comment {{ x }} #}|", "{{ x }} {% if %}||"},
      {"{% generation %}gen{{ x }}{% endgeneration %}", "gen5"},
      {"{% if tools is defined and tools is not none and tools|length > 0 %}T{% endif %}{{ (tools | "
       "selectattr('x', 'defined')) and 'gen-true' }} {{ 'yes' if e else 'no' }} {{ '' or none }} {{ 0 or "
       "'a' }} {{ true + 1 }} {{ t == 1 }} {{ 1 in [true] }} {{ [1,2] == [1.0,2] }} {{ (1,2) == [1,2] }} {{ "
       "{'a':1} == {'a':1.0} }} {{ none == missing }} {{ missing == missing2 }} {{ 'a' == 1 }} {{ [1,2] < "
       "[1,3] }} {{ 'b' > 'a' }} {{ '日本'|length }} {{ '日本'[1] }} {{ '日本'|upper }}",
       "Tgen-true no None a 2 True True True False True False True False True True 2 本 日本"},
      {"{% for i in l %}{% set o = loop %}{% for j in l %}{{ o.index }}{{ loop.index }} {% endfor %}{% "
       "endfor %}",
       "11 12 13 21 22 23 31 32 33 "},
  });
}

TEST(ChatTemplateFeatures, Methods) {
  ExpectAll({
      {"{{ '  a b ' | trim }}|{{ '  a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ "
       "'xxaxx'.rstrip('x') }}|{{ 'xyaz'.strip('xyz') }}",
       "a b|a b|a|axx|xxa|a"},
      {"{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', "
       "1) }} {{ ' a b  c '.split(None, 1) }} {{ 'a</think>b'.split('</think>')[-1] }} {{ ' a b  c "
       "'.rsplit(None, 1) }} {{ ''.split() }} {{ ''.split(',') }}",
       "['a', 'b', 'c'] ['a', 'b'] ['a', 'b,c'] ['a,b', 'c'] ['a', 'b  c '] b [' a b', 'c'] [] ['']"},
      {"{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x','H')) }} {{ s.find('World') }} "
       "{{ s.find('zz') }} {{ s.rfind('o') }} {{ s.count('l') }} {{ s.replace('l','L') }} {{ "
       "s.replace('l','L',1) }} {{ 'abc'.replace('','-') }} {{ s.index('W') }} {{ u.find('ß') }}",
       "True True True 6 -1 7 3 HeLLo WorLd HeLlo World -a-b-c- 6 4"},
      {"{{ s.upper() }} {{ s.lower() }} {{ 'hello wORLD-foo it\\'s'.title() }} {{ 'hELLO'.capitalize() }} {{ "
       "u.upper() }} {{ u.lower() }} {{ ','.join(['a','b']) }} {{ 'a\\nb\\r\\nc'.splitlines() }} {{ "
       "'ab'.removeprefix('a') }} {{ 'ab'.removesuffix('b') }}",
       "HELLO WORLD hello world Hello World-Foo It'S Hello ÄÖÜ SS Ñ äöü ß ñ a,b ['a', 'b', 'c'] b a"},
      {"{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() "
       "}} {{ 'ab1'.islower() }} {{ ''.isdigit() }}",
       "True True True True True True False"},
      {"{{ 'a{}b{}'.format(1,'x') }} {{ '{0}{1}{0}'.format('a','b') }} {{ '{n}!'.format(n=3) }} {{ "
       "'{{}}'.format() }} {{ '{!r}'.format('q') }} {{ '%s-%d' % ('a', 3) }} {{ '%s' % 5 }} {{ '%.2f' % "
       "1.005 }} {{ '%d%%' | format(5) }} {{ '%r' % 'x' }}",
       "a1bx aba 3! {} 'q' a-3 5 1.00 5% 'x'"},
      {"{{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 9) }} {{ d.keys() }} {{ d.values() }} {{ d.items() "
       "}} {{ d.keys() | list }} {{ l.index(1) }} {{ l.count(3) }} {{ d | items | list }}",
       "2 None 9 dict_keys(['b', 'a', 'C']) dict_values([1, 2, 3]) dict_items([('b', 1), ('a', 2), ('C', "
       "3)]) ['b', 'a', 'C'] 1 1 [('b', 1), ('a', 2), ('C', 3)]"},
      {"{{ -1 | abs }} {{ (-1) | abs }} {{ x is defined and missing is not defined }} {{ (x, y)[0] }} {{ [x, "
       "y,] }} {{ {'a':1,} }} {{ s.split(' ')[0].lower() | upper }} {{ (s | upper).lower() }} {{ {'a': {'b': "
       "1}}['a']['b'] }} {{ {}.a }} {{ s|upper|lower|length }}",
       "1 1 True 5 [5, -7] {'a': 1} HELLO hello world 1  11"},
      {"{{ messages[0].content.strip() + '!' }} {{ messages[-1].tool_calls[0].function.arguments | tojson }} "
       "{{ messages[-1].content is none }} {{ messages[-1]['content'] }} {{ messages | map(attribute='role') "
       "| join(',') }}",
       "Be  kind.! {\"a\": 1, \"b\": [1.0, 2.5e+20, null, true], \"c\": \"x\\ny\"} True None "
       "system,user,assistant"},
      {"{{ 'abc'[1:].upper() }} {{ 'abc'[5:] }}| {{ 'abc'['x'] }}|", "BC | |"},
  });
}

TEST(ChatTemplateFeatures, Filters) {
  ExpectAll({
      {"{{ d | tojson }} {{ tools | tojson }} {{ messages | tojson }}",
       "{\"b\": 1, \"a\": 2, \"C\": 3} [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
       "\"description\": \"Get <it> & 'go'\", \"parameters\": {\"type\": \"object\", \"properties\": "
       "{\"city\": {\"type\": \"string\", \"items\": \"x\"}, \"n\": {\"type\": \"integer\"}}, \"required\": "
       "[\"city\"]}}}] [{\"role\": \"system\", \"content\": \"Be  kind.\\n\"}, {\"role\": \"user\", "
       "\"content\": \"Hi 'there' \\\"you\\\" é 日本 😀\"}, {\"role\": \"assistant\", \"content\": null, "
       "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, "
       "\"b\": [1.0, 2.5e+20, null, true], \"c\": \"x\\ny\"}}}]}]"},
      {"{{ [1,[],{},{'a':[]}] | tojson(indent=2) }} {{ 'é😀<>&\\u2028\\x7f\\x01\"\\\\/' | tojson }} {{ 'é😀' | "
       "tojson(ensure_ascii=true) }} {{ {'b':1,'a':2} | tojson(sort_keys=true) }} {{ [1,2] | "
       "tojson(separators=(',',':')) }} {{ {1:2, none:3, true:4, 1.5:1} | tojson }} {{ (1,2)|tojson }} {{ "
       "1.0|tojson }} {{ [1]|tojson(indent='\\t') }} {{ [1]|tojson(indent=0) }}",
       "[\n  1,\n  [],\n  {},\n  {\n    \"a\": []\n  }\n] \"é😀<>&\xe2\x80\xa8"
       "\x7f"
       "\\u0001\\\"\\\\/\" \"\\u00e9\\ud83d\\ude00\" {\"a\": 2, \"b\": 1} [1,2] {\"1\": 4, \"null\": 3, "
       "\"1.5\": 1} [1, 2] 1.0 [\n\t1\n] [\n1\n]"},
      {"{{ s | length }} {{ l | count }} {{ d | length }} {{ missing | length }} {{ u | length }} {{ l | "
       "join('-') }} {{ l | join }} {{ people | join(', ', attribute='name') }} {{ missing | default('D') }} "
       "{{ '' | default('D') }} {{ '' | default('D', true) }} {{ n | default('D') }} {{ missing | d(5) }}",
       "11 3 3 0 7 3-1-2 312 Bob, alice, Cid D  D None 5"},
      {"{{ s | upper }} {{ s | lower }} {{ 'hello wORLD-foo (bar) it\\'s' | title }} {{ 'hELLO' | capitalize "
       "}} {{ s | replace('o', '0') }} {{ s|replace('l','L',1) }} {{ l | first }} {{ l | last }} {{ e | "
       "first }} {{ s | first }} {{ 'ab' | list }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ d|list "
       "}}",
       "HELLO WORLD hello world Hello World-Foo (Bar) It's Hello Hell0 W0rld HeLlo World 3 2  H ['a', 'b'] "
       "[2, 1, 3] cba ['b', 'a', 'C']"},
      {"{{ people | map(attribute='name') | list }} {{ ['a','b'] | map('upper') | list }} {{ people | "
       "map(attribute='zz', default='?') | join(',') }} {{ [' a '] | map('trim') | list }} {{ "
       "['a','b']|map('replace','a','z')|join }}",
       "['Bob', 'alice', 'Cid'] ['A', 'B'] ?,?,? ['a'] zb"},
      {"{{ people | selectattr('age', 'gt', 2) | map(attribute='name') | list }} {{ people | "
       "selectattr('name', 'equalto', 'Bob') | list }} {{ people | rejectattr('age', '>', 2) | list }} {{ "
       "[0,1,2] | select | list }} {{ [0,1,2] | reject('odd') | list }} {{ [1,2,3] | select('in', [1,3]) | "
       "list }} {{ people|selectattr('zz','defined')|list }} {{ "
       "tools|selectattr('function.name','eq','get_weather')|list|length }} {{ "
       "people|selectattr('name')|list|length }}",
       "['Bob', 'alice'] [{'name': 'Bob', 'age': 3}] [{'name': 'Cid', 'age': 1}] [1, 2] [0, 2] [1, 3] [] 1 "
       "3"},
      {"{{ l | sort }} {{ ['b','A','c'] | sort }} {{ ['b','A','c'] | sort(case_sensitive=true) }} {{ l | "
       "sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ "
       "['a','A','b','a'] | unique | list }} {{ d | dictsort }} {{ d | dictsort(by='value') }} {{ d | "
       "dictsort(true) }} {{ d|dictsort(reverse=true) }}",
       "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] ['Cid', 'Bob', 'alice'] ['a', 'b'] [('a', 2), "
       "('b', 1), ('C', 3)] [('b', 1), ('a', 2), ('C', 3)] [('C', 3), ('a', 2), ('b', 1)] [('C', 3), ('b', "
       "1), ('a', 2)]"},
  });
}

TEST(ChatTemplateFeatures, FiltersOfNumbersAndTexts) {
  ExpectAll({
      {"{{ l | min }} {{ l | max }} {{ l | sum }} {{ people | sum(attribute='age') }} {{ "
       "people|max(attribute='age') }} {{ '5' | int }} {{ '5.7' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} "
       "{{ 3.9 | int }} {{ ' 12 ' | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 2 | float }} {{ 'ff' | "
       "int(0, 16) }} {{ none | int }} {{ true|int }}",
       "1 3 6 9 {'name': 'alice', 'age': 5} 5 5 0 7 3 12 1.5 0.0 2.0 255 0 1"},
      {"{{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | "
       "round(method='floor') }} {{ 5 | round }} {{ -5 | abs }} {{ -2.5 | abs }} {{ 2.675|round(2) }} {{ "
       "1234.5|round(-2) }} {{ 15|round(-1) }}",
       "2.6 2.0 4.0 3.0 2.0 5 5 2.5 2.67 1200.0 20"},
      {"{{ 'a\\nb\\n\\nc' | indent }}| {{ 'a\\nb' | indent(2, true) }}| {{ 'a\\n\\nb' | indent(2, "
       "blank=true) }}| {{ 'a\\nb\\n' | indent('> ') }}|",
       "a\n    b\n\n    c|   a\n  b| a\n  \n  b| a\n> b\n|"},
      {"{{ '<a href=\"x\">&\\'' | e }} {{ 'x' | safe }} {{ 5 | string }} {{ [1] | string }} {{ none|string "
       "}} {{ missing|string }}",
       "&lt;a href=&#34;x&#34;&gt;&amp;&#39; x 5 [1] None "},
      {"{{ range(3) | list }} {{ range(1,10,3) | list }} {{ range(5,0,-2) | list }} {{ range(0) | list }} {{ "
       "dict(a=1,b=2) }} {{ dict([['a',1]]) }} {{ dict({'z':1}, q=2) }} {{ range(3)|length }}",
       "[0, 1, 2] [1, 4, 7] [5, 3, 1] [] {'a': 1, 'b': 2} {'a': 1} {'z': 1, 'q': 2} 3"},
      {"{{ l['a'] }}|{{ l[none] }}|{{ d[1] }}|{{ d[[1]] }}", "|||"},
      {"{{ s.x }}|{{ x.y }}|{{ n.y }}|{{ true.x }}", "|||"},
      {"{{ d|tojson|length }} {{ d.items()|length }} {{ d|items|first }} {{ d.keys()|first }} {{ "
       "d.values()|sum }}",
       "24 3 ('b', 1) b 6"},
      {"{{ {'a':1}|dictsort|first|last }}", "1"},
      {"{{ [[1,2],[3,4]]|map('first')|list }} {{ [[1,2],[3,4]]|map(attribute=1)|list }} {{ "
       "[3,1]|map('string')|sort|join(',') }}",
       "[1, 3] [2, 4] 1,3"},
      {"{{ none|selectattr('a')|list }}{{ none|map('upper')|list }}{{ 0|reject|list }} {{ x if x is defined "
       "else y }} {{ (x if x) ~ 'z' }} {{ x if missing is defined and missing else 'alt' }}",
       "[][][] 5 5z alt"},
  });
}

TEST(ChatTemplateFeatures, Tests) {
  ExpectAll({
      {"{{ x is defined }} {{ missing is undefined }} {{ n is none }} {{ s is string }} {{ d is mapping }} "
       "{{ l is iterable }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ x is number }} {{ "
       "t is number }} {{ t is integer }} {{ x is integer }} {{ f is float }} {{ t is boolean }} {{ t is "
       "true }} {{ t is false }} {{ 1 is true }} {{ x is odd }} {{ x is even }} {{ x is divisibleby 5 }} {{ "
       "x is divisibleby(3) }} {{ x is eq 5 }} {{ x is equalto(5) }} {{ x is ne 5 }} {{ x is gt 3 }} {{ x is "
       "in [5] }} {{ x is not in [5] }} {{ n is sameas none }} {{ 'a' is lower }} {{ 'A' is upper }} {{ "
       "range is callable }} {{ 'upper' is filter }} {{ d.items() is iterable }} {{ d.items() is sequence }} "
       "{{ missing is iterable }} {{ missing is sequence }} {{ x is iterable }} {{ x is not none and x is "
       "not string }} {{ ns is mapping }} {{ (1,2) is sequence }}",
       "True True True True True True True True True True True False True True True True False False True "
       "False True False True True False True True False True True True True True True False True True False "
       "True False True"},
      {"{{ 4.0 is even }} {{ 3.0 is odd }} {{ 4.5 is even }} {{ 4.5 is odd }} {{ -3 is odd }} {{ true is odd "
       "}} {{ 6.0 is divisibleby 3 }}",
       "True True False False True True True"},
  });
}

// Jinja refuses each of these templates too.
void ExpectErrors(std::initializer_list<std::string> sources) {
  for (const std::string& source : sources) {
    SCOPED_TRACE(source);
    try {
      const std::string text = ChatTemplate(source).Render(Context());
      ADD_FAILURE() << "no error but: " << text;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("[chat template] line 1: ")) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(ChatTemplateFeatures, ErrorsOfRendering) {
  ExpectErrors({
      "{{ missing.x }}",
      "{{ missing + 'a' }}",
      "{{ missing() }}",
      "{{ d.nope() }}",
      "{{ 'a' + 1 }}",
      "{{ 1 / 0 }}",
      "{{ 1 % 0 }}",
      "{{ [1].append(2) }}",
      "{{ d.pop('a') }}",
      "{{ d.update({'a':1}) }}",
      "{{ s.__class__.__mro__ }}",
      "{{ ''.__class__.__mro__[1].__subclasses__() }}",
      "{{ missing | tojson }}",
      "{{ x | nofilter }}",
      "{{ x is notest }}",
      "{{ 1 < 'a' }}",
      "{{ raise_exception('boom') }}",
      "{{ x.y.z }}",
      "{{ 5 | length }}",
      "{{ people | selectattr('age') | length }}",
      "{{ 1 in 'abc' }}",
      "{{ {[1]: 2} }}",
      "{{ 'abc'.index('z') }}",
      "{% for a, b in [[1,2,3]] %}{% endfor %}",
      "{% for i in 5 %}{% endfor %}",
      "{% set x.y = 1 %}",
      "{% set d.y = 1 %}",
      "{% macro m(a) %}{% endmacro %}{{ m(1,2) }}",
      "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
      "{% macro m(a) %}{{ a.b.c }}{% endmacro %}{{ m() }}",
      "{{ -'a' }}",
      "{{ '%d' % 'a' }}",
      "{{ '%s %s' % 'a' }}",
      "{{ range(1000000) }}",
      "{{ 'a'.join(l) }}",
  });
}

TEST(ChatTemplateFeatures, ErrorsOfSyntax) {
  ExpectErrors({
      "{% if x %}",
      "{% endif %}{% endif %}",
      "{% unknown %}",
      "{{ x",
      "{{ 'abc }}",
      "{{ x y }}",
      "{{ }}",
      "{{ (1 }}",
      "{{ [1 }}",
      "{{ x | }}",
      "{{ x. }}",
      "{% for %}{% endfor %}",
      "{% break %}",
      "{# abc",
      "{{ 'a' is string is defined }}",
      "{{ not s is string }} {{ 'x' not in 'abc' and 1 }} {{ 2 in [1] or 3 in [3] }} {{ 1 + 2 ~ 3 + 4 "
      "}} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 7 // 2 * 2 }} {{ -x + 1 }} {{ +x }} {{ - - x }} {{ 1 - -1 "
      "}}",
      "{{ x ~ -1 }} {{ x|string ~ '%' }} {{ 5.|string }}",
      "{{ x +}}",
  });
}

}  // namespace
}  // namespace coppice
