#!/usr/bin/env python3
"""Makes chat/template_pieces.json: what jinja2 3.1.6 under transformers' settings renders of small templates, or null if
it refuses: filters, tests, scopes, loops, white space, operators, errors.

    pip install jinja2==3.1.6
    tests/golden/make_template_pieces.py
"""
import json, os
import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {"a": [3, 1, 2], "t": "Hello <b> World", "d": {"y": 1, "x": [1, 2]}, "n": None, "f": 2.5, "e": [],
             "p": [{"n": "b", "k": 1}, {"n": "A", "k": 2}, {"n": "b", "k": 3}], "u": "straße É 日本", "b": True}
PIECES = r"""
{{ a|sort }}|{{ a|sort(reverse=true) }}|{{ a|first }}{{ a|last }}|{{ a|length }}
{{ p|map(attribute='n')|join('-') }}|{{ p|selectattr('k', 'gt', 1)|map(attribute='k')|list }}|{{ p|rejectattr('n', 'equalto', 'b')|list }}
{{ p|sort(attribute='n')|map(attribute='k')|list }}|{{ p|unique(attribute='n')|map(attribute='n')|list }}
{{ a|map('string')|list }}|{{ a|select('gt', 1)|list }}|{{ a|reject('gt', 1)|list }}
{{ t|upper }}|{{ t|lower }}|{{ t|capitalize }}|{{ t|replace('l', 'L', 2) }}|{{ t|trim('Hd') }}|{{ t|length }}
{{ (t|safe) + t }}|{{ t|indent(2, true) }}
{{ u|upper }}|{{ u|lower }}|{{ u|length }}|{{ u[0:3] }}|{{ u[::-1] }}|{{ u[-1] }}|{{ u|list|length }}
{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ u|tojson }}|{{ d|dictsort }}|{{ d|dictsort(by='value')|length }}
{{ d|items|list }}|{{ d.items()|list }}|{{ d.keys()|list }}|{{ d.get('z', 4) }}|{{ d['y'] }}{{ d.y }}|{{ d.z is defined }}
{{ n|default('x') }}|{{ n|default('x', true) }}|{{ zz|default('y') }}|{{ zz|d('q') }}|{{ ''|default('e') }}|{{ ''|default('e', true) }}
{{ '3'|int + 1 }}|{{ 'x'|int(7) }}|{{ f|int }}
{{ '%s-%d'|format('a', 3) }}|{{ '%s' % t }}|{{ a|min }}{{ a|max }}|{{ [1, 2]|join }}|{{ [1, n, 'x']|join(', ') }}
{{ [1, 1, 2]|unique|list }}|{{ 'abc'|list }}|{{ 'b a'.split()|sort|join }}
{{ a|xyz }}
{{ n|length }}
{{ 5|join }}
{{ [1, 'a']|sort }}
{{ e|first }}|{{ e|length }}|{{ e|join }}|{{ e|max }}
{{ n is none }}{{ t is string }}{{ 1 is number }}{{ 1 is integer }}{{ f is float }}{{ b is boolean }}{{ b is true }}
{{ d is mapping }}{{ a is iterable }}{{ a is sequence }}{{ zz is undefined }}{{ 1 is sameas 1 }}{{ 3 in a }}{{ 3 is in a }}{{ 'x' not in d }}
{{ 1 is eq 1 }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 2 is ne 2 }}{{ t is not none }}
{{ 1 is xyz }}
{% set x = 1 %}{% if b %}{% set x = 2 %}{% endif %}{{ x }}{% for i in a %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1, y=2) %}{% for i in a %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}
{% set ns = namespace() %}{{ ns.q is defined }}{% set ns.q = 1 %}{{ ns.q }}
{% set q %}a{{ t }}b{% endset %}{{ q }}|{% set q | upper %}x{{ u }}{% endset %}{{ q }}
{% set x, y = 1, [2] %}{{ x }}{{ y }}|{% set (x, y) = (3, 4) %}{{ x + y }}
{% set x, y = [1] %}{{ x }}
{% macro m(x, y=2, z=x) %}[{{ x }}{{ y }}{{ z }}]{% endmacro %}{{ m(1) }}{{ m(1, 3, 4) }}{{ m(x=9, y=8) }}
{% macro m(x) %}{{ x }}{{ t }}{{ i is defined }}{% endmacro %}{% for i in [1] %}{{ m(i) }}{% endfor %}
{% macro r(k) %}{{ k }}{% if k > 0 %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(4) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(x=1, x2=2) }}
{% filter upper %}a{{ t }}{% for i in a %}{{ i }}b{% endfor %}{% endfilter %}
{% for i in a %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}
{% for i in a %}{{ loop.previtem|default('-') }}<{{ i }}>{{ loop.nextitem|default('-') }};{% endfor %}
{% for i in a if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }};{% else %}none{% endfor %}|{% for i in a if i > 9 %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x, y in [[1, 2], [3, 4]] %}{{ x + y }},{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}|{{ range(2, 9, 3)|list }}{{ range(3, 0, -1)|list }}
{% for i in [1, 2] %}{% set o = loop %}{% for j in [1, 2] %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for i in a %}{{ i }}{% endfor %}{{ i is defined }}{{ loop is defined }}
{% for x, y in [1, 2] %}{{ x }}{% endfor %}
{% for i in 5 %}{{ i }}{% endfor %}
{% for i in n %}{{ i }}{% endfor %}
{% for c in 'aé' %}[{{ c }}]{% endfor %}{% for i in zz %}x{% else %}empty{% endfor %}
{% for i in a %}{% endfor %}{{ loop.index }}
{% break %}
{%- if b -%}   x   {%- endif -%}   y
  {% if b %}  x  {% endif %}  y
  {%+ if b %}x{% endif +%}
z {%- set x = 1 +%}
{# comment #}a {#- c -#} b{# multi
line #}
q
{% if b %}
 {{ t }}
{% endif %}
end
x {{- ' y ' -}} z |  {{ 1 }}
 |{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%}  {{ y }}  {%- endraw -%}  |
{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 6 / 2 }}{{ 1 + 2 * 3 - 4 }}
{{ 'a' ~ 1 ~ n ~ b }}{{ 'ab' * 2 }}{{ [1] + [2] }}{{ [0] * 3 }}{{ (1,) + (2,) }}{{ 'a' + 'b' }}{{ 1 ~ 2 }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ true == 1 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ n == none }}{{ not b }}{{ 1 and 0 }}{{ 0 or 'x' }}{{ n and zz.y }}
{{ 'yes' if b else 'no' }}{{ 'yes' if not b }}|{{ 'a' if n else 'b' if b else 'c' }}{{ (1 if b) + 1 }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ 1 < 'a' }}
{{ zz.y }}
{{ zz() }}
{{ n.x }}|{{ d.nope }}|{{ d['nope'] }}|{{ a[9] }}|{{ t.nope }}
{{ n.x.y }}
{{ a[9].z }}
{{ t.__class__ }}
{{ a[0] }}{{ a[-1] }}{{ a[1:] }}{{ a[:-1] }}{{ a[::2] }}{{ a[5:] }}{{ d['x'][0] }}{{ d.x.1 }}{{ t[1] }}{{ t[6:9] }}
{{ t.split(' ') }}{{ t.startswith('He') }}{{ t.endswith(('x', 'd')) }}{{ t.strip('Hd') }}{{ ' a '.lstrip() }}{{ 'a,b'.rsplit(',', 1) }}
{{ 'x'.join(['a', 'b']) }}
{{ '{} {x} {{}}'.format(1, x=2) }}{{ '{1:d}{0:s}{1}'.format('a', 2) }}
{{ '{} {}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ '%s %s' % 1 }}
{{ '%s' % (1, 2) }}
{{ a.append(4) }}
{{ d.update({}) }}
{{ 1.0 }}{{ 1e20 }}{{ 1.5e-7 }}{{ 0.1 + 0.2 }}{{ 100000000000000000.0 }}{{ 1e16 }}
{{ "q'q" }}{{ ["q'q", 'a"b', 'x\n'] }}{{ {'a': none, 1: true} }}{{ (1, 2) }}{{ (1,) }}{{ () }}{{ [] }}{{ {} }}{{ true }}{{ None }}
{{ 'a' 'b' }}{{ "\x41\u00e9\n|" }}{{ '\\' }}
{{ dict(a=1, b=2) }}
{{ raise_exception('no') }}
{% if b %}{{ t }}
{% for x in %}{% endfor %}
{{ a| }}
{{ (1 }}
{% endif %}
{% else %}
{% set 1 = 2 %}
{% set loop = 1 %}{{ loop }}
{% unknown %}
{{ 'x }}
{# open
{% raw %}
{% if b %}a{% elif n %}b{% else %}c{% endif %}{% if n %}a{% elif b %}b{% endif %}{% if n %}x{% elif e %}y{% else %}z{% endif %}
{% generation %}{{ t }}{% endgeneration %}|{% if e or (d and 'y' in d and d.y == 1) %}ok{% endif %}|{{ d.x | map('string') | map('upper') | join('+') }}
{{ ['1', 'x'] | map('int', default=5) | list }}{{ p | map(attribute='zz', default='-') | list }}{{ p|map('tojson')|join }}
""".strip("\n").split("\n")
BLOCKS = ["{% if b %}\n  x\n{% endif %}\n  y\n", "  {% for i in a %}\n  {{ i }}\n  {% endfor %}\nz", "a\n{#- c #}\n b\n", "x\n{% set q = 1 %}\n\ny",
          "{{ 'a' }}\n\n{{ 'b' }}\n", "a\r\n{% if b %}\r\nb{% endif %}\r\n", "  {{ 1 }}\n  {%- if b %}\n q\n  {%- endif %}\n", "\t{%+ if b %}\n x{%+ endif %}\n",
          "{% raw %}\n  {{ x }}\n{% endraw %}\nq", "{% filter indent(2) %}\na\nb\n{% endfilter %}", "{%- macro m() -%}\n x \n{%- endmacro -%}\n[{{ m() }}]",
          "{% set q %}\n a\n{% endset %}\n<{{ q }}>", "{{ t\n  | upper\n}}\n{% if b\n  and not n %}\ny{% endif %}"]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def rendered(source):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = refuse
    try:
        return env.from_string(source).render(**VARIABLES)
    except Exception:
        return None


here = os.path.dirname(os.path.abspath(__file__))
cases = [dict(template=piece, text=rendered(piece)) for piece in PIECES + BLOCKS]
with open(os.path.join(here, "chat", "template_pieces.json"), "w", encoding="utf-8") as f:
    f.write('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ', "cases": [\n' +
            ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]}\n")
print(jinja2.__version__, len(cases), "pieces,", sum(case["text"] is None for case in cases), "refused")
