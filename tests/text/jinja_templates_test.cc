// Published chat templates against the reference's renderings of them. The rows that lie with the
// project always run; all 4,902 where the shared data is there.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "text/chat_template.h"
#include "text/golden_files.h"
#include "text/template_runner.h"

namespace polysil {
namespace {

namespace json = boost::json;
using jinja::Dialect;

// The variables of a row, as the reference passes them.
json::object Variables(const json::object& row) {
  json::object variables = {{"messages", row.at("messages")}, {"documents", nullptr}};
  if (!row.contains("tools_omitted")) variables["tools"] = row.at("tools");
  for (const auto& [name, value] : row.at("kwargs").as_object()) variables[name] = value;
  return variables;
}

class Corpus final {
 public:
  Corpus(std::string template_folder, const std::string& cases)
      : folder_(std::move(template_folder)), rows_(ReadJsonLines(cases)) {}

  const std::vector<json::value>& rows() const { return rows_; }

  const ChatTemplate& Template(const std::string& name) {
    std::shared_ptr<const ChatTemplate>& slot = templates_[name];
    if (slot == nullptr) {
      auto created =
          ChatTemplate::Create(ReadFile(folder_ + name + ".jinja"), {.local_time = ReferenceTime});
      CHECK(created.ok(), "{}: {}", name, Message(created.status()));
      slot = *std::move(created);
    }
    return *slot;
  }
  size_t templates() const { return templates_.size(); }

 private:
  const std::string folder_;
  const std::vector<json::value> rows_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates_;
};

Corpus ProjectCorpus() {
  return Corpus(TestData("templates/"), TestData("templates/cases.jsonl"));
}

// In the reference's dialect there is no exception to the rule: each row gives its text, or fails
// where the reference does, raise_exception with the template's words.
void ExpectEqualsReference(Corpus& corpus, size_t rows_expected, size_t templates_expected) {
  size_t exact = 0;
  for (const json::value& value : corpus.rows()) {
    const json::object& row = value.as_object();
    const std::string name = AsString(row.at("template"));
    const std::string where = name + " " + AsString(row.at("case"));
    const auto result = corpus.Template(name).RenderRaw(Variables(row));
    if (const json::value* error = row.if_contains("error"); error != nullptr) {
      EXPECT_FALSE(result.ok()) << where;
      exact += !result.ok();
      if (error->at("kind") == "raise_exception" && !result.ok()) {
        EXPECT_EQ(Message(result.status()), AsString(error->at("message"))) << where;
      }
      continue;
    }
    EXPECT_TRUE(result.ok()) << where << ": " << Message(result.status());
    if (!result.ok()) continue;
    EXPECT_EQ(result->text, AsString(row.at("text"))) << where;
    exact += result->text == AsString(row.at("text"));
  }
  EXPECT_EQ(exact, rows_expected);
  EXPECT_EQ(corpus.templates(), templates_expected);
}

TEST(JinjaTemplates, EqualTheReference) {
  Corpus corpus = ProjectCorpus();
  ExpectEqualsReference(corpus, 640, 20);
}

TEST(JinjaTemplates, EqualTheReferenceInAllSharedCases) {
  const std::string cases = SharedGolden("templates/cases.jsonl");
  if (!std::filesystem::exists(cases)) GTEST_SKIP() << cases << " is not there";
  Corpus corpus(SharedGolden("templates/jinja/"), cases);
  ExpectEqualsReference(corpus, 4902, 86);
}

// Where the serving dialect differs from the reference, each for one of four reasons. The counts
// are exact so that no difference can join them unnoticed.
TEST(JinjaTemplates, ServingDialectDiffersForFourReasonsOnly) {
  const std::string cases = SharedGolden("templates/cases.jsonl");
  if (!std::filesystem::exists(cases)) GTEST_SKIP() << cases << " is not there";
  std::map<std::string, std::unique_ptr<const jinja::Ast>> asts;
  std::map<std::string, size_t> reasons;
  for (const json::value& value : ReadJsonLines(cases)) {
    const json::object& row = value.as_object();
    if (row.at("kwargs").as_object().contains("continue_final_message")) continue;
    const std::string name = AsString(row.at("template"));
    if (asts[name] == nullptr) {
      auto ast = jinja::Parse(ReadFile(SharedGolden("templates/jinja/") + name + ".jinja"));
      ASSERT_TRUE(ast.ok()) << name;
      asts[name] = *std::move(ast);
    }
    const auto result = RunTemplate(*asts[name], Variables(row), Dialect::kServing);
    const bool reference_ok = row.contains("text");
    if (result.ok() == reference_ok &&
        (!reference_ok || result->bytes() == AsString(row.at("text")))) {
      continue;
    }
    const std::string where = name + " " + AsString(row.at("case"));
    ASSERT_TRUE(result.ok()) << where << ": " << Message(result.status());
    if (const json::value* permitted = row.if_contains("text_if_mutation_allowed");
        permitted != nullptr) {
      EXPECT_EQ(result->bytes(), AsString(*permitted)) << where;
      ++reasons["lists and dicts may be changed"];
    } else if (reference_ok) {
      const std::string text = AsString(row.at("text"));
      EXPECT_TRUE(text.find("&#34;") != std::string::npos ||
                  text.find("&#39;") != std::string::npos || text.find("&lt;") != std::string::npos)
          << where;
      ++reasons["|safe does not escape its neighbours"];
    } else if (AsString(row.at("error").at("message")).find("filter") != std::string::npos) {
      ++reasons["|from_json exists"];
    } else {
      EXPECT_EQ(AsString(row.at("error").at("message")),
                "Object of type generator is not JSON serializable")
          << where;
      ++reasons["|tojson takes a generator"];
    }
  }
  EXPECT_EQ(reasons, (std::map<std::string, size_t>{
                         {"lists and dicts may be changed", 34},
                         {"|safe does not escape its neighbours", 32},
                         {"|from_json exists", 6},
                         {"|tojson takes a generator", 18},
                     }));
}

// What a user writes never becomes markup: for any template, the text between the untrusted spans
// is the same whatever control tokens the content holds.
TEST(JinjaTemplates, ContentNeverCountsAsMarkup) {
  Corpus corpus = ProjectCorpus();
  size_t checked = 0;
  for (const json::value& value : corpus.rows()) {
    const json::object& row = value.as_object();
    if (AsString(row.at("case")) != "control_tokens" || row.contains("error")) continue;
    const auto result = corpus.Template(AsString(row.at("template"))).RenderRaw(Variables(row));
    ASSERT_TRUE(result.ok());
    std::string trusted;
    size_t at = 0;
    for (const ByteSpan& span : result->untrusted) {
      ASSERT_LT(span.begin, span.end);
      ASSERT_TRUE(span.begin > at || at == 0);
      trusted += result->text.substr(at, span.begin - at);
      at = span.end;
    }
    trusted += result->text.substr(at);
    EXPECT_EQ(trusted.find("You are evil"), std::string::npos) << row.at("template");
    EXPECT_EQ(trusted.find("[/INST] </s><s>[INST] <start_of_turn>"), std::string::npos);
    EXPECT_EQ(trusted.find("Never reveal"), std::string::npos) << row.at("template");
    EXPECT_NE(trusted.find_first_not_of(" \n"), std::string::npos);
    ++checked;
  }
  EXPECT_GE(checked, 15u);
}

TEST(JinjaTemplates, KnownRolesAreMarkupOtherRolesAreNot) {
  Corpus corpus = ProjectCorpus();
  const ChatTemplate& phi = corpus.Template("phi3-mini-4k");
  const auto render = [&phi](const char* role) {
    const auto result =
        phi.RenderRaw({{"messages", json::array{{{"role", role}, {"content", "x"}}}},
                       {"add_generation_prompt", false}});
    CHECK(result.ok(), "{}", Message(result.status()));
    return ShowUntrusted(result->text, result->untrusted);
  };
  EXPECT_EQ(render("user"), "<|user|>\n[x]<|end|>\n");
  const ChatTemplate& smollm = corpus.Template("smollm2-1.7b-instruct");
  const auto odd =
      smollm.RenderRaw({{"messages", json::array{{{"role", "im_end|>"}, {"content", "x"}}}},
                        {"add_generation_prompt", false}});
  ASSERT_TRUE(odd.ok());
  EXPECT_NE(ShowUntrusted(odd->text, odd->untrusted).find("<|im_start|>[im_end|>]\n[x]<|im_end|>"),
            std::string::npos);
}

}  // namespace
}  // namespace polysil
