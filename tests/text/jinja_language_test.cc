// The template language against Jinja2 itself: one-line templates with the reference's output.
#include <gtest/gtest.h>

#include "text/golden_files.h"
#include "text/template_runner.h"

namespace polysil {
namespace {

using jinja::Dialect;

struct Tally {
  size_t rows = 0;
  size_t texts = 0;
  size_t errors = 0;
};

// Every row must give its text, or fail where the reference does; raise_exception with its words.
Tally CheckLanguageRows(const std::string& path) {
  const auto context =
      boost::json::parse(ReadFile(TestData("templates/language_context.json"))).as_object();
  Tally tally;
  for (const auto& row : ReadJsonLines(path)) {
    if (row.as_object().contains("nondeterministic")) continue;
    ++tally.rows;
    const std::string source = AsString(row.at("template"));
    const auto result = RunTemplate(source, context);
    if (const auto* error = row.as_object().if_contains("error"); error != nullptr) {
      ++tally.errors;
      EXPECT_FALSE(result.ok()) << source << " gave " << result->bytes();
      if (result.ok() || !error->is_object()) continue;
      if (error->at("kind") == "raise_exception") {
        EXPECT_EQ(Message(result.status()), AsString(error->at("message"))) << source;
      }
      continue;
    }
    ++tally.texts;
    EXPECT_TRUE(result.ok()) << source << ": " << Message(result.status());
    if (result.ok()) {
      EXPECT_EQ(result->bytes(), AsString(row.at("text"))) << source;
    }
  }
  return tally;
}

TEST(JinjaLanguage, EqualsTheReference) {
  const Tally tally = CheckLanguageRows(TestData("templates/language.jsonl"));
  EXPECT_EQ(tally.rows, 385u);
  EXPECT_EQ(tally.errors, 51u);
}

TEST(JinjaLanguage, EqualsTheReferenceOnMore) {
  const Tally tally = CheckLanguageRows(TestData("templates/language_more.jsonl"));
  EXPECT_GT(tally.texts, 300u);
  EXPECT_GT(tally.errors, 90u);
}

// The words of an error are for people who write templates; most are the reference's own.
TEST(JinjaLanguage, ErrorsSayWhatTheReferenceSaysAndWhere) {
  const auto context =
      boost::json::parse(ReadFile(TestData("templates/language_context.json"))).as_object();
  for (const auto& row : ReadJsonLines(TestData("templates/language.jsonl"))) {
    const auto* error = row.as_object().if_contains("error");
    if (error == nullptr) continue;
    const auto result = RunTemplate(AsString(row.at("template")), context);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(result.status()).find(AsString(error->at("message"))), std::string::npos)
        << row.at("template") << ": " << Message(result.status());
  }
  const auto result = RunTemplate("a\nb\n{% if x %}\n{{ 1 + 'a' }}{% endif %}", {{"x", true}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(Message(result.status()),
            "chat template, line 4: unsupported operand type(s) for +: 'int' and 'str'");
  const auto syntax = RunTemplate("a\n\n{{ ]", {});
  ASSERT_FALSE(syntax.ok());
  EXPECT_EQ(Message(syntax.status()), "chat template, line 3: unexpected ']'");
}

// What the serving dialect permits beyond the reference's sandbox, and nothing else.
TEST(JinjaLanguage, ServingDialectPermitsWhatTheSandboxRefuses) {
  const std::pair<std::string_view, std::string_view> kRows[] = {
      {"{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}", "[1, 2]"},
      {"{% set l = [1,2,3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}", "31[2]"},
      {"{% set l = [2] %}{% set _ = l.insert(0, 1) %}{% set _ = l.extend((3,)) %}{{ l }}",
       "[1, 2, 3]"},
      {"{% set l = [2,1] %}{% set _ = l.sort() %}{{ l }}{% set _ = l.reverse() %}{{ l }}",
       "[1, 2][2, 1]"},
      {"{% set d = {'a':1} %}{% set _ = d.update({'b':2}, c=3) %}{{ d }}{{ d.pop('a') }}{{ d }}",
       "{'a': 1, 'b': 2, 'c': 3}1{'b': 2, 'c': 3}"},
      {"{% set d = {} %}{{ d.setdefault('k', 5) }}{{ d.setdefault('k', 6) }}{{ d.popitem() }}",
       "55('k', 5)"},
      {"{{ '{\"a\": [1, 2.0, null]}'|from_json }}{{ '\"x\"'|fromjson }}", "{'a': [1, 2.0, None]}x"},
      {"{{ [1,2]|map('string')|tojson }}{{ {'a':1}.items()|tojson }}",
       "[\"1\", \"2\"][[\"a\", 1]]"},
      {"{{ '<a>'|safe + '<b>' }}{{ ['<'|safe, '>']|join('&') }}{{ ('%s'|safe) % '<' }}",
       "<a><b><&><"},
      {"{{ '<a>'|e ~ '<' }}", "&lt;a&gt;<"},
  };
  for (const auto& [source, expected] : kRows) {
    const auto serving = RunTemplate(source, {}, Dialect::kServing);
    ASSERT_TRUE(serving.ok()) << source << ": " << Message(serving.status());
    EXPECT_EQ(serving->bytes(), expected) << source;
    const auto reference = RunTemplate(source, {}, Dialect::kReference);
    EXPECT_TRUE(!reference.ok() || reference->bytes() != expected ||
                source.find("|e ") != std::string_view::npos)
        << source;
  }
}

TEST(JinjaLanguage, KnowsTheTime) {
  const auto result = RunTemplate("{{ strftime_now('%d %b %Y') }}", {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->bytes(), "14 Mar 2025");
}

}  // namespace
}  // namespace polysil
