#!/usr/bin/env python3
"""Writes transformers' results for chat templates: texts, IDs and masks.

    tests/golden/make_chats.py [OUT]     OUT: tests/golden/chat

templates.json: pieces of templates, each with what jinja2 under transformers' settings renders (null: it refuses), and
what {% generation %} marks. ids.json: conversations.jsonl under the templates *.jinja and the tokenizers of
tests/golden/tokenizers, with apply_chat_template's ids and assistant_masks. Needs transformers and jinja2; the
templates and conversations are the repository's own.
"""
import datetime, json, os, sys

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 4, 5, 6, 7)


chat_template_utils.datetime = Now

VARIABLES = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hëllo\nworld"},
                 {"role": "assistant", "content": "Hi <b> & 'you' \"all\""}],
    "tools": [{"name": "f", "items": {"z": 1, "a": [1.5, None, True]}, "text": "日本"}],
    "n": 7, "x": 2.5, "yes": True, "no": False, "nothing": None, "text": "  Straße ÀB \n", "empty": "",
    "words": ["pear", "Apple", "fig", "apple"], "numbers": [3, 1, 2], "mixed": [1, "1", 1.0, None, True],
    "map": {"b": 2, "a": 1, "C": {"d": [1, 2]}}, "deep": {"a": {"b": {"c": "found"}}}, "emoji": "a😀é\u0301z",
    "rows": [{"k": "a", "v": 1, "on": True}, {"k": "b", "v": 2, "on": False}, {"k": "a", "v": 3}],
    "bos_token": "<s>", "eos_token": "</s>",
}

PIECES = r'''
plain
{{ n }}|{{ x }}|{{ yes }}|{{ nothing }}|{{ missing }}|{{ words }}|{{ map }}|{{ (1,) }}|{{ (1, "a") }}|{{ [] }}|{{ {} }}
{{ "a\tb\n\\ \' \" é \x41 é \101" }}|{{ 'a' "b" 'c' }}
{{ 1.5e3 }}|{{ 1e-7 }}|{{ 1e16 }}|{{ 123456789012345680.0 }}|{{ 2.0 }}
{{ 1 + 2 * 3 - 4 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}
{{ -n }}|{{ +n }}|{{ --n }}|{{ -n|string }}|{{ -x }}|{{ not n }}|{{ not not n }}
{{ 1 / 0 }}
{{ 9223372036854775807 }}
{{ "a" ~ 1 ~ nothing ~ missing ~ 2.50 }}|{{ "a" * 3 }}|{{ 2 * "ab" }}|{{ [1] * 2 }}|{{ [1] + [2] }}|{{ (1,) + (2,) }}
{{ "a" + 1 }}
{{ [1] + (2,) }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ "a" < "b" }}|{{ [1, 2] < [1, 3] }}|{{ 1 == 1.0 == true }}|{{ "1" == 1 }}|{{ (1,) == [1] }}|{{ nothing == false }}
{{ 1 < "a" }}
{{ missing == missing }}|{{ missing == nothing }}|{{ missing == "" }}|{{ missing < 1 }}
{{ 1 in numbers }}|{{ "a" in map }}|{{ "tra" in text }}|{{ 9 not in numbers }}|{{ "x" in missing }}|{{ nothing in mixed }}|{{ "" in "" }}
{{ 1 in 5 }}
{{ 1 in "a" }}
{{ yes and n }}|{{ no or "b" }}|{{ empty or nothing or 0 }}|{{ not (yes and no) }}|{{ 1 and 2 or 3 }}
{{ "y" if yes else "n" }}|{{ "y" if no else "n" if no else "z" }}|{{ "y" if no }}|{{ ("y" if no) is undefined }}|{{ 1 if yes }}
{{ words[0] }}|{{ words[-1] }}|{{ words[9] }}|{{ words[9] is defined }}|{{ words.0 }}|{{ words[1:] }}|{{ words[:-1] }}|{{ words[::-1] }}|{{ words[::2] }}|{{ words[3:0:-2] }}|{{ words[5:] }}|{{ words[-100:2] }}
{{ emoji[1] }}|{{ emoji[-1] }}|{{ emoji[::-1] }}|{{ emoji[1:3] }}|{{ emoji|length }}|{{ text[2:8] }}|{{ emoji[9] }}|{{ numbers[1:2][0] }}
{{ words[::0] }}
{{ words["a"] }}|{{ words.a is defined }}|{{ map["b"] }}|{{ map.C.d[1] }}|{{ map.zz }}|{{ map["items"] is defined }}|{{ tools[0]["items"]["z"] }}|{{ deep.a.b.c }}|{{ deep.a.x is defined }}
{{ deep.x.y }}
{{ missing.y }}
{{ nothing.y is defined }}|{{ n.y is defined }}|{{ nothing["y"] is defined }}
{{ nothing.y.z }}
{{ tools[0].items is mapping }}|{{ map.items is defined }}|{{ "x" if map.get else "y" }}
{{ messages[0].content }}|{{ messages[0]['content'] }}|{{ messages[-1]["role"] }}
{{ messages.append(1) }}
{{ map.update({}) }}
{{ map.pop("a") }}
{{ messages.append is defined }}|{{ words.sort is defined }}
{{ map.get("a") }}|{{ map.get("q") }}|{{ map.get("q", 5) }}|{{ map.keys()|list }}|{{ map.values()|list }}|{{ map.items()|list }}|{{ map.items()|length }}
{{ map.items()[0] }}
{{ map.keys() }}
{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}|{% for k in map %}{{ k }}{% endfor %}|{% for k, v in map|items %}{{ loop.index }}{{ k }}{{ loop.length }}{% endfor %}
{% for k, v in map|dictsort %}{{ k }}{% endfor %}|{{ map|dictsort(true) }}|{{ map|dictsort(reverse=true) }}|{{ {"a": 2, "b": 1}|dictsort(by="value") }}
{% for a, (b, c) in [(1, (2, 3)), [4, "xy"]] %}{{ a }}{{ b }}{{ c }} {% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}
{% for w in words %}{% if loop.previtem is defined and loop.previtem == "fig" %}{{ w }}{% endif %}{% endfor %}
{% for w in words if w != "fig" %}{{ loop.index }}/{{ loop.length }}{{ w }}{{ loop.last }}{% endfor %}|{% for w in [] %}x{% else %}none{% endfor %}|{% for w in words if no %}x{% else %}none{% endfor %}|{% for w in missing %}x{% else %}none{% endfor %}
{% for w in words %}{% if w == "fig" %}{% break %}{% endif %}{{ w }}{% endfor %}|{% for w in words %}{% if w == "fig" %}{% continue %}{% endif %}{{ w }}{% else %}e{% endfor %}|{% for a in numbers %}{% for b in numbers %}{% if b == a %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}
{% for c in emoji %}{{ c }},{% endfor %}|{% for i in range(3) %}{{ i }}{% endfor %}|{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}|{{ range(2, 5)|list }}|{{ range(0) | length }}|{% for a in (1, 2) %}{{ a }}{% endfor %}
{% for i in range(100001) %}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for i in nothing %}{% endfor %}
{% set a = 1 %}{% for i in numbers %}{{ a }}{% set a = i %}{{ a }}{% endfor %}{{ a }}|{% if yes %}{% set a = 9 %}{% endif %}{{ a }}|{% set b, c = 1, 2 %}{{ b }}{{ c }}|{% set d = 1, 2 %}{{ d }}
{% set ns = namespace(a=1, b=[]) %}{% for i in numbers %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}|{{ namespace({"q": 1}).q }}|{{ ns["a"] }}
{% set n.a = 1 %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set b %}  in {{ n }} {% set inner = 1 %}{% endset %}[{{ b }}]{{ inner is defined }}|{% set b | upper | trim %} in {{ n }} {% endset %}[{{ b }}]
{% filter upper %}a{{ words[0] }}{% endfilter %}|{% filter replace("a", "b") | capitalize %}la la{% endfilter %}
{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1)|upper }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}
{% macro r(k) %}{{ k }}{% if k > 0 %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(5) }}|{% macro o() %}{{ later }}{% endmacro %}{% set later = "seen" %}{{ o() }}
{% macro r(k) %}{{ r(k) }}{% endmacro %}{{ r(5) }}
{% for i in numbers %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}|{% macro g() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ g() }}{% endfor %}
{{ text|trim }}|{{ text|upper }}|{{ text|lower }}|{{ text|trim|capitalize }}|{{ "xxaxx"|trim("x") }}|{{ "a b"|replace(" ", "") }}|{{ "aaa"|replace("a", "b", 2) }}|{{ "abc"|replace("", "-") }}
{{ "a\nb\n\nc"|indent }}|{{ "a\nb\n\nc\n"|indent(2, true) }}|{{ "a\nb\n\nc"|indent(2, blank=true) }}|{{ "a\nb"|indent("> ", first=true) }}
{{ "%s and %d%%" | format("a", 3) }}|{{ "%s-%s" % (1, numbers) }}|{{ numbers|max }}{{ numbers|min }}|{{ words|min }}|{{ "{a}-{b}-{0}".format(3, a=1, b=numbers) }}
{{ words|join }}|{{ words|join(", ") }}|{{ rows|join("-", attribute="k") }}|{{ [1, nothing, "a"]|join(",") }}|{{ "abc"|join("-") }}|{{ ", ".join(words) }}
{{ ", ".join([1]) }}
{{ words|length }}|{{ map|length }}|{{ text|length }}|{{ missing|length }}|{{ words|first }}|{{ words|last }}|{{ []|first }}|{{ "é"|first }}
{{ n|length }}
{{ words|sort }}|{{ words|sort(case_sensitive=true) }}|{{ words|sort(reverse=true) }}|{{ rows|sort(attribute="v", reverse=true)|map(attribute="v")|list }}|{{ numbers|sort|join }}
{{ words|unique|list }}|{{ mixed|unique|list }}
{{ words|map("upper")|list }}|{{ rows|map(attribute="v")|list }}|{{ rows|map(attribute="on", default="-")|list }}|{{ words|map("replace", "p", "b")|join(" ") }}|{{ numbers|map("string")|join }}
{{ numbers|select("lt", 3)|list }}|{{ numbers|reject("gt", 1)|list }}|{{ rows|selectattr("on")|map(attribute="v")|list }}|{{ rows|rejectattr("on", "defined")|map(attribute="v")|list }}|{{ rows|selectattr("k", "equalto", "a")|list|length }}|{{ rows|selectattr("k", "in", ["b"])|map(attribute="v")|first }}|{{ nothing|selectattr("k")|list }}|{{ rows|selectattr("v", ">=", 2)|map(attribute="k")|list }}
{{ rows|selectattr("on")|length }}
{{ "y" if rows|selectattr("none") else "n" }}|{% set it = rows|map(attribute="v") %}{{ it|list }}{{ it|list }}|{{ it is iterable }}{{ it is sequence }}{{ it is mapping }}|{{ 3 in rows|map(attribute="v") }}
{{ missing|default("d") }}|{{ nothing|default("d") }}|{{ nothing|default("d", true) }}|{{ empty|d("e", boolean=true) }}|{{ missing|default }}|{{ map.q|default(map.a) }}
{{ missing.x|default("d") }}
{{ tools|tojson }}|{{ text|tojson }}|{{ map|tojson(indent=2) }}|{{ map|tojson(sort_keys=false) }}|{{ messages[2].content|tojson }}|{{ tools|tojson(ensure_ascii=true) }}|{{ emoji|tojson(ensure_ascii=true) }}|{{ {"b": 1, "a": [{}, []]}|tojson(sort_keys=true, indent=1) }}|{{ numbers|tojson(separators=(",", ":")) }}|{{ [1.0, 1e20, 0.1, true, none, "\u007f\b\f"]|tojson }}|{{ {1: 2, none: 3, true: 4}|tojson }}
{{ missing|tojson }}
{{ rows|map(attribute="v")|tojson }}
{{ "<a>"|safe }}|{{ ("<a>"|safe) + "<b>" }}|{{ ("<a>"|safe) ~ "<b>" }}|{{ "<b>" + ("<a>"|safe) }}|{{ "<a>"|safe|upper }}
{{ x|int }}|{{ "12"|int }}|{{ "x"|int(5) }}|{{ " 3.7 "|int }}|{{ n|string ~ "!" }}|{{ nothing|string }}
{{ "abc"|list }}|{{ map|list }}|{{ "A b"|lower|replace(" ", "_") }}
{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ "xyax".strip("xy") }}|{{ "a,b,,c".split(",") }}|{{ " a  b ".split() }}|{{ "a,b,c".split(",", 1) }}|{{ "a,b,c".rsplit(",", 1) }}|{{ " a b c ".split(none, 1) }}|{{ "abc".split("") is defined }}
{{ "abc".startswith("ab") }}|{{ "abc".endswith(("x", "c")) }}
{{ "abc".replace("b", "x") }}|{{ "aaa".replace("a", "b", 1) }}|{{ "hello world's".title() }}|{{ "hELLO".capitalize() }}
{{ n is number }}|{{ yes is number }}|{{ n is integer }}|{{ x is float }}|{{ yes is boolean }}|{{ yes is true }}|{{ no is false }}|{{ 1 is true }}|{{ nothing is none }}|{{ text is string }}|{{ map is mapping }}|{{ words is sequence }}|{{ text is sequence }}|{{ map is sequence }}|{{ map is iterable }}|{{ n is iterable }}|{{ missing is iterable }}|{{ missing is sequence }}
{{ n is eq 7 }}|{{ n is gt 5 and n is lt(9) }}|{{ n is ne 7 }}|{{ n is in [7] }}|{{ "a" is in map }}|{{ n is sameas n }}|{{ n is not none }}|{{ not n is none }}|{{ n is defined and missing is undefined }}
{{ n is none is false }}
{{ n is nonesuch }}
{{ n|nonesuch }}
{% if no %}{{ n|nonesuch }}{% endif %}ok
{{ raise_exception("no: " ~ n) }}
{{ raise_exception() }}
{{ nonesuch() }}
{{ strftime_now("%Y-%m-%d %H:%M:%S %d %b %B %A %j %%") }}
{{ dict(a=1, b=2) }}|{{ dict([("x", 1)]) }}|{{ dict({"a": 1}, b=2) }}|{{ {"a": 1, "a": 2} }}|{{ {1: "x"}[1] }}|{{ {(1, 2): 3}[(1, 2)] }}|{{ {**{}} if false else 1 }}
{{ {[1]: 2} }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}|{% if no %}a{% elif nothing %}b{% else %}c{% endif %}|{% if missing %}a{% endif %}|{% if words %}w{% endif %}|{% if {} %}d{% endif %}
a  {%- if yes -%}  b  {%- endif -%}  c|{{- " d " -}}  e
  {% if yes %}
  indented
    {% endif %}
after
line {% if yes %}x{% endif %}
  {{ n }}
  {%+ if yes %}kept{% endif +%}
next
{# a comment #}
 b {#- stripped -#} c
 {# indented #}
d
{% raw %}{{ n }} {% if %}{# no #}{% endraw %}|{%- raw -%}  {{ x }}  {%- endraw -%}  y
{% raw %}
a
{% endraw %}
b
a{{ "}}" }}b{{ "%}" }}{{ {"a": {"b": 1}}["a"]["b"] }}{{ {'a':{}}}}
{{ "{{" }}{{ '{%' }}{{ "{#" }}
{% set q = [1,
 2] %}{{ q }}
{{ 'it''s' }}|{{ "a" 'b' }}|{{ "multi
line" }}
{{ n
{% if n
{{ n }
{% endif %}
{% if yes %}
{% for i in words %}{{ i }}
{{ (1, 2 }}
{{ 1 2 }}
{{ a.1b }}
{% include "x" %}
{% extends "x" %}
{% import "x" as y %}
{% set 1 = 2 %}
{% set true = 2 %}
{% break %}
{% unknown %}
{{ "unclosed }}
{# unclosed
{{ [1, 2,] }}|{{ (1, 2,) }}|{{ {"a": 1,} }}|{{ dict(a=1,) }}
{{ n if }}
{{ words.__class__ }}|{{ words.__class__ is defined }}
{{ words.__class__.__mro__ }}
{{ "".join(["a"]).__len__() }}
{{ messages|map(attribute="content")|map("length")|list }}|{{ messages|selectattr("role", "equalto", "user")|map(attribute="content")|first }}
{% generation %}abc{% endgeneration %}|{% for m in messages %}{{ m.role }}:{% if m.role == "assistant" %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}
{% set q = 1 %}é{% generation %}{% set q = 2 %}ü{% endgeneration %}{{ q }}{%- generation -%}  a  {%- endgeneration -%} z
{% generation %}{% endgeneration %}{% for i in numbers %}{% generation %}{{ i }}{% endgeneration %}
{% endfor %}
{{ "a" | upper | lower ~ "B" | lower }}|{{ ("a" ~ "b") | upper }}|{{ n + 1 | int }}|{{ -1 | string }}|{{ "a" in "abc" | upper }}
{{ 1 if true else 2 | string }}|{{ [1, 2, 3] | length + 1 }}|{{ not true or true }}|{{ 3 - 2 - 1 }}|{{ 2 * 3 % 4 }}|{{ "a" ~ "b" == "ab" }}|{{ 1 + 1 ~ 2 * 2 }}
{{ messages[1:] | length }}|{{ messages[1:][0].role }}|{{ (messages | last).role }}|{{ messages[0].content[3:] }}|{{ words | first | upper }}
{%- set first = messages[0] -%}{%- set rest = messages[1:] -%}{{ first.role }}{{ rest | length }}{% set messages = rest %}{{ messages | length }}
{{ namespace(a=1) is mapping }}|{{ namespace() is defined }}|{{ (namespace(a=0)).a }}
{{ true and missing }}|{{ missing or "x" }}|{{ missing | upper }}|{{ nothing | upper }}|{{ missing ~ "a" }}|{{ missing + "a" if false else "b" }}
{{ missing + "a" }}
{{ missing[0] }}
{{ -missing }}
{{ words | join(missing) }}
{{ words | map(attribute="x") | list | length }}|{{ 5 | default(6) }}
{{ "a'b" | list }}|{{ ["a'b", 'a"b', "a'b\"c", "\n\t\\", "\u00a0\u200b", "😀"] }}|{{ {"k": "v'"} }}|{{ [none, true, 1.50, -0.0] }}
{{ 1.0 * 3 }}|{{ 10 / 5 }}|{{ 1e300 * 1e10 }}|{{ 0.1 + 0.2 }}|{{ 1e22 }}|{{ 5 // 0.3 }}
'''


def render(template, variables):
    try:
        given = dict(variables)
        messages = given.pop("messages")
        tools = given.pop("tools")
        texts, marks = chat_template_utils.render_jinja_template(
            [messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True, **given)
        return texts[0], [list(m) for m in marks[0]]
    except Exception:
        return None, []


def pieces():
    """The lines of PIECES. A line that continues (open tags, leading spaces, or a mark) keeps its line break."""
    several = [
        "  {% if yes %}\n  indented\n    {% endif %}\nafter\nline {% if yes %}x{% endif %}\n  {{ n }}\n  {%+ if yes %}kept{% endif +%}\nnext",
        "{# a comment #}\n b {#- stripped -#} c\n {# indented #}\nd\n",
        "{% raw %}\na\n{% endraw %}\nb\n\n",
        "{% set q = [1,\n 2] %}{{ q }}\r\nx\ry\n",
        "{{ \"multi\nline\" }}",
        "{% generation %}{% endgeneration %}{% for i in numbers %}{% generation %}{{ i }}{% endgeneration %}\n{% endfor %}",
        "{%- for m in messages %}\n    {%- if m.role == 'user' %}\n        {{- 'U: ' + m.content }}\n    {%- else %}\n        {{- m.role }}\n    {%- endif %}\n{%- endfor %}\n",
        "{% for m in messages %}\n{{ m.role }}\n{% endfor %}\n",
        "\t {% set a = 1 %}\t\n\n x {% set b = 2 %}\n{{ a }}\n\n",
        "",
        "\n",
        "{% if yes %}\n{% endif %}",
    ]
    lines = [line for line in PIECES.strip("\n").split("\n")]
    return several + lines


class Tokens(PreTrainedTokenizerFast):
    pass


CHATS = {  # tokenizer: templates, special tokens
    "smollm": (["chatml.jinja", "unmarked.jinja"], {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}),
    "llama2": (["inst.jinja"], {"bos_token": "<s>", "eos_token": "</s>"}),
    "mistral": (["inst.jinja"], {"bos_token": "<s>", "eos_token": "</s>"}),
    "gemma": (["turns.jinja"], {"bos_token": "<bos>", "eos_token": "<eos>"}),
    "qwen2": (["turns.jinja"], {"eos_token": "<|endoftext|>"}),
    "llama3": (["turns.jinja"], {}),
    "xlmr": (["inst.jinja"], {"bos_token": "<s>", "eos_token": "</s>"}),
    "words": (["turns.jinja"], {}),
}


def loses_its_place(tokenizer, chat):
    """Whether an answer begins or ends with white space that belongs to no token: transformers then leaves out this
    and all later answers, or takes all that follows for one."""
    texts, marks = chat_template_utils.render_jinja_template(
        [chat["messages"]], tools=chat.get("tools"), chat_template=tokenizer.chat_template,
        return_assistant_tokens_mask=True, **tokenizer.special_tokens_map)
    made = tokenizer(texts[0], add_special_tokens=False)
    return any(made.char_to_token(at) is None for begin, end in marks[0] for at in (begin, end - 1))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "chat")
    cases = []
    for template in pieces():
        text, marks = render(template, VARIABLES)
        cases.append({"template": template, "text": text, "generated": marks})
    with open(os.path.join(out, "templates.json"), "w") as f:
        f.write('{"variables": ' + json.dumps(VARIABLES) + ',\n "cases": [\n  ')
        f.write(",\n  ".join(json.dumps(case) for case in cases) + "\n]}\n")
    with open(os.path.join(out, "conversations.jsonl"), encoding="utf-8") as f:
        chats = [json.loads(line) for line in f]
    ids = []
    for name, (templates, special) in CHATS.items():
        tokenizer = Tokens(tokenizer_file=os.path.join(HERE, "tokenizers", name, "tokenizer.json"), **special)
        for template in templates:
            with open(os.path.join(HERE, "chat", template), newline="") as f:
                tokenizer.chat_template = f.read()
            for i, chat in enumerate(chats):
                made = tokenizer.apply_chat_template(chat["messages"], tools=chat.get("tools"), return_dict=True,
                                                     return_assistant_tokens_mask=True)
                mask = "".join(map(str, made["assistant_masks"]))
                ids.append({"tokenizer": name, "template": template, "special": special, "conversation": i,
                            "ids": made["input_ids"],
                            "mask": None if loses_its_place(tokenizer, chat) else mask})
    with open(os.path.join(out, "ids.json"), "w") as f:
        f.write("[\n  " + ",\n  ".join(json.dumps(one) for one in ids) + "\n]\n")


if __name__ == "__main__":
    main()
