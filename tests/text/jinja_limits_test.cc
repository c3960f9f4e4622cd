// Hostile templates and hostile values: each ends with a clear error, within its budget, and never
// with a crash. The time asserted is ten times what an idle machine takes.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <ctime>
#include <functional>
#include <random>

#include "text/chat_template.h"
#include "text/golden_files.h"
#include "text/template_runner.h"

namespace polysil {
namespace {

namespace json = boost::json;
using jinja::Dialect;

constexpr double kSecondsMax = 10;

std::string Repeat(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

double SecondsOf(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void ExpectRefused(std::string_view source, std::string_view words,
                   Dialect dialect = Dialect::kServing) {
  const std::string shown(source.substr(0, 200));
  StatusOr<jinja::Text> result = jinja::Text();
  const double seconds = SecondsOf([&] {
    result = RunTemplate(source, {{"s", "text"}, {"l", json::array{1, 2, 3}}}, dialect);
  });
  EXPECT_LT(seconds, kSecondsMax) << shown;
  ASSERT_FALSE(result.ok()) << shown << " gave " << result->size() << " bytes";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(result.status()).find(words), std::string::npos)
      << shown << ": " << Message(result.status());
}

TEST(JinjaLimits, NestingIsBoundedWhenParsing) {
  constexpr size_t kMany = 100'000;
  ExpectRefused("{{ " + Repeat("(", kMany) + "1" + Repeat(")", kMany) + " }}", "nested");
  ExpectRefused("{{ " + Repeat("[", kMany) + Repeat("]", kMany) + " }}", "nested");
  ExpectRefused("{{ " + Repeat("{1:", kMany) + "1" + Repeat("}", kMany) + " }}", "nested");
  ExpectRefused("{{ " + Repeat("not ", kMany) + "1 }}", "nested");
  ExpectRefused("{{ " + Repeat("-", kMany) + "1 }}", "nested");
  ExpectRefused("{{ " + Repeat("f(", kMany) + Repeat(")", kMany) + " }}", "nested");
  ExpectRefused("{{ " + Repeat("1 if 1 else ", kMany / 2) + "1 }}", "nested");
  ExpectRefused("{{ s" + Repeat("[s", kMany) + Repeat("]", kMany) + " }}", "nested");
  ExpectRefused("{% set " + Repeat("(", kMany) + "a" + Repeat(",)", kMany) + " = 1 %}", "nested");
  ExpectRefused(Repeat("{% if 1 %}", 40'000) + Repeat("{% endif %}", 40'000), "nested");
  ExpectRefused(Repeat("{% for i in l %}", 20'000) + Repeat("{% endfor %}", 20'000), "nested");
  ExpectRefused(Repeat("{% macro m() %}", 20'000) + Repeat("{% endmacro %}", 20'000), "nested");
}

TEST(JinjaLimits, OperatorChainsAreBounded) {
  constexpr size_t kMany = 100'000;
  ExpectRefused("{{ 1" + Repeat("+1", kMany) + " }}", "operators");
  ExpectRefused("{{ s" + Repeat("|trim", kMany) + " }}", "operators");
  ExpectRefused("{{ s" + Repeat(".x", kMany) + " }}", "operators");
  ExpectRefused("{{ s" + Repeat("[0]", kMany) + " }}", "operators");
  ExpectRefused("{{ s" + Repeat("()", kMany) + " }}", "operators");
  ExpectRefused("{{ s" + Repeat(" is defined", 1) + Repeat(" and s", kMany) + " }}", "operators");
  ExpectRefused("{{ s" + Repeat(" if s", kMany) + " }}", "operators");
  // What real templates have: some dozens, and any number side by side.
  const auto sum = RunTemplate("{{ 0" + Repeat("+1", 400) + " }}", {});
  ASSERT_TRUE(sum.ok()) << Message(sum.status());
  EXPECT_EQ(sum->bytes(), "400");
  const auto text = RunTemplate("{{ ''" + Repeat("~'x'", kMany) + " }}", {});
  ASSERT_TRUE(text.ok()) << Message(text.status());
  EXPECT_EQ(text->size(), kMany);
  const auto flat = RunTemplate(Repeat("{% if 0 %}a{% else %}b{% endif %}", 10'000), {});
  ASSERT_TRUE(flat.ok());
  EXPECT_EQ(flat->size(), 10'000u);
  const auto branches =
      RunTemplate("{% if 0 %}" + Repeat("{% elif 0 %}", 20'000) + "{% else %}x{% endif %}", {});
  ASSERT_TRUE(branches.ok());
  EXPECT_EQ(branches->bytes(), "x");
}

TEST(JinjaLimits, SourcesHaveASizeAndBrokenOnesEndQuickly) {
  ExpectRefused(std::string((size_t{1} << 20) + 1, 'x'), "bytes");
  for (const std::string_view piece : {"{{", "{%", "{#", "{% raw %}", "{{ '", "{% if ", "}}",
                                       "{{}}", "{%-", "{{ a|", "\\", "\r", "\xff"}) {
    const double seconds = SecondsOf([&] {
      const auto result = RunTemplate(Repeat(piece, 800'000 / piece.size()), {});
      EXPECT_TRUE(result.ok() || !Message(result.status()).empty());
    });
    EXPECT_LT(seconds, kSecondsMax) << piece;
  }
}

// CHT-05: templates that burn processor time.
TEST(JinjaLimits, StepsAreBounded) {
  ExpectRefused("{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
                "steps");
  ExpectRefused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
                "steps");
  ExpectRefused("{% for i in range(100001) %}{% endfor %}", "Range too big");
  ExpectRefused("{% for i in range(0, 10**18) %}{% endfor %}", "Range too big");
  ExpectRefused("{% for i in range(50000) %}{{ range(100000)|sum }}{% endfor %}", "steps");
  ExpectRefused(
      "{% for i in range(50000) %}{% set x = ('ab' * 100000).find('ba' * 5000 ~ 'c') %}"
      "{% endfor %}",
      "steps");
  ExpectRefused("{% set l = [1] %}{% for i in l %}{% set _ = l.append(1) %}{% endfor %}", "");
  ExpectRefused("{% set t = 'é' * 200000 %}{% for i in range(100000) %}{{ t[i] }}{% endfor %}",
                "steps");
  ExpectRefused(
      "{% set d = dict() %}{% for i in range(100000) %}{% set _ = d.update({i: i}) %}"
      "{% endfor %}{% for i in range(100000) %}{% set _ = d.pop(i) %}{% endfor %}",
      "steps");
}

TEST(JinjaLimits, MemoryIsBounded) {
  ExpectRefused("{{ 'x' * 10**9 }}", "bytes");
  ExpectRefused("{{ ('x' * 10**18)|length }}", "bytes");
  ExpectRefused("{{ [0] * 10**9 }}", "bytes");
  ExpectRefused("{{ (1,) * 10**30 }}", "bytes");
  ExpectRefused(
      "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "bytes");
  ExpectRefused(
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}"
      "{% endfor %}",
      "bytes");
  ExpectRefused("{{ '%1000000000d' % 1 }}", "bytes");
  ExpectRefused("{{ '%*d' % (10**12, 1) }}", "bytes");
  ExpectRefused("{{ '%.1000000000f' % 1.0 }}", "precision");
  ExpectRefused("{{ '{:1000000000}'.format(1) }}", "bytes");
  ExpectRefused("{{ '{:é>1000000000}'.format('x') }}", "bytes");
  ExpectRefused("{{ 'x'.ljust(10**10) }}", "bytes");
  ExpectRefused("{{ 'x'.center(10**10, 'é') }}", "bytes");
  ExpectRefused("{{ 'x'.zfill(10**10) }}", "bytes");
  ExpectRefused("{{ '\t'.expandtabs(10**10) }}", "bytes");
  ExpectRefused("{{ 'x'|center(10**10) }}", "bytes");
  ExpectRefused("{{ ('x\n' * 100000)|indent(100000) }}", "bytes");
  ExpectRefused("{{ ('a' * 100000).replace('a', 'b' * 100000) }}", "bytes");
  ExpectRefused("{{ ('a' * 100000)|replace('', 'b' * 100000) }}", "bytes");
  ExpectRefused("{{ ('b' * 100000).join('a' * 100000) }}", "bytes");
  ExpectRefused("{{ ('a' * 100000)|join('b' * 100000) }}", "bytes");
  ExpectRefused("{{ ('a' * 50000000)|list }}", "bytes");
  ExpectRefused("{{ ('a ' * 20000000).split() }}", "bytes");
  ExpectRefused("{{ [1]|tojson(indent=10**10) }}", "bytes");
  ExpectRefused("{{ [1]|slice(10**10)|list }}", "bytes");
  ExpectRefused("{{ [1]|batch(10**10, 0)|list }}", "bytes");
  ExpectRefused(
      "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(s='xx') %}"
      "{% for i in range(99) %}{% set ns.s = m(ns.s) %}{% endfor %}",
      "bytes");
  ExpectRefused("{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}", "");
}

TEST(JinjaLimits, NumbersAreBounded) {
  ExpectRefused("{{ 10**(10**10) }}", "too large");
  ExpectRefused("{{ 2**100000 }}", "too large");
  ExpectRefused(
      "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}"
      "{% endfor %}",
      "too large");
  ExpectRefused("{{ " + std::string(5000, '9') + " }}", "4300");
  const auto huge = RunTemplate(
      "{{ ('9' * 5000)|int }}{{ '1e999999999'|float }}"
      "{{ ('9' * 400)|float }}{{ 1e308 * 10 }}",
      {});
  ASSERT_TRUE(huge.ok()) << Message(huge.status());
  EXPECT_EQ(huge->bytes(), "0infinfinf");
}

TEST(JinjaLimits, RecursionIsBounded) {
  ExpectRefused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion");
  ExpectRefused(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
      "{{ a() }}",
      "recursion");
  ExpectRefused(
      "{% macro m() %}{% set x %}{% for i in l %}{{ m()|trim }}{% endfor %}{% endset %}"
      "{{ x }}{% endmacro %}{{ m() }}",
      "recursion");
  ExpectRefused("{% macro m(x=m()) %}{% endmacro %}{{ m() }}", "recursion");
  ExpectRefused("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "recursion");
  ExpectRefused(
      "{% macro m() %}{{ caller() }}{% call m() %}x{% endcall %}{% endmacro %}"
      "{% call m() %}y{% endcall %}",
      "recursion");
  // A schema as deep as any real one renders.
  const auto deep = RunTemplate(
      "{% macro m(n) %}{% if n > 0 %}{% for i in [1] %}({{ m(n - 1) }}){% endfor %}{% endif %}"
      "{% endmacro %}{{ m(120) }}",
      {});
  ASSERT_TRUE(deep.ok()) << Message(deep.status());
  EXPECT_EQ(deep->size(), 240u);
}

constexpr std::string_view kDeepList =
    "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}";
constexpr std::string_view kWideList =
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
    "{% endfor %}";
constexpr std::string_view kSelfList = "{% set l = [1] %}{% set _ = l.append(l) %}";

TEST(JinjaLimits, DeepAndSharedValuesAreBounded) {
  const auto freed = RunTemplate(std::string(kDeepList) + "{% set ns.l = 0 %}ok", {});
  ASSERT_TRUE(freed.ok()) << Message(freed.status());
  EXPECT_EQ(freed->bytes(), "ok");
  const auto kept = RunTemplate(std::string(kDeepList) + "ok", {});
  ASSERT_TRUE(kept.ok());
  for (const std::string_view use :
       {"{{ ns.l }}", "{{ ns.l|tojson }}", "{{ ns.l == [ns.l] }}", "{{ ns.l|string|length }}",
        "{{ ns.l < [ns.l] }}", "{{ '%s' % ns.l }}"}) {
    ExpectRefused(std::string(kDeepList) + std::string(use), "recursion");
  }
  for (const std::string_view use :
       {"{{ ns.l }}", "{{ ns.l|tojson }}", "{{ ns.l|string|length }}"}) {
    ExpectRefused(std::string(kWideList) + std::string(use), "");
  }
  for (const std::string_view use : {"{{ l }}", "{{ l|tojson }}", "{{ l == [1, l] }}"}) {
    ExpectRefused(std::string(kSelfList) + std::string(use), "recursion");
  }
  // Cycles are freed with the rendering.
  const auto cycle =
      RunTemplate(std::string(kSelfList) +
                      "{% set d = {} %}{% set _ = d.update(d=d, l=l) %}"
                      "{% for i in l %}{% macro m() %}{{ m }}{{ i }}{% endmacro %}{% endfor %}ok",
                  {}, Dialect::kServing);
  ASSERT_TRUE(cycle.ok()) << Message(cycle.status());
}

TEST(JinjaLimits, HostileValuesAreBounded) {
  json::value deep = 1;
  for (int i = 0; i < 5000; ++i) deep = json::array{std::move(deep)};
  const auto nested = RunTemplate("{{ v|tojson }}", {{"v", std::move(deep)}});
  EXPECT_FALSE(nested.ok());
  const auto parsed = RunTemplate(
      "{{ v|from_json }}", {{"v", Repeat("[", 100'000) + Repeat("]", 100'000)}}, Dialect::kServing);
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(Message(parsed.status()).find("nested too deeply"), std::string::npos);
  // A large object is searched through an index, so that lookups of all of its keys stay cheap.
  json::object many;
  for (int i = 0; i < 50'000; ++i) many["key" + std::to_string(i)] = i;
  StatusOr<jinja::Text> result = jinja::Text();
  const double seconds = SecondsOf([&] {
    result = RunTemplate("{% for k in v %}{% if v[k] is none %}x{% endif %}{% endfor %}ok",
                         {{"v", std::move(many)}});
  });
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_LT(seconds, kSecondsMax);
  // Searches take linear time on the texts that make naive ones quadratic.
  const std::string repeated = std::string(1'000'000, 'a');
  const std::string needle = std::string(500'000, 'a') + "b";
  const double search = SecondsOf([&] {
    const auto found = RunTemplate(
        "{{ n in h }}{{ h.find(n) }}{{ h.rfind(n) }}{{ h.count(n) }}{{ h.split(n)|length }}"
        "{{ h.rsplit(n)|length }}{{ h.replace(n, '')|length }}",
        {{"h", repeated}, {"n", needle}});
    ASSERT_TRUE(found.ok()) << Message(found.status());
    EXPECT_EQ(found->bytes(), "False-1-10111000000");
  });
  EXPECT_LT(search, kSecondsMax);
}

// One of the changes that break templates: a byte, a piece, a word of the language.
std::string Mutate(std::string source, std::mt19937_64& random) {
  static constexpr std::string_view kWords[] = {"{{",
                                                "}}",
                                                "{%",
                                                "%}",
                                                "{#",
                                                "#}",
                                                "-",
                                                "|",
                                                "(",
                                                ")",
                                                "[",
                                                "]",
                                                "'",
                                                "\"",
                                                "\\",
                                                ":",
                                                ",",
                                                " if ",
                                                " else ",
                                                " for x in messages ",
                                                "{% endfor %}",
                                                "{% endif %}",
                                                " not ",
                                                " in ",
                                                " is ",
                                                "loop",
                                                "messages",
                                                "range(9)",
                                                "**",
                                                "//",
                                                "~",
                                                "%",
                                                "9999999999999999999",
                                                "0.5",
                                                "none",
                                                "namespace()",
                                                "|tojson",
                                                "|join",
                                                ".items()",
                                                ".split('a')",
                                                "[::-1]",
                                                "[1:",
                                                "\n",
                                                "\xc3",
                                                "{% set x = x ~ x %}",
                                                "{% macro m() %}",
                                                "{% endmacro %}",
                                                "{{ m() }}",
                                                "{% raw %}"};
  const auto pick = [&random](size_t below) { return below == 0 ? 0 : random() % below; };
  const size_t changes = 1 + pick(3);
  for (size_t i = 0; i < changes && !source.empty(); ++i) {
    const size_t at = pick(source.size());
    const size_t length = std::min(source.size() - at, 1 + pick(30));
    switch (pick(5)) {
      case 0:
        source[at] = static_cast<char>(pick(256));
        break;
      case 1:
        source.erase(at, length);
        break;
      case 2:
        source.insert(at, source.substr(at, length));
        break;
      case 3:
        source.insert(at, source.substr(pick(source.size()), length));
        break;
      default:
        source.insert(at, kWords[pick(std::size(kWords))]);
        break;
    }
  }
  return source;
}

TEST(JinjaLimits, MutatedTemplatesNeverCrashOrHang) {
  const auto rows = ReadJsonLines(TestData("templates/cases.jsonl"));
  std::mt19937_64 random(20250314);
  const jinja::RenderLimits limits{.steps_max = 200'000, .bytes_max = size_t{8} << 20};
  size_t rendered = 0;
  size_t refused = 0;
  double slowest = 0;
  for (const auto& row : rows) {
    const std::string source =
        ReadFile(TestData("templates/") + AsString(row.at("template")) + ".jinja");
    json::object variables = row.at("kwargs").as_object();
    variables["messages"] = row.at("messages");
    if (const auto* tools = row.as_object().if_contains("tools")) variables["tools"] = *tools;
    for (int i = 0; i < 6; ++i) {
      const std::string mutated = Mutate(source, random);
      const Dialect dialect = i % 2 == 0 ? Dialect::kServing : Dialect::kReference;
      slowest = std::max(slowest, SecondsOf([&] {
                           const auto result = RunTemplate(mutated, variables, dialect, limits);
                           ++(result.ok() ? rendered : refused);
                           if (!result.ok()) {
                             EXPECT_FALSE(Message(result.status()).empty());
                           }
                         }));
    }
  }
  EXPECT_EQ(rendered + refused, rows.size() * 6);
  EXPECT_GT(rendered, 300u);
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(slowest, kSecondsMax);
}

TEST(JinjaLimits, MutatedMessagesNeverCrash) {
  const auto rows = ReadJsonLines(TestData("templates/cases.jsonl"));
  std::mt19937_64 random(7);
  size_t parsed = 0;
  for (const auto& row : rows) {
    auto created = ChatTemplate::Create(
        ReadFile(TestData("templates/") + AsString(row.at("template")) + ".jinja"), {});
    ASSERT_TRUE(created.ok());
    for (int i = 0; i < 4; ++i) {
      boost::system::error_code error;
      const std::string text = Mutate(json::serialize(row.at("messages")), random);
      const json::value messages = json::parse(text, error);
      if (error || !messages.is_array()) continue;
      ++parsed;
      ChatInput input{.messages = messages.get_array()};
      if (const auto* tools = row.as_object().if_contains("tools")) input.tools = *tools;
      const auto result = (*created)->Render(input);
      if (!result.ok()) {
        EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
      }
    }
  }
  EXPECT_GT(parsed, 200u);
}

}  // namespace
}  // namespace polysil
