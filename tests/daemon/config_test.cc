#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace polysil {
namespace {

using testing::HasSubstr;

std::string YamlError(std::string_view yaml) {
  v1::Config config;
  const Status status = MergeYaml(yaml, "serve.yaml", config);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << yaml;
  return Message(status);
}

std::string SettingError(std::string_view setting) {
  v1::Config config;
  Status status = MergeSetting(setting, config);
  if (status.ok()) status = Complete(config).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << setting;
  return Message(status);
}

TEST(Config, ReadsEveryKind) {
  v1::Config config;
  ASSERT_TRUE(MergeYaml("# a comment\n"
                        "model: {name: tiny, context_tokens: 512}\n"
                        "kv:\n  blocks: 100\n  prefix_cache: false\n"
                        "server:\n  drain_seconds: 2.5\n  http: \"127.0.0.1:0\"\n",
                        "serve.yaml", config)
                  .ok());
  EXPECT_EQ(config.model().name(), "tiny");
  EXPECT_EQ(config.model().context_tokens(), 512);
  EXPECT_EQ(config.kv().blocks(), 100);
  EXPECT_FALSE(config.kv().prefix_cache());
  EXPECT_EQ(config.server().drain_seconds(), 2.5);
  EXPECT_EQ(config.server().http(), "127.0.0.1:0");
}

TEST(Config, EmptyTextsChangeNothing) {
  v1::Config config;
  EXPECT_TRUE(MergeYaml("", "e", config).ok());
  EXPECT_TRUE(MergeYaml("# only a comment\n", "e", config).ok());
  EXPECT_TRUE(MergeYaml("kv:\n", "e", config).ok());
}

TEST(Config, ErrorsNameTheLineAndTheKey) {
  EXPECT_THAT(YamlError("kv:\n  block_tokens: 16\n  blok: 3\n"),
              HasSubstr("serve.yaml:3: unknown key kv.blok; known here: blocks"));
  EXPECT_THAT(YamlError("cache: 1\n"), HasSubstr("serve.yaml:1: unknown key cache"));
  EXPECT_THAT(YamlError("kv:\n  blocks: many\n"),
              HasSubstr("serve.yaml:2: kv.blocks must be a whole number, not 'many'"));
  EXPECT_THAT(YamlError("kv:\n  blocks: 1.5\n"), HasSubstr("whole number"));
  EXPECT_THAT(YamlError("kv:\n  blocks: \"16\"\n"), HasSubstr("whole number"));
  EXPECT_THAT(YamlError("kv:\n  blocks: 99999999999\n"), HasSubstr("whole number"));
  EXPECT_THAT(YamlError("kv:\n  blocks: [1]\n"), HasSubstr("a list or map"));
  EXPECT_THAT(YamlError("kv:\n  prefix_cache: 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(YamlError("kv: 7\n"), HasSubstr("kv must be a map"));
  EXPECT_THAT(YamlError("- 1\n"), HasSubstr("the configuration must be a map"));
  EXPECT_THAT(YamlError("kv:\n  blocks: 1\n  blocks: 2\n"),
              HasSubstr("serve.yaml:3: key kv.blocks is given twice"));
  EXPECT_THAT(YamlError("kv: {blocks: 1\n"), HasSubstr("serve.yaml:"));
  EXPECT_THAT(YamlError("server:\n  drain_seconds: .nan\n"), HasSubstr("a number"));
  EXPECT_THAT(YamlError("a: 1\n---\nb: 2\n"), HasSubstr("2 YAML documents"));
}

TEST(Config, SettingsWinOverFilesAndAreChecked) {
  v1::Config config;
  ASSERT_TRUE(MergeYaml("kv: {blocks: 100}\n", "e", config).ok());
  ASSERT_TRUE(MergeSetting("kv.blocks=200", config).ok());
  ASSERT_TRUE(MergeSetting("model.name=a=b", config).ok());
  EXPECT_EQ(config.kv().blocks(), 200);
  EXPECT_EQ(config.model().name(), "a=b");
  EXPECT_THAT(SettingError("kv.blocks"), HasSubstr("write key=value"));
  EXPECT_THAT(SettingError("blocks=3"), HasSubstr("sections: model, kv"));
  EXPECT_THAT(SettingError("kv.blocks=x"), HasSubstr("--set kv.blocks=x: kv.blocks must be"));
  EXPECT_THAT(SettingError("kv.blocks={a: 1}"), HasSubstr("a list or map"));
  EXPECT_THAT(SettingError("kv.blocks="), HasSubstr("a whole number"));
}

TEST(Config, RangesAreSentences) {
  EXPECT_EQ(SettingError("kv.block_tokens=17"),
            "kv.block_tokens is 17; use one of: 8, 16, 32, 64, 128");
  EXPECT_THAT(SettingError("kv.host_blocks=-1"), HasSubstr("kv.host_blocks"));
  v1::Config tier;
  ASSERT_TRUE(MergeYaml("kv: {host_blocks: 5, prefix_cache: false}\n", "e", tier).ok());
  EXPECT_THAT(Message(Complete(tier).status()), HasSubstr("needs kv.prefix_cache"));
  EXPECT_THAT(SettingError("kv.blocks=0"), HasSubstr("kv.blocks is 0; it must be from 2"));
  EXPECT_THAT(SettingError("kv.dtype=f8"), HasSubstr("use one of: f16, f32, int8"));
  EXPECT_THAT(SettingError("scheduler.sequences_max=300"), HasSubstr("more than"));
  EXPECT_THAT(SettingError("scheduler.itl_target_ms=-1"), HasSubstr("it must be from 0"));
  EXPECT_THAT(SettingError("scheduler.queue_tokens_max=0"), HasSubstr("it must be from 1"));
  EXPECT_THAT(SettingError("scheduler.output_token_weight=-1"), HasSubstr("is -1"));
  EXPECT_THAT(SettingError("server.tenants=anyone"), HasSubstr("use one of: none, api_key"));
  EXPECT_THAT(SettingError("server.priority_max=-1"), HasSubstr("it must be from 0 to 100"));
  EXPECT_THAT(SettingError("server.priority_max=101"), HasSubstr("it must be from 0 to 100"));
  EXPECT_THAT(SettingError("cpu.threads=-1"), HasSubstr("cpu.threads is -1"));
  EXPECT_THAT(SettingError("log.level=loud"), HasSubstr("'loud'"));
  EXPECT_THAT(SettingError("model.name="), HasSubstr("model.name has 0 bytes"));
}

TEST(Config, FilesAreBounded) {
  v1::Config config;
  EXPECT_EQ(MergeFile("/nonexistent/x.yaml", config).code(), StatusCode::kNotFound);
  const std::string path = testing::TempDir() + "/big.yaml";
  std::ofstream(path) << std::string((1 << 20) + 1, '#');
  EXPECT_THAT(Message(MergeFile(path, config)), HasSubstr("larger than"));
}

// docs/configuration.md has one row for each key, with the default that Complete gives.
TEST(Config, DocumentedKeysAndDefaultsAreTheRealOnes) {
  std::ifstream file(std::string(POLYSIL_SOURCE_DIR) + "/docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string docs = text.str();
  const v1::Config config = *Complete({});
  for (int s = 0; s < v1::Config::descriptor()->field_count(); ++s) {
    const auto* section = v1::Config::descriptor()->field(s);
    const auto& message = config.GetReflection()->GetMessage(config, section);
    for (int f = 0; f < section->message_type()->field_count(); ++f) {
      const auto* field = section->message_type()->field(f);
      std::string value = "from";  // decided by the model or the machine: the row says from what
      const auto& reflection = *message.GetReflection();
      if (reflection.HasField(message, field)) {
        switch (field->cpp_type()) {
          case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
            value = std::to_string(reflection.GetInt32(message, field));
            break;
          case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
            value = fmt::format("{}", reflection.GetDouble(message, field));
            break;
          case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
            value = reflection.GetBool(message, field) ? "true" : "false";
            break;
          default:
            value = reflection.GetString(message, field);
        }
      }
      const std::string row = fmt::format("| `{}.{}` | {}", section->name(), field->name(), value);
      EXPECT_THAT(docs, HasSubstr(row));
    }
  }
}

}  // namespace
}  // namespace polysil
