// One feature of tokenizer.json at a time against the reference library (make_features.py).
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "text/golden_files.h"
#include "text/utf8.h"

namespace polysil {
namespace {

const boost::json::object& Bases() {
  static const boost::json::value bases =
      boost::json::parse(ReadFile(TestData("features_base.json")));
  return bases.as_object();
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The base's JSON with the patch's fields put in; those of "model" one by one.
std::string Patched(const boost::json::object& line) {
  boost::json::object file = Bases().at(AsString(line.at("base"))).as_object();
  for (const auto& field : line.at("patch").as_object()) {
    if (field.key() != "model") {
      file[field.key()] = field.value();
      continue;
    }
    for (const auto& inner : field.value().as_object()) {
      file["model"].as_object()[inner.key()] = inner.value();
    }
  }
  return Replaced(boost::json::serialize(file), "@charsmap", AsString(Bases().at("charsmap")));
}

void CheckCase(const Tokenizer& tokenizer, const boost::json::object& row, const std::string& name,
               bool compare_plain) {
  const std::string text = AsString(row.at("text"));
  const auto ids = AsIds(row.at("ids"));
  EXPECT_EQ(tokenizer.Encode(text, {.parse_control_tokens = true, .add_bos = false}), ids)
      << name << ": " << row.at("text");
  EXPECT_EQ(tokenizer.Encode(text, {.parse_control_tokens = true}),
            row.contains("ids_added") ? AsIds(row.at("ids_added")) : ids)
      << name << ": " << row.at("text");
  if (compare_plain) {
    EXPECT_EQ(tokenizer.Encode(text, {.add_bos = false}),
              row.contains("ids_plain") ? AsIds(row.at("ids_plain")) : ids)
        << name << ": " << row.at("text");
  }
  std::string decoded;
  AppendWellFormed(tokenizer.Decode(ids, false), decoded);
  EXPECT_EQ(decoded, AsString(row.at("decoded"))) << name << ": " << row.at("text");
}

TEST(TokenizerFeatures, EqualTheReference) {
  const auto lines = ReadJsonLines(TestData("features.jsonl"));
  EXPECT_EQ(lines.size(), 103u);
  for (const auto& line : lines) {
    const std::string name = AsString(line.at("name"));
    const auto tokenizer = Tokenizer::FromJson(Patched(line.as_object()), "");
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << Message(tokenizer.status());
    for (const auto& row : line.at("cases").as_array()) {
      CheckCase(**tokenizer, row.as_object(), name, line.at("base") != "unigram");
    }
  }
}

}  // namespace
}  // namespace polysil
