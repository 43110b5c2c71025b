#include "text/template/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/failure.h"
#include "tests/source_dir.h"
#include "text/json/json_value.h"
#include "text/template/values/python_text.h"

namespace strata::text::jinja {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// The same time as for transformers: 2026-03-04 05:06:07, a Wednesday.
constexpr std::tm kNow{
    .tm_sec = 7, .tm_min = 6, .tm_hour = 5, .tm_mday = 4, .tm_mon = 2, .tm_year = 126, .tm_wday = 3, .tm_yday = 62};

Value json(std::string_view text) {
  return parse_json(text);
}
std::string rendered(std::string_view source, std::string_view variables = "{}", const Limits& limits = {}) {
  return Template(source, "t.jinja").render(json(variables), limits, kNow).text;
}

class Golden : public testing::Test {
 protected:
  Golden() {
    std::ifstream file(tests::source_dir() / "tests/golden/chat/templates.json", std::ios::binary);
    all_ = json(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  Value variables() const {
    auto pairs = all_.find("variables")->pairs();
    pairs.emplace_back(Value(std::string("add_generation_prompt")), Value(false));
    pairs.emplace_back(Value(std::string("documents")), Value());
    return Value::dict(std::move(pairs));
  }
  Value all_;
};

// The expected results are those of jinja2 with transformers' settings (tests/golden/make_chats.py).
TEST_F(Golden, EveryTemplateMatchesJinja2) {
  const Value given = variables();
  std::size_t refused = 0;
  for (const Value& one : all_.find("cases")->items()) {
    const std::string& source = one.find("template")->text();
    SCOPED_TRACE(source);
    const Value& wanted = *one.find("text");
    if (wanted.is(Kind::none)) {
      ++refused;
      EXPECT_FAILURE(Template(source, "t.jinja").render(given, {}, kNow), Exit::usage, HasSubstr("t.jinja, line "));
      continue;
    }
    const Rendered have = Template(source, "t.jinja").render(given, {}, kNow);
    EXPECT_EQ(have.text, wanted.text());
    std::vector<TextSpan> marks;
    for (const Value& mark : one.find("generated")->items())
      marks.push_back({byte_of(have.text, static_cast<std::size_t>(mark.items()[0].integer())),
                       byte_of(have.text, static_cast<std::size_t>(mark.items()[1].integer()))});
    EXPECT_EQ(have.generated, marks);
  }
  EXPECT_GT(refused, 50u);
  EXPECT_GT(all_.find("cases")->items().size(), 150u);
}

// Single pieces with filters, tests, scopes, loops, white space, operators and mistakes, as jinja2 3.1.6 renders or
// refuses them (tests/golden/make_template_pieces.py).
TEST(TemplateTest, SmallPiecesMatchJinja2) {
  std::ifstream file(tests::source_dir() / "tests/golden/chat/template_pieces.json", std::ios::binary);
  const Value all = json(std::string(std::istreambuf_iterator<char>(file), {}));
  for (const Value& one : all.find("cases")->items()) {
    const std::string& source = one.find("template")->text();
    SCOPED_TRACE(source);
    const Value& wanted = *one.find("text");
    if (wanted.is(Kind::none)) {
      EXPECT_FAILURE(Template(source, "t.jinja").render(*all.find("variables"), {}, kNow), Exit::usage,
                     HasSubstr("t.jinja, line "));
    } else {
      EXPECT_EQ(Template(source, "t.jinja").render(*all.find("variables"), {}, kNow).text, wanted.text());
    }
  }
}

TEST(TemplateTest, NamesMistakesAndTheirLines) {
  EXPECT_FAILURE(rendered("a\n\n{{ x.y }}"), Exit::usage,
                 AllOf(HasSubstr("t.jinja, line 3"), HasSubstr("'x' is undefined")));
  EXPECT_FAILURE(rendered("{% if x %}\n{{ 1 +\n}}"), Exit::usage,
                 AllOf(HasSubstr("line 3"), HasSubstr("expected an expression, found }}")));
  EXPECT_FAILURE(rendered("\n{% for x in y %}"), Exit::usage,
                 AllOf(HasSubstr("line 2"), HasSubstr("{% endfor %} is missing")));
  EXPECT_FAILURE(rendered("{% include 'x' %}"), Exit::usage, HasSubstr("{% include %} is not supported"));
  EXPECT_FAILURE(rendered("\n\n{{ raise_exception('Roles must alternate') }}"), Exit::usage,
                 AllOf(HasSubstr("line 3"), HasSubstr("the template refuses it: Roles must alternate")));
  EXPECT_FAILURE(rendered("{% macro m() %}\n{{ 'a' + 1 }}\n{% endmacro %}\n\n{{ m() }}"), Exit::usage,
                 HasSubstr("line 2"));
  EXPECT_FAILURE(rendered("{% macro m(a) %}{{ a.b }}{% endmacro %}\n{{ m() }}"), Exit::usage,
                 HasSubstr("the macro 'm' was called without 'a'"));
  EXPECT_FAILURE(rendered("{{ [1]|batch(2) }}"), Exit::usage, HasSubstr("there is no filter 'batch'"));
  EXPECT_FAILURE(rendered("{{ 4 is divisibleby 2 }}"), Exit::usage, HasSubstr("there is no test 'divisibleby'"));
  EXPECT_FAILURE(rendered("{{ cycler(1) }}"), Exit::usage, HasSubstr("'cycler' is undefined"));
  EXPECT_FAILURE(rendered("{{ x.append(1) }}", R"({"x": []})"), Exit::usage, HasSubstr("would change a list"));
  EXPECT_FAILURE(rendered("\xff"), Exit::usage, HasSubstr("not UTF-8"));
  EXPECT_FAILURE(rendered("{{ 9223372036854775807 + 1 }}"), Exit::usage, HasSubstr("2^63"));
  EXPECT_FAILURE(rendered("{{ 99999999999999999999 }}"), Exit::usage, HasSubstr("2^63"));
}

// Parts of Jinja and Python that chat templates do not use. The message says what there is instead.
TEST(TemplateTest, RefusesWhatNoChatTemplateUses) {
  for (const auto& [source, named] :
       {std::pair{"{{ 1 | abs }}", "there is no filter 'abs', only capitalize, format, "},
        {"{{ [1] | sum }}", "unique"},
        {"{{ 1 is odd }}", "there is no test 'odd', only boolean, defined, "},
        {"{{ 'a'.find('b') }}", "has no attribute 'find': a str has capitalize, endswith, "},
        {"{{ [1].index(1) }}", "no attribute 'index': a list has no methods here"},
        {"{{ {}.copy() }}", "'copy': a dict has get, items, keys, values"},
        {"{{ []|sort(attribute='a,b') }}", "sort takes one attribute"},
        {"{{ 'a b'.rsplit() }}", "rsplit needs a separator"},
        {"{{ '%r' % 1 }}", "the format %r is not supported: only %s, %d and %%"},
        {"{{ '%é' % 1 }}", "the format %é is not supported"},
        {"{{ '%5' % 1 }}", "the format %5 is not supported"},
        {"{{ '%' % 1 }}", "the format % is not supported"},
        {"{{ '%(a)s' | format(a=1) }}", "%(name)s is not supported"},
        {"{{ '{!r}'.format(1) }}", "no argument for the field {!r}"},
        {"{{ '{:5}'.format(1) }}", "the format '5' of a field is not supported"},
        {"{% with a = 1 %}{% endwith %}", "use if, for, break, continue, set, macro, "},
        {"{% call m() %}{% endcall %}", "the tag {% call %} is not supported"},
        {"{% print 1 %}", "the tag {% print %} is not supported"},
        {"{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1) }}", "at most 0 arguments"},
        {"{{ range(*[1, 2]) }}", "expected an expression, found '*'"},
        {"{{ 2 ** 3 }}", "expected an expression, found '*'"},
        {"{{ 0x10 }}", "found 'x10'"}}) {
    SCOPED_TRACE(source);
    EXPECT_FAILURE(rendered(source), Exit::usage, HasSubstr(named));
  }
}

TEST(TemplateTest, StopsEndlessTemplates) {
  const std::string loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_FAILURE(rendered(loops, "{}", {.steps = 1'000'000}), Exit::usage,
                 HasSubstr("does not end within 1000000 steps"));
  const std::string doubles =
      "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}";
  EXPECT_FAILURE(rendered(doubles), Exit::usage, HasSubstr("bytes of text and lists"));
  for (const char* large :
       {"{{ 'a' * 9223372036854775807 }}", "{{ [1] * 9999999999 }}", "{{ 'a'|indent(99999999) }}"}) {
    SCOPED_TRACE(large);
    EXPECT_FAILURE(rendered(large), Exit::usage, HasSubstr("line 1"));
  }
  EXPECT_FAILURE(rendered("{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}"), Exit::usage,
                 HasSubstr("calls itself forever"));
  const std::string nests =
      "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_FAILURE(rendered(nests), Exit::usage, HasSubstr("nested deeper than"));
}

// A list that holds the next list twice, forty levels deep, is small but stands for 2^40 leaves. Code that walks
// through it or writes it reaches a limit, here in a tenth of a second each.
TEST(TemplateTest, ValuesWithSharedPartsStayWithinTheLimits) {
  const std::string twice =
      "{% set ns = namespace(s=[1], t=[1], d={'k': 1}) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% set ns.t = [ns.t, ns.t] %}{% set ns.d = {'k': ns.d, 'l': ns.d} %}{% endfor %}";
  const std::string pair =
      "{% set ns = namespace(s=(1,), t=(1,)) %}{% for i in range(40) %}{% set ns.s = (ns.s, ns.s) %}"
      "{% set ns.t = (ns.t, ns.t) %}{% endfor %}";
  const Limits kSmall{.steps = 5'000'000, .bytes = std::uint64_t{1} << 26};  // so that the test is fast
  const std::string mib = "{% set a = 'a' * 1048576 %}";
  for (const std::string& source : {
           twice + "{{ ns.s == ns.t }}",
           twice + "{{ ns.s in [ns.t] }}",
           twice + "{{ ns.s < ns.t }}",
           twice + "{{ [ns.s, ns.t] | unique | list | length }}",
           twice + "{{ [ns.s, ns.t] | sort | length }}",
           twice + "{{ [ns.s, ns.t] | max | length }}",
           twice + "{{ '%s' % ns.d }}",
           twice + "{{ '{}'.format(ns.d) }}",
           twice + "{{ ns.s is sameas ns.t }}",
           twice + "{{ ns.s }}",
           twice + "{{ ns.s | string | length }}",
           twice + "{{ ns.d | tojson | length }}",
           twice + "{{ [ns.s] | join }}",
           twice + "{{ [1][ns.s] is defined }}",
           twice + "{{ ns.s | upper | length }}",
           twice + "{{ raise_exception(ns.s) }}",
           pair + "{{ {ns.s: 1}[ns.t] }}",
           pair + "{{ {ns.s: 1, ns.t: 2} | length }}",
           mib + "{{ ([1] * 1000000) | join(a) | length }}",
           mib + "{{ a.join(['b'] * 1000000) | length }}",
           mib + "{{ ([[1]] * 100000) | tojson(indent=a) | length }}",
           mib + "{{ ([1] * 1000000) | tojson(separators=(a, a)) | length }}",
           mib + "{{ a | replace('a', a) | length }}",
           mib + "{{ ((a * 50) | list) | length }}",
           mib + "{{ (('a,' * 30000000) | string).split(',') | length }}",
           mib + "{{ ('a ' * 30000000).split() | length }}",
           mib + "{% for i in range(100000) %}{% for j in range(100000) %}{{ a.startswith('b') }}{% endfor %}{% endfor "
                 "%}",
           mib + "{% for i in range(100000) %}{% for j in range(1000) %}{{ a == a }}{% endfor %}{% endfor %}",
       }) {
    SCOPED_TRACE(source.substr(source.find("{{") == std::string::npos ? 0 : source.find("{{")));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FAILURE(rendered(source, "{}", kSmall), Exit::usage,
                   testing::AnyOf(HasSubstr("does not end"), HasSubstr("bytes of text and lists")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  }
  // Values that are only passed on cost no more than they seem to.
  EXPECT_EQ(rendered(twice + "{{ ns.s | length }}{{ ns.s[0] == 1 }}{{ pairs is defined }}"), "2FalseFalse");
  EXPECT_EQ(rendered(pair + "{{ {ns.s: 1} | length }}"), "1");
}

// Slices must not need a list of their indices.
TEST(TemplateTest, SlicesMatchPython) {
  const std::string_view given = R"({"t": "añb😀c"})";
  EXPECT_EQ(
      rendered("{{ t[1:4] }}|{{ t[:-1] }}|{{ t[::2] }}|{{ t[::-1] }}|{{ t[3:0:-2] }}|{{ t[9:] }}|{{ t[4:1] }}", given),
      "ñb😀|añb😀|abc|c😀bña|😀ñ||");
  EXPECT_EQ(rendered("{{ t[::9223372036854775807] }}|{{ t[::-9223372036854775807] }}|{{ t[-9:2] }}|{{ t[:9] }}", given),
            "a|c|añ|añb😀c");
}

TEST(TemplateTest, RefusesDeeplyNestedTemplates) {
  const auto many = [](std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  constexpr int kMany = 100'000;
  for (const auto& [begin, end] : {std::pair{"(", ")"},
                                   {"[", "]"},
                                   {"{1:", "}"},
                                   {"not ", ""},
                                   {"-", ""},
                                   {"x(", ")"},
                                   {"1 if ", ""},
                                   {"x[", "]"}}) {
    SCOPED_TRACE(begin);
    EXPECT_FAILURE(rendered("{{ " + many(begin, kMany) + "1" + many(end, kMany) + " }}"), Exit::usage,
                   HasSubstr("levels"));
  }
  for (const char* chained : {" + 1", ".a", "[0]", "|int", " is none", " and 1", "()", " if 1 else 2"}) {
    SCOPED_TRACE(chained);
    EXPECT_FAILURE(rendered("{{ 1" + many(chained, kMany) + " }}"), Exit::usage, HasSubstr("t.jinja, line 1"));
  }
  EXPECT_FAILURE(rendered(many("{% if 1 %}", kMany) + many("{% endif %}", kMany)), Exit::usage, HasSubstr("levels"));
  EXPECT_FAILURE(rendered("{% for " + many("(", kMany) + "x" + many(")", kMany) + " in y %}{% endfor %}"), Exit::usage,
                 HasSubstr("levels"));
  // This is the depth of real templates.
  EXPECT_EQ(rendered("{{ " + many("(", 100) + "1" + many(")", 100) + many(" + 1", 200) + " }}"), "201");
}

TEST(TemplateTest, AMarkInAMacroHasNoPlace) {
  const Template made("{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}b{{ m() }}", "t.jinja");
  EXPECT_TRUE(made.has_generation());
  const Rendered out = made.render(json("{}"));
  EXPECT_EQ(out.text, "ba");
  EXPECT_TRUE(out.lost);
  EXPECT_TRUE(out.generated.empty());
  EXPECT_FALSE(Template("{% if a %}b{% endif %}", "t.jinja").has_generation());
}

TEST(TemplateTest, ThreadsShareATemplate) {
  const Template made("{% for m in messages %}{{ loop.index }}{{ m | upper }}{% endfor %}", "t.jinja");
  const Value variables = json(R"({"messages": ["a", "b"]})");
  std::vector<std::string> texts(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& text : texts)
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) text = made.render(variables).text;
      });
  }
  for (const std::string& text : texts) EXPECT_EQ(text, "1A2B");
}

}  // namespace
}  // namespace strata::text::jinja
