// From config.json to a ModelSpec, and folders of shards: what is read, and what is refused.
#include "model/hf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "model/golden_model.h"
#include "model/hf_config.h"
#include "model/safetensors.h"
#include "model/temp_files.h"

namespace polysil {
namespace {

using ::testing::HasSubstr;

// A config with `fields` laid over the least that a model needs; an empty value removes one.
std::string Config(const std::string& model_type, std::map<std::string, std::string> fields = {}) {
  std::map<std::string, std::string> all = {
      {"model_type", "\"" + model_type + "\""},
      {"vocab_size", "100"},
      {"hidden_size", "64"},
      {"intermediate_size", "96"},
      {"num_hidden_layers", "6"},
      {"num_attention_heads", "4"},
      {"num_key_value_heads", "2"},
      {"max_position_embeddings", "1024"},
  };
  for (const auto& [key, value] : fields) all[key] = value;
  std::string out = "{";
  for (const auto& [key, value] : all) {
    if (value.empty()) continue;
    out += (out.size() > 1 ? ", \"" : "\"") + key + "\": " + value;
  }
  return out + "}";
}

ModelSpec SpecOf(const std::string& config, int32_t context_tokens = 0) {
  const auto model = ReadHfModel(config, context_tokens);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : ModelSpec();
}

std::string Refusal(const std::string& config) {
  const Status status = ReadHfModel(config, 0).status();
  EXPECT_FALSE(status.ok()) << config;
  return Message(status);
}

std::vector<int32_t> Windows(const ModelSpec& spec) {
  std::vector<int32_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.window);
  return windows;
}

TEST(HfConfig, Llama) {
  const ModelSpec spec = SpecOf(Config("llama", {{"rope_theta", "500000.0"}}));
  EXPECT_EQ(spec.head_size, 16);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_FALSE(spec.tied_embedding);
  EXPECT_FALSE(spec.qkv_bias);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-6F);
  EXPECT_EQ(spec.ropes[0].pairing, RopePairing::kHalves);
  EXPECT_FLOAT_EQ(spec.ropes[0].inv_freqs[1], std::pow(500000.0F, -1.0F / 8.0F));
  EXPECT_EQ(Windows(spec), std::vector<int32_t>(6, 0));
  EXPECT_EQ(SpecOf(Config("llama", {{"num_key_value_heads", ""}})).kv_heads, 4);
  EXPECT_EQ(SpecOf(Config("llama", {{"head_dim", "32"}})).head_size, 32);
  const ModelSpec biased =
      SpecOf(Config("llama", {{"attention_bias", "true"}, {"mlp_bias", "true"}}));
  EXPECT_TRUE(biased.qkv_bias && biased.attention_output_bias && biased.ffn_bias);
}

TEST(HfConfig, Llama3RopeInBothForms) {
  const std::string scaling =
      R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":64})";
  const ModelSpec old = SpecOf(
      Config("llama", {{"rope_theta", "10000.0"}, {"rope_scaling", scaling}, {"head_dim", "64"}}));
  std::string with_base = scaling;
  with_base.insert(1, "\"rope_theta\":10000.0,");
  const ModelSpec now =
      SpecOf(Config("llama", {{"rope_parameters", with_base}, {"head_dim", "64"}}));
  EXPECT_EQ(old.ropes[0].inv_freqs, now.ropes[0].inv_freqs);
  EXPECT_EQ(old.ropes[0].inv_freqs[0], 1.0F) << "short waves are kept";
  EXPECT_FLOAT_EQ(old.ropes[0].inv_freqs[31], std::pow(10000.0F, -62.0F / 64.0F) / 8.0F);
  EXPECT_THAT(Refusal(Config("llama", {{"rope_parameters", with_base}, {"rope_scaling", scaling}})),
              HasSubstr("both"));
}

TEST(HfConfig, RopeScalingThatWeDoNotKnowIsNamed) {
  for (const char* type : {"yarn", "dynamic", "mrope", "ntk", ""}) {
    const std::string scaling = std::string(R"({"rope_type":")") + type + R"(","factor":4.0})";
    EXPECT_THAT(Refusal(Config("qwen2", {{"rope_scaling", scaling}})),
                HasSubstr(std::string("rope_scaling.rope_type is \"") + type + "\""));
    const std::string old = std::string(R"({"type":")") + type + R"(","factor":4.0})";
    EXPECT_NE(Refusal(Config("qwen2", {{"rope_scaling", old}})), "");
  }
  for (const char* scaling : {
           R"({"factor":4.0})",
           R"({"rope_type":"linear"})",
           R"({"rope_type":"linear","factor":0})",
           R"({"rope_type":"linear","factor":-2})",
           R"({"rope_type":"linear","factor":"4"})",
           R"({"rope_type":7})",
           R"("linear")",
           R"([])",
           R"({"rope_type":"linear","type":"llama3","factor":4.0})",
           R"({"rope_type":"llama3","factor":8.0})",
           R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":4.0,"high_freq_factor":1.0,)"
           R"("original_max_position_embeddings":64})",
           R"({"rope_type":"longrope","short_factor":[1],"long_factor":[1]})",
       }) {
    EXPECT_NE(Refusal(Config("llama", {{"rope_scaling", scaling}})), "") << scaling;
  }
  EXPECT_FLOAT_EQ(SpecOf(Config("llama", {{"rope_scaling", R"({"type":"linear","factor":4})"}}))
                      .ropes[0]
                      .inv_freqs[0],
                  0.25F);
  EXPECT_FLOAT_EQ(SpecOf(Config("llama", {{"rope_scaling", R"({"rope_type":"default"})"}}))
                      .ropes[0]
                      .inv_freqs[0],
                  1.0F);
}

TEST(HfConfig, Windows) {
  EXPECT_EQ(Windows(SpecOf(Config("mistral", {{"sliding_window", "24"}}))),
            std::vector<int32_t>(6, 24));
  EXPECT_EQ(Windows(SpecOf(Config("mistral", {{"sliding_window", "null"}}))),
            std::vector<int32_t>(6, 0));
  EXPECT_EQ(Windows(SpecOf(Config("mistral", {{"max_position_embeddings", "8192"}}))),
            std::vector<int32_t>(6, 4096))
      << "the default";
  EXPECT_EQ(Windows(SpecOf(Config("mistral", {{"sliding_window", "1024"}}))),
            std::vector<int32_t>(6, 0))
      << "as long as the context";
  EXPECT_EQ(Windows(SpecOf(Config("qwen2", {{"sliding_window", "24"}}))),
            std::vector<int32_t>(6, 0))
      << "not used";
  EXPECT_EQ(Windows(SpecOf(Config("qwen2", {{"sliding_window", "24"},
                                            {"use_sliding_window", "true"},
                                            {"max_window_layers", "4"}}))),
            (std::vector<int32_t>{0, 0, 0, 0, 24, 24}));
  EXPECT_EQ(Windows(SpecOf(Config("gemma2", {{"sliding_window", "16"}}))),
            (std::vector<int32_t>{16, 0, 16, 0, 16, 0}));
  EXPECT_EQ(Windows(SpecOf(Config("gemma3_text", {{"sliding_window", "16"}}))),
            (std::vector<int32_t>{16, 16, 16, 16, 16, 0}));
  EXPECT_EQ(Windows(SpecOf(Config("gemma3_text",
                                  {{"sliding_window", "16"}, {"sliding_window_pattern", "2"}}))),
            (std::vector<int32_t>{16, 0, 16, 0, 16, 0}));
  const std::string types =
      R"(["full_attention","sliding_attention","full_attention","full_attention",)"
      R"("sliding_attention","full_attention"])";
  EXPECT_EQ(
      Windows(SpecOf(Config("gemma3_text", {{"sliding_window", "16"}, {"layer_types", types}}))),
      (std::vector<int32_t>{0, 16, 0, 0, 16, 0}));
  EXPECT_THAT(Refusal(Config("gemma2", {{"layer_types", R"(["full_attention"])"}})),
              HasSubstr("layer_types has 1 entries"));
  EXPECT_THAT(Refusal(Config("gemma2", {{"num_hidden_layers", "1"},
                                        {"layer_types", R"(["chunked_attention"])"}})),
              HasSubstr("layer_types entry 0"));
  EXPECT_NE(Refusal(Config("gemma2", {{"sliding_window", "null"}})), "");
  EXPECT_NE(Refusal(Config("mistral", {{"sliding_window", "-1"}})), "");
}

TEST(HfConfig, Gemma) {
  const ModelSpec two = SpecOf(Config("gemma2", {{"query_pre_attn_scalar", "144"}}));
  EXPECT_FLOAT_EQ(two.attention_scale, 1.0F / 12.0F);
  EXPECT_EQ(two.attention_softcap, 50.0F);
  EXPECT_EQ(two.logit_softcap, 30.0F);
  EXPECT_EQ(two.norm_weight_offset, 1.0F);
  EXPECT_FLOAT_EQ(two.embedding_scale, 8.0F);
  EXPECT_TRUE(two.tied_embedding);
  EXPECT_EQ(two.activation, Activation::kGeluTanh);
  const ModelSpec bare = SpecOf(
      Config("gemma2", {{"attn_logit_softcapping", "null"}, {"final_logit_softcapping", "null"}}));
  EXPECT_EQ(bare.attention_softcap, 0.0F) << "null means none";
  EXPECT_EQ(bare.logit_softcap, 0.0F);
  const ModelSpec three =
      SpecOf(Config("gemma3_text", {{"rope_scaling", R"({"rope_type":"linear","factor":8.0})"},
                                    {"head_dim", "4"}}));
  ASSERT_EQ(three.ropes.size(), 2U);
  EXPECT_FLOAT_EQ(three.ropes[0].inv_freqs[1], 1e-3F / 8.0F);
  EXPECT_FLOAT_EQ(three.ropes[1].inv_freqs[1], 1e-2F);
  EXPECT_EQ(three.layers[0].rope_index, 1);
  EXPECT_EQ(three.layers[5].rope_index, 0);
  // The newer form names a rope for each kind of layer.
  const ModelSpec nested = SpecOf(
      Config("gemma3_text",
             {{"rope_parameters",
               R"({"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":1000000.0},)"
               R"("sliding_attention":{"rope_type":"default","rope_theta":10000.0}})"},
              {"head_dim", "4"}}));
  EXPECT_EQ(nested.ropes[0].inv_freqs, three.ropes[0].inv_freqs);
  EXPECT_EQ(nested.ropes[1].inv_freqs, three.ropes[1].inv_freqs);
  EXPECT_THAT(Refusal(Config("gemma2", {{"hidden_activation", "\"relu\""}})), HasSubstr("relu"));
  EXPECT_THAT(Refusal(Config("gemma2", {{"query_pre_attn_scalar", "0"}})),
              HasSubstr("query_pre_attn_scalar"));
}

TEST(HfConfig, Phi3LongRope) {
  std::string ones = "1.0";
  std::string fours = "4.0";
  for (int i = 1; i < 6; ++i) {
    ones += ",1.0";
    fours += ",4.0";
  }
  const std::string scaling =
      R"({"type":"longrope","short_factor":[)" + ones + R"(],"long_factor":[)" + fours + "]}";
  const std::string config = Config("phi3", {{"partial_rotary_factor", "0.75"},
                                             {"rope_scaling", scaling},
                                             {"original_max_position_embeddings", "256"}});
  const ModelSpec long_spec = SpecOf(config);
  EXPECT_EQ(long_spec.ropes[0].dims, 12);
  EXPECT_FLOAT_EQ(long_spec.ropes[0].inv_freqs[0], 0.25F);
  EXPECT_FLOAT_EQ(long_spec.ropes[0].magnitude,
                  std::sqrt(1.0F + std::log(4.0F) / std::log(256.0F)));
  const ModelSpec short_spec = SpecOf(config, 256);
  EXPECT_FLOAT_EQ(short_spec.ropes[0].inv_freqs[0], 1.0F);
  EXPECT_EQ(short_spec.ropes[0].magnitude, long_spec.ropes[0].magnitude);
  EXPECT_THAT(Refusal(Config("phi3", {{"rope_scaling", scaling}})),
              HasSubstr("original_max_position_embeddings"));
  EXPECT_THAT(Refusal(Config("phi3", {{"rope_scaling", scaling},
                                      {"original_max_position_embeddings", "256"}})),
              HasSubstr("6 frequency factors for 8 pairs"));
  EXPECT_NE(Refusal(Config("llama", {{"partial_rotary_factor", "0.5"}})), "");
}

TEST(HfConfig, RefusesWhatItCannotRun) {
  const std::pair<const char*, std::map<std::string, std::string>> cases[] = {
      {"num_attention_heads", {{"num_attention_heads", "0"}}},
      {"num_attention_heads", {{"num_attention_heads", "-4"}}},
      {"num_attention_heads", {{"num_attention_heads", "4.5"}}},
      {"num_attention_heads", {{"num_attention_heads", "\"4\""}}},
      {"hidden_size", {{"hidden_size", "1e30"}}},
      {"hidden_size", {{"hidden_size", "99999999999999999999"}}},
      {"2000000000", {{"head_dim", "2000000000"}}},
      {"500000000", {{"hidden_size", "2000000000"}}},
      {"num_hidden_layers", {{"num_hidden_layers", "100000"}}},
      {"max_position_embeddings", {{"max_position_embeddings", "0"}}},
      {"head_dim is missing", {{"num_attention_heads", "6"}}},
      {"KV heads", {{"num_key_value_heads", "3"}}},
      {"KV heads", {{"num_key_value_heads", "8"}}},
      {"rms_norm_eps", {{"rms_norm_eps", "\"x\""}}},
      {"epsilon", {{"rms_norm_eps", "-1"}}},
      {"hidden_act", {{"hidden_act", "\"gelu\""}}},
      {"quantization_config", {{"quantization_config", "{}"}}},
      {"num_local_experts is 4", {{"num_local_experts", "4"}}},
      {"tie_word_embeddings", {{"tie_word_embeddings", "1"}}},
      {"LlamaForSequenceClassification",
       {{"architectures", "[\"LlamaForSequenceClassification\"]"}}},
      {"rope base", {{"rope_theta", "0"}}},
      {"use_bidirectional_attention", {{"use_bidirectional_attention", "true"}}},
  };
  for (const auto& [words, fields] : cases) {
    EXPECT_THAT(Refusal(Config("llama", fields)), HasSubstr(words));
  }
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings"}) {
    EXPECT_THAT(Refusal(Config("llama", {{key, ""}})), HasSubstr(std::string(key) + " is missing"));
    EXPECT_THAT(Refusal(Config("llama", {{key, "null"}})),
                HasSubstr(std::string(key) + " is missing"));
  }
  for (const char* type : {"mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma3", "bert"}) {
    EXPECT_THAT(Refusal(Config(type)), HasSubstr(std::string("model_type is \"") + type + "\""));
  }
  EXPECT_NE(Refusal(""), "");
  EXPECT_NE(Refusal("[]"), "");
  EXPECT_NE(Refusal("{"), "");
  EXPECT_NE(Refusal("{}"), "");
  EXPECT_NE(Refusal(R"({"model_type":5})"), "");
  EXPECT_NE(Refusal(std::string(100000, '[')), "");
}

// The models of later issues are refused whole, by name.
TEST(HfCheckpoint, MixturesAndLatentAttentionAreRefused) {
  for (const char* name : {"mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"}) {
    const std::string folder = golden::SharedPath(std::string("tiny/") + name);
    if (!golden::Exists(folder)) GTEST_SKIP() << folder << " is not there";
    const Status status = OpenCheckpoint(folder).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(Message(status), HasSubstr(name));
    const auto summary = InspectCheckpoint(folder);
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(summary->architecture, name);
    EXPECT_FALSE(summary->tensors.empty());
    EXPECT_FALSE(summary->runnable.ok());
  }
}

// A real folder, changed in one place at a time.
class HfFolder : public ::testing::Test {
 protected:
  static constexpr const char* kIndex = "model.safetensors.index.json";

  void SetUp() override {
    const std::string from = std::string(POLYSIL_SOURCE_DIR) + "/tests/data/model/gemma3-bf16";
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors",
                             "tokenizer.json", "tokenizer_config.json"}) {
      files_[name] = golden::ReadFile(from + "/" + name);
      folder_.Write(name, files_[name]);
    }
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Refused() {
    const Status status = OpenCheckpoint(folder_.path()).status();
    EXPECT_FALSE(status.ok());
    return Message(status);
  }
  // Replaces model.safetensors by two shards and an index; returns where each tensor lies.
  std::map<std::string, std::string> Split() {
    std::filesystem::remove(Path("model.safetensors"));
    const auto whole = ParseSafetensors(files_["model.safetensors"]);
    std::map<std::string, std::string> place;
    for (int part = 0; part < 2; ++part) {
      std::string header = "{";
      std::string data;
      const std::string name = part == 0 ? "model-00001.safetensors" : "model-00002.safetensors";
      for (size_t i = part; i < whole.size(); i += 2) {
        const SafetensorsTensor& tensor = whole[i];
        header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                              header.size() > 1 ? "," : "", tensor.name, tensor.type_name,
                              fmt::join(tensor.shape, ","), data.size(),
                              data.size() + tensor.data.size());
        data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
        place[tensor.name] = name;
      }
      header += "}";
      while (header.size() % 2 == 0) header += " ";  // so that the data lies at an odd address
      shards_[name] = std::string(8, '\0') + header + data;
      const uint64_t length = header.size();
      std::memcpy(shards_[name].data(), &length, 8);
      folder_.Write(name, shards_[name]);
    }
    WriteIndex(place);
    return place;
  }
  void WriteIndex(const std::map<std::string, std::string>& place) {
    std::string index = R"({"metadata":{},"weight_map":{)";
    for (const auto& [tensor, shard] : place) {
      index += (index.back() == '{' ? "\"" : ",\"") + tensor + "\":\"" + shard + "\"";
    }
    folder_.Write(kIndex, index + "}}");
  }
  static std::vector<SafetensorsTensor> ParseSafetensors(const std::string& file) {
    auto tensors = polysil::ParseSafetensors(std::as_bytes(std::span(file.data(), file.size())));
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    return *tensors;
  }

  TempFolder folder_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> shards_;
};

TEST_F(HfFolder, OpensByFolderConfigOrWeights) {
  for (const std::string& path :
       {folder_.path(), folder_.path() + "/", Path("config.json"), Path("model.safetensors")}) {
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->format(), "safetensors");
    EXPECT_EQ((*checkpoint)->WeightTypes(), "BF16");
    EXPECT_EQ((*checkpoint)->tokenizer().files->tokenizer_json, files_["tokenizer.json"]);
    EXPECT_EQ((*checkpoint)->tokenizer().files->generation_config_json,
              files_["generation_config.json"]);
    EXPECT_TRUE((*checkpoint)->chat_templates().empty());
  }
  EXPECT_THAT((*OpenCheckpoint(folder_.path() + "/"))->model_name(), HasSubstr("polysil_"));
}

TEST_F(HfFolder, ShardsAreTheSameModel) {
  const auto whole = OpenCheckpoint(folder_.path());
  ASSERT_TRUE(whole.ok());
  Split();
  const auto sharded = OpenCheckpoint(folder_.path());
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  for (int layer = 0; layer < 6; ++layer) {
    const LayerWeights& a = (*whole)->weights().layers[layer];
    const LayerWeights& b = (*sharded)->weights().layers[layer];
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.down.data) % 2, 0U) << "copied where unaligned";
    EXPECT_EQ(std::memcmp(a.down.data, b.down.data, a.down.rows * a.down.cols * 2), 0);
    EXPECT_EQ(a.q_norm, b.q_norm);
  }
  EXPECT_NE((*whole)->Digest(), (*sharded)->Digest());
}

TEST_F(HfFolder, BadIndexes) {
  const auto place = Split();
  const auto with = [&](const std::function<void(std::map<std::string, std::string>&)>& change) {
    auto changed = place;
    change(changed);
    WriteIndex(changed);
    return Refused();
  };
  const std::string norm = "model.norm.weight";
  for (const char* path : {"../model-00001.safetensors", "/etc/passwd", "a/b.safetensors", "",
                           ".safetensors/..", "config.json"}) {
    EXPECT_THAT(with([&](auto& map) { map[norm] = path; }), HasSubstr("weight_map")) << path;
  }
  EXPECT_THAT(with([&](auto& map) { map[norm] = "absent.safetensors"; }),
              HasSubstr("absent.safetensors"));
  EXPECT_THAT(with([&](auto& map) { map.erase(norm); }), HasSubstr(norm));
  EXPECT_THAT(with([&](auto& map) { map["more.weight"] = map[norm]; }), HasSubstr("index lists"));
  const std::string other = place.at(norm) == "model-00001.safetensors" ? "model-00002.safetensors"
                                                                        : "model-00001.safetensors";
  EXPECT_THAT(with([&](auto& map) { map[norm] = other; }), HasSubstr(norm));
  for (const char* text : {"", "{}", "[]", "{\"weight_map\":[]}", "{\"weight_map\":{}}",
                           "{\"weight_map\":{\"a\":5}}", "{\"weight_map\":"}) {
    folder_.Write(kIndex, text);
    EXPECT_NE(Refused(), "") << text;
  }
  // The same tensor in both shards.
  WriteIndex(place);
  folder_.Write("model-00002.safetensors", shards_["model-00001.safetensors"]);
  EXPECT_NE(Refused(), "");
  folder_.Write("model-00002.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(Refused(), HasSubstr("Git LFS"));
}

TEST_F(HfFolder, MissingFiles) {
  std::filesystem::remove(Path("tokenizer.json"));
  EXPECT_THAT(Refused(), HasSubstr("tokenizer.json"));
  folder_.Write("tokenizer.json", files_["tokenizer.json"]);
  std::filesystem::remove(Path("model.safetensors"));
  EXPECT_THAT(Refused(), HasSubstr(".safetensors"));
  folder_.Write("weights.safetensors", files_["model.safetensors"]);
  EXPECT_TRUE(OpenCheckpoint(folder_.path()).ok()) << "the only one, whatever its name";
  folder_.Write("more.safetensors", files_["model.safetensors"]);
  EXPECT_THAT(Refused(), HasSubstr("model.safetensors.index.json"));
  folder_.Write("model.safetensors", files_["model.safetensors"]);
  std::filesystem::remove(Path("config.json"));
  EXPECT_THAT(Refused(), HasSubstr("config.json"));
}

TEST_F(HfFolder, ConfigAgainstTensors) {
  const auto with = [&](const char* from, const char* to) {
    std::string config = files_["config.json"];
    const size_t place = config.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    config.replace(place, std::strlen(from), to);
    folder_.Write("config.json", config);
    return Refused();
  };
  EXPECT_THAT(with("\"vocab_size\": 517", "\"vocab_size\": 518"), HasSubstr("embed_tokens"));
  EXPECT_THAT(with("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
              HasSubstr("lm_head.weight is missing"));
  EXPECT_THAT(with("\"hidden_size\": 48", "\"hidden_size\": 52"), HasSubstr("embed_tokens"));
  EXPECT_THAT(with("\"head_dim\": 16", "\"head_dim\": 12"), HasSubstr("q_proj"));
  EXPECT_THAT(with("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 7"), HasSubstr("layers.6."));
  EXPECT_THAT(with("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 5"), HasSubstr("layers.5."));
  EXPECT_THAT(with("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2"),
              HasSubstr("k_proj"));
  EXPECT_THAT(with("gemma3_text", "gemma2"), HasSubstr("norm"));
  EXPECT_THAT(with("gemma3_text", "llama"), HasSubstr("in a llama model"));
}

TEST_F(HfFolder, ChatTemplates) {
  const auto templates = [&]() -> std::vector<std::pair<std::string, std::string>> {
    const auto checkpoint = OpenCheckpoint(folder_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& source : (*checkpoint)->chat_templates()) {
      out.emplace_back(source.name, source.source);
    }
    return out;
  };
  using Named = std::vector<std::pair<std::string, std::string>>;
  folder_.Write("tokenizer_config.json", R"({"chat_template":"A"})");
  EXPECT_EQ(templates(), (Named{{"default", "A"}}));
  folder_.Write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"rag","template":"R"},{"name":"default","template":"D"}]})");
  EXPECT_EQ(templates(), (Named{{"default", "D"}, {"rag", "R"}}));
  folder_.Write("chat_template.jinja", "J");
  EXPECT_EQ(templates(), (Named{{"default", "J"}, {"rag", "R"}}));
  for (const char* bad : {R"({"chat_template":5})", R"({"chat_template":[5]})",
                          R"({"chat_template":[{"name":"x"}]})", "{", "[]"}) {
    folder_.Write("tokenizer_config.json", bad);
    EXPECT_NE(Refused(), "") << bad;
  }
}

TEST_F(HfFolder, CutAnywhereItIsRefused) {
  const std::string& file = files_["model.safetensors"];
  for (size_t size = 0; size < file.size(); size += 1024) {
    folder_.Write("model.safetensors", std::string_view(file).substr(0, size));
    EXPECT_NE(Refused(), "") << size;
  }
  folder_.Write("model.safetensors", file + "x");
  EXPECT_NE(Refused(), "");
}

}  // namespace
}  // namespace polysil
