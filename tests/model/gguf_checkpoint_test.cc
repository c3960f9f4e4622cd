// From GGUF metadata to a ModelSpec, weights, vocabulary and templates: what is read, and what is
// refused.
#include "model/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/gguf_builder.h"
#include "model/temp_files.h"

namespace polysil {
namespace {

using ::testing::HasSubstr;

class GgufCheckpoint : public ::testing::Test {
 protected:
  StatusOr<std::unique_ptr<Checkpoint>> Open(const GgufBuilder& file,
                                             const CheckpointOptions& options = {}) {
    return OpenCheckpoint(folder_.Write("model.gguf", file.Build()), options);
  }
  ModelSpec SpecOf(const GgufBuilder& file, const CheckpointOptions& options = {}) {
    auto checkpoint = Open(file, options);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? (*checkpoint)->spec() : ModelSpec();
  }
  std::string Refusal(const GgufBuilder& file) {
    const Status status = Open(file).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("model.gguf: "));
    return Message(status);
  }
  // TinyLlama under another architecture.
  static GgufBuilder Renamed(const std::string& architecture) {
    GgufBuilder file = TinyLlama();
    for (const char* key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length",
          "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"}) {
      file.RemoveKey(std::string("llama.") + key);
    }
    const std::string prefix = architecture + ".";
    file.String("general.architecture", architecture)
        .U32(prefix + "block_count", 2)
        .U32(prefix + "context_length", 64)
        .U32(prefix + "embedding_length", 8)
        .U32(prefix + "feed_forward_length", 12)
        .U32(prefix + "attention.head_count", 2)
        .U32(prefix + "attention.head_count_kv", 1)
        .F32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
    return file;
  }
  static void AddPerLayer(GgufBuilder& file, const std::string& name, std::vector<uint64_t> dims) {
    for (int layer = 0; layer < 2; ++layer) {
      file.Floats("blk." + std::to_string(layer) + "." + name, dims);
    }
  }
  static GgufBuilder Gemma(const std::string& architecture) {
    GgufBuilder file = Renamed(architecture);
    AddPerLayer(file, "post_attention_norm.weight", {8});
    AddPerLayer(file, "post_ffw_norm.weight", {8});
    return file;
  }

  TempFolder folder_;
};

TEST_F(GgufCheckpoint, ReadsALlama) {
  auto opened = Open(TinyLlama());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Checkpoint& checkpoint = **opened;
  const ModelSpec& spec = checkpoint.spec();
  EXPECT_EQ(checkpoint.format(), "GGUF v3");
  EXPECT_EQ(checkpoint.model_name(), "tiny");
  EXPECT_EQ(checkpoint.WeightTypes(), "F32");
  EXPECT_EQ(spec.architecture, "llama");
  EXPECT_EQ(spec.layer_count(), 2);
  EXPECT_EQ(spec.hidden_size, 8);
  EXPECT_EQ(spec.q_heads, 2);
  EXPECT_EQ(spec.kv_heads, 1);
  EXPECT_EQ(spec.head_size, 4);
  EXPECT_EQ(spec.ffn_size, 12);
  EXPECT_EQ(spec.vocab_size, 5);
  EXPECT_EQ(spec.context_tokens_max, 64);
  EXPECT_FLOAT_EQ(spec.attention_scale, 0.5F);
  EXPECT_EQ(spec.activation, Activation::kSilu);
  EXPECT_FALSE(spec.tied_embedding);
  ASSERT_EQ(spec.ropes.size(), 1U);
  EXPECT_EQ(spec.ropes[0].pairing, RopePairing::kAdjacent);
  EXPECT_THAT(spec.ropes[0].inv_freqs,
              ::testing::Pointwise(::testing::FloatEq(), std::vector<float>{1.0F, 0.01F}));
  EXPECT_EQ(checkpoint.weights().layers[1].down.cols, 12);
  EXPECT_EQ(checkpoint.tensors().size(), 21U);
  EXPECT_EQ(checkpoint.Digest().size(), 64U);
  const GgufVocabulary& vocabulary = *checkpoint.tokenizer().gguf;
  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.tokens.size(), 5U);
  EXPECT_EQ(vocabulary.bos_id, 3);
  EXPECT_EQ(vocabulary.eos_id, 4);
  EXPECT_FALSE(vocabulary.unknown_id.has_value());
  EXPECT_EQ(vocabulary.merges, std::vector<std::string>{"a b"});
  EXPECT_TRUE(checkpoint.chat_templates().empty());
}

TEST_F(GgufCheckpoint, AMissingOutputIsTheEmbedding) {
  GgufBuilder file = TinyLlama();
  file.RemoveTensor("output.weight");
  auto checkpoint = Open(file);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE((*checkpoint)->spec().tied_embedding);
  EXPECT_EQ((*checkpoint)->weights().output.data, (*checkpoint)->weights().embedding.data);
}

TEST_F(GgufCheckpoint, EveryAlignmentGivesAlignedWeights) {
  const ModelSpec spec = SpecOf(TinyLlama());
  for (const uint32_t alignment : {1U, 2U, 8U, 4096U}) {
    GgufBuilder file = TinyLlama();
    file.alignment = alignment;
    file.U32("general.alignment", alignment);
    auto checkpoint = Open(file);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const HostTensor& down = (*checkpoint)->weights().layers[1].down;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(down.data) % 4, 0U);
    EXPECT_EQ(std::memcmp(down.data, file.Find("blk.1.ffn_down.weight")->data.data(), 12 * 8 * 4),
              0);
  }
}

TEST_F(GgufCheckpoint, ArchitecturesThatWeDoNotRunAreNamed) {
  for (const char* architecture : {"qwen3moe", "deepseek2", "mamba", "bert", "gpt-oss", ""}) {
    GgufBuilder file = Renamed(architecture);
    EXPECT_THAT(Refusal(file), HasSubstr(std::string("\"") + architecture + "\""));
    EXPECT_EQ(Open(file).status().code(), StatusCode::kUnimplemented);
  }
  GgufBuilder none = TinyLlama();
  none.RemoveKey("general.architecture");
  EXPECT_THAT(Refusal(none), HasSubstr("general.architecture is missing"));
  GgufBuilder number = TinyLlama();
  number.U32("general.architecture", 3);
  EXPECT_THAT(Refusal(number), HasSubstr("general.architecture is a uint32"));
}

TEST_F(GgufCheckpoint, RefusesMetadataThatIsMissingOrOutOfRange) {
  const std::vector<std::string> required = {
      "block_count",         "context_length",       "embedding_length",
      "feed_forward_length", "attention.head_count", "attention.layer_norm_rms_epsilon"};
  for (const std::string& name : required) {
    GgufBuilder file = TinyLlama();
    file.RemoveKey("llama." + name);
    EXPECT_THAT(Refusal(file), HasSubstr("llama." + name + " is missing"));
    if (name.ends_with("epsilon")) continue;
    for (const uint32_t value : {0U, 0x7fffffffU, 0xffffffffU, 1000003U}) {
      GgufBuilder wrong = TinyLlama();
      wrong.U32("llama." + name, value);
      if (name == "context_length" && value == 1000003U) continue;  // long, but no contradiction
      EXPECT_NE(Refusal(wrong), "") << name << " " << value;
    }
    GgufBuilder text = TinyLlama();
    text.String("llama." + name, "8");
    EXPECT_THAT(Refusal(text), HasSubstr("llama." + name + " is a string"));
  }
}

TEST_F(GgufCheckpoint, RefusesContradictions) {
  const auto refused = [&](const std::function<void(GgufBuilder&)>& change, const char* words) {
    GgufBuilder file = TinyLlama();
    change(file);
    EXPECT_THAT(Refusal(file), HasSubstr(words));
  };
  refused([](auto& f) { f.U32("llama.attention.head_count", 3); }, "head_count");
  refused([](auto& f) { f.U32("llama.attention.head_count_kv", 3); }, "KV heads");
  refused([](auto& f) { f.U32("llama.attention.head_count_kv", 2); }, "blk.0.attn_k.weight");
  refused([](auto& f) { f.U32("llama.attention.key_length", 8); }, "attn_q.weight");
  refused([](auto& f) { f.U32("llama.attention.key_length", 0x7ffffffe); }, "2147483646");
  refused(
      [](auto& f) {
        f.U32("llama.attention.key_length", 0x7ffffffe)
            .U32("llama.attention.value_length", 0x7ffffffe);
      },
      "2147483646");
  refused([](auto& f) { f.U32("llama.attention.value_length", 8); }, "value_length");
  refused([](auto& f) { f.U32("llama.embedding_length", 16); }, "token_embd.weight");
  refused([](auto& f) { f.U32("llama.feed_forward_length", 11); }, "ffn_gate.weight");
  refused([](auto& f) { f.U32("llama.block_count", 3); }, "blk.2.attn_q.weight is missing");
  refused([](auto& f) { f.U32("llama.block_count", 1); }, "blk.1.attn_");
  refused([](auto& f) { f.U32("llama.vocab_size", 6); }, "llama.vocab_size is 6");
  refused([](auto& f) { f.F32("llama.attention.layer_norm_rms_epsilon", -1.0F); }, "epsilon");
  refused([](auto& f) { f.F32("llama.attention.layer_norm_rms_epsilon", std::nanf("")); },
          "epsilon");
  refused([](auto& f) { f.U32("llama.expert_count", 8); }, "llama.expert_count is 8");
  refused([](auto& f) { f.U32("llama.attention.sliding_window", 16); }, "sliding_window is 16");
  refused([](auto& f) { f.F32("llama.logit_scale", 2.0F); }, "llama.logit_scale is 2");
  refused([](auto& f) { f.Bool("llama.attention.causal", false); }, "llama.attention.causal");
  refused([](auto& f) { f.U32("split.count", 2); }, "split.count is 2");
  refused([](auto& f) { f.RemoveTensor("output_norm.weight"); }, "output_norm.weight is missing");
  refused([](auto& f) { f.RemoveTensor("blk.1.ffn_up.weight"); }, "blk.1.ffn_up.weight");
  refused([](auto& f) { f.RemoveTensor("token_embd.weight"); }, "token_embd.weight is missing");
  refused([](auto& f) { f.Floats("blk.0.attn_sinks.weight", {2}); }, "attn_sinks");
  refused([](auto& f) { f.Floats("blk.0.attn_q_norm.weight", {4}); }, "attn_q_norm");
  refused([](auto& f) { f.Floats("blk.2.attn_norm.weight", {8}); }, "blk.2.attn_norm");
  refused([](auto& f) { f.Floats("blk.1.attn_q.bias", {8}); }, "blk.1.attn_q.bias");
  refused([](auto& f) { f.Floats("blk.0.attn_q.bias", {8}); }, "blk.0.attn_k.bias is missing");
  refused([](auto& f) { f.Find("blk.0.ffn_down.weight")->dims = {8, 12}; }, "ffn_down.weight");
  refused([](auto& f) { f.Find("output_norm.weight")->dims = {8, 1}; }, "output_norm.weight");
  refused(
      [](auto& f) {
        f.Find("blk.0.ffn_up.weight")->dims = {8, 0};
        f.Find("blk.0.ffn_up.weight")->data.clear();
      },
      "blk.0.ffn_up.weight has shape [0, 8]");
  refused(
      [](auto& f) {
        f.Find("token_embd.weight")->dims = {8, 0};
        f.Find("token_embd.weight")->data.clear();
      },
      "token_embd.weight");
  // A type that the format has and we do not.
  refused(
      [](auto& f) {
        f.Find("blk.0.ffn_up.weight")->type = 28;
        f.Find("blk.0.ffn_up.weight")->data.resize(8 * 12 * 8);
      },
      "blk.0.ffn_up.weight has type F64");
}

TEST_F(GgufCheckpoint, PerLayerArraysMustAgree) {
  GgufBuilder same = TinyLlama();
  same.Numbers<uint32_t>("llama.attention.head_count_kv", 4, {1, 1});
  EXPECT_EQ(SpecOf(same).kv_heads, 1);
  GgufBuilder other = TinyLlama();
  other.Numbers<uint32_t>("llama.attention.head_count_kv", 4, {1, 2});
  EXPECT_THAT(Refusal(other), HasSubstr("differs by layer"));
  GgufBuilder empty = TinyLlama();
  empty.Numbers<uint32_t>("llama.attention.head_count_kv", 4, {});
  EXPECT_THAT(Refusal(empty), HasSubstr("head_count_kv"));
}

TEST_F(GgufCheckpoint, RopeScaling) {
  const auto freqs = [](const ModelSpec& spec) { return spec.ropes[0].inv_freqs; };
  GgufBuilder linear = TinyLlama();
  linear.String("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4.0F);
  EXPECT_FLOAT_EQ(freqs(SpecOf(linear))[0], 0.25F);
  GgufBuilder bare = TinyLlama();
  bare.F32("llama.rope.scale_linear", 2.0F);
  EXPECT_FLOAT_EQ(freqs(SpecOf(bare))[1], 0.005F);
  GgufBuilder none = TinyLlama();
  none.String("llama.rope.scaling.type", "none").F32("llama.rope.freq_base", 100.0F);
  EXPECT_FLOAT_EQ(freqs(SpecOf(none))[1], 0.1F);
  GgufBuilder factors = TinyLlama();
  factors.Add({.name = "rope_freqs.weight", .dims = {2}, .data = Raw(2.0F) + Raw(8.0F)});
  EXPECT_FLOAT_EQ(freqs(SpecOf(factors))[0], 0.5F);
  EXPECT_FLOAT_EQ(freqs(SpecOf(factors))[1], 0.00125F);
  for (const char* type : {"yarn", "dynamic", "mrope", ""}) {
    GgufBuilder file = TinyLlama();
    file.String("llama.rope.scaling.type", type);
    EXPECT_THAT(Refusal(file), HasSubstr("llama.rope.scaling.type is \"" + std::string(type)));
  }
  GgufBuilder both = factors;
  both.String("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4.0F);
  EXPECT_THAT(Refusal(both), HasSubstr("linear"));
  GgufBuilder few = TinyLlama();
  few.Add({.name = "rope_freqs.weight", .dims = {1}, .data = Raw(2.0F)});
  EXPECT_THAT(Refusal(few), HasSubstr("rope_freqs.weight"));
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    GgufBuilder file = TinyLlama();
    file.Add({.name = "rope_freqs.weight", .dims = {2}, .data = Raw(2.0F) + Raw(bad)});
    EXPECT_THAT(Refusal(file), HasSubstr("factor"));
    GgufBuilder base = TinyLlama();
    base.F32("llama.rope.freq_base", bad);
    EXPECT_NE(Refusal(base), "");
  }
  for (const uint32_t dims : {0U, 3U, 6U, 0x7fffffffU}) {
    GgufBuilder file = TinyLlama();
    file.U32("llama.rope.dimension_count", dims);
    EXPECT_NE(Refusal(file), "") << dims;
  }
}

TEST_F(GgufCheckpoint, Qwen) {
  GgufBuilder two = Renamed("qwen2");
  EXPECT_THAT(Refusal(two), HasSubstr("attn_q.bias is missing"));
  AddPerLayer(two, "attn_q.bias", {8});
  AddPerLayer(two, "attn_k.bias", {4});
  AddPerLayer(two, "attn_v.bias", {4});
  const ModelSpec spec = SpecOf(two);
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_EQ(spec.ropes[0].pairing, RopePairing::kHalves);
  GgufBuilder three = Renamed("qwen3");
  EXPECT_THAT(Refusal(three), HasSubstr("attn_q_norm.weight is missing"));
  AddPerLayer(three, "attn_q_norm.weight", {4});
  AddPerLayer(three, "attn_k_norm.weight", {4});
  EXPECT_TRUE(SpecOf(three).qk_norm);
}

TEST_F(GgufCheckpoint, Gemma2) {
  GgufBuilder file = Gemma("gemma2");
  file.U32("gemma2.attention.sliding_window", 16);
  const ModelSpec spec = SpecOf(file);
  EXPECT_EQ(spec.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(spec.embedding_scale, std::sqrt(8.0F));
  EXPECT_EQ(spec.norm_weight_offset, 0.0F) << "the file holds 1 + w";
  EXPECT_EQ(spec.attention_softcap, 50.0F);
  EXPECT_EQ(spec.logit_softcap, 30.0F);
  EXPECT_TRUE(spec.post_norms);
  EXPECT_EQ(spec.layers[0].window, 16);
  EXPECT_EQ(spec.layers[1].window, 0);
  file.F32("gemma2.attn_logit_softcapping", 5.0F).F32("gemma2.final_logit_softcapping", 0.0F);
  EXPECT_EQ(SpecOf(file).attention_softcap, 5.0F);
  EXPECT_EQ(SpecOf(file).logit_softcap, 0.0F);
  file.F32("gemma2.attn_logit_softcapping", -5.0F);
  EXPECT_THAT(Refusal(file), HasSubstr("soft cap"));
}

TEST_F(GgufCheckpoint, Gemma3) {
  GgufBuilder file = Gemma("gemma3");
  AddPerLayer(file, "attn_q_norm.weight", {4});
  AddPerLayer(file, "attn_k_norm.weight", {4});
  EXPECT_THAT(Refusal(file), HasSubstr("sliding_window is missing"));
  file.U32("gemma3.attention.sliding_window", 16)
      .F32("gemma3.rope.freq_base", 1e6F)
      .String("gemma3.rope.scaling.type", "linear")
      .F32("gemma3.rope.scaling.factor", 8.0F);
  ModelSpec spec = SpecOf(file);
  EXPECT_EQ(spec.layers[0].window, 16);
  EXPECT_EQ(spec.layers[1].window, 16);
  EXPECT_EQ(spec.layers[1].rope_index, 1);
  ASSERT_EQ(spec.ropes.size(), 2U);
  EXPECT_FLOAT_EQ(spec.ropes[0].inv_freqs[1], 1e-3F / 8);
  EXPECT_FLOAT_EQ(spec.ropes[1].inv_freqs[1], 1e-2F) << "the local one is not stretched";
  file.U32("gemma3.attention.sliding_window_pattern", 2);
  spec = SpecOf(file);
  EXPECT_EQ(spec.layers[1].window, 0);
  EXPECT_EQ(spec.layers[1].rope_index, 0);
  file.Numbers<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0, 1});
  spec = SpecOf(file);
  EXPECT_EQ(spec.layers[0].rope_index, 0);
  EXPECT_EQ(spec.layers[1].rope_index, 1);
  file.Numbers<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0});
  EXPECT_THAT(Refusal(file), HasSubstr("sliding_window_pattern"));
  file.U32("gemma3.attention.sliding_window_pattern", 0);
  EXPECT_THAT(Refusal(file), HasSubstr("sliding_window_pattern"));
  // A window as long as the context never bites, but its layers still turn by the local rope.
  file.RemoveKey("gemma3.attention.sliding_window_pattern")
      .U32("gemma3.attention.sliding_window", 64);
  EXPECT_EQ(SpecOf(file).layers[0].window, 0);
  EXPECT_EQ(SpecOf(file).layers[0].rope_index, 1);
}

TEST_F(GgufCheckpoint, Phi3SplitsWhatIsFused) {
  GgufBuilder file = Renamed("phi3");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    for (const char* name : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"}) {
      file.RemoveTensor(prefix + name + ".weight");
    }
    file.Floats(prefix + "attn_qkv.weight", {8, 16}).Floats(prefix + "ffn_up.weight", {8, 24});
  }
  file.U32("phi3.rope.dimension_count", 2).U32("phi3.attention.sliding_window", 16);
  auto checkpoint = Open(file);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const LayerWeights& layer = (*checkpoint)->weights().layers[1];
  const std::string& qkv = file.Find("blk.1.attn_qkv.weight")->data;
  EXPECT_EQ(std::memcmp(layer.q.data, qkv.data(), 8 * 8 * 4), 0);
  EXPECT_EQ(std::memcmp(layer.k.data, qkv.data() + 8 * 8 * 4, 4 * 8 * 4), 0);
  EXPECT_EQ(std::memcmp(layer.v.data, qkv.data() + 12 * 8 * 4, 4 * 8 * 4), 0);
  const std::string& up = file.Find("blk.1.ffn_up.weight")->data;
  EXPECT_EQ(std::memcmp(layer.gate.data, up.data(), 12 * 8 * 4), 0);
  EXPECT_EQ(std::memcmp(layer.up.data, up.data() + 12 * 8 * 4, 12 * 8 * 4), 0);
  EXPECT_EQ((*checkpoint)->spec().layers[0].window, 16);
  EXPECT_EQ((*checkpoint)->spec().ropes[0].dims, 2);

  file.Add({.name = "rope_factors_short.weight", .dims = {1}, .data = Raw(2.0F)})
      .Add({.name = "rope_factors_long.weight", .dims = {1}, .data = Raw(4.0F)});
  EXPECT_THAT(Refusal(file), HasSubstr("original_context_length is missing"));
  file.U32("phi3.rope.scaling.original_context_length", 32)
      .F32("phi3.rope.scaling.attn_factor", 1.25F);
  EXPECT_FLOAT_EQ(SpecOf(file).ropes[0].inv_freqs[0], 0.25F) << "64 tokens: the long list";
  EXPECT_FLOAT_EQ(SpecOf(file, {.context_tokens = 32}).ropes[0].inv_freqs[0], 0.5F);
  EXPECT_FLOAT_EQ(SpecOf(file, {.context_tokens = 33}).ropes[0].inv_freqs[0], 0.25F);
  EXPECT_FLOAT_EQ(SpecOf(file).ropes[0].magnitude, 1.25F);
  file.RemoveTensor("rope_factors_long.weight");
  EXPECT_THAT(Refusal(file), HasSubstr("rope_factors"));
}

TEST_F(GgufCheckpoint, Vocabulary) {
  const auto refused = [&](const std::function<void(GgufBuilder&)>& change, const char* words) {
    GgufBuilder file = TinyLlama();
    change(file);
    EXPECT_THAT(Refusal(file), HasSubstr(words));
  };
  refused([](auto& f) { f.RemoveKey("tokenizer.ggml.model"); }, "tokenizer.ggml.model is missing");
  refused([](auto& f) { f.RemoveKey("tokenizer.ggml.tokens"); }, "tokenizer.ggml.tokens");
  refused([](auto& f) { f.Strings("tokenizer.ggml.tokens", {}); }, "tokenizer.ggml.tokens");
  refused([](auto& f) { f.Strings("tokenizer.ggml.tokens", {"a", "b"}); }, "entries");
  refused([](auto& f) { f.U32("tokenizer.ggml.tokens", 5); }, "tokenizer.ggml.tokens is a uint32");
  refused(
      [](auto& f) {
        f.template Numbers<float>("tokenizer.ggml.scores", 6, {1, 2});
      },
      "tokenizer.ggml.scores has 2 entries for 5 tokens");
  refused(
      [](auto& f) {
        f.template Numbers<uint8_t>("tokenizer.ggml.scores", 0, {1, 2, 3, 4, 5});
      },
      "tokenizer.ggml.scores is an array of uint8");
  refused(
      [](auto& f) {
        f.template Numbers<float>("tokenizer.ggml.scores", 6, {1, 2, std::nanf(""), 4, 5});
      },
      "tokenizer.ggml.scores entry 2");
  refused(
      [](auto& f) {
        f.template Numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1});
      },
      "token_type has 2 entries");
  refused(
      [](auto& f) {
        f.template Numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 99, 1, 1});
      },
      "entry 2 is 99");
  for (const char* merge : {"ab", "a ", " b", "", " "}) {
    refused([&](auto& f) { f.Strings("tokenizer.ggml.merges", {"a b", merge}); }, "merges entry 1");
  }
  for (const char* name : {"bos", "eos", "eot", "unknown", "padding", "eom", "mask"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    for (const uint32_t id : {5U, 4294967295U}) {
      refused([&](auto& f) { f.U32(key, id); }, (key + " is " + std::to_string(id)).c_str());
    }
    refused([&](auto& f) { f.Key(key, 5, Raw<int32_t>(-1)); }, (key + " is -1").c_str());
  }
  GgufBuilder without_end = TinyLlama();
  without_end.RemoveKey("tokenizer.ggml.eos_token_id");
  auto checkpoint = Open(without_end);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_FALSE((*checkpoint)->tokenizer().gguf->eos_id.has_value());
}

TEST_F(GgufCheckpoint, ChatTemplates) {
  GgufBuilder file = TinyLlama();
  file.String("tokenizer.chat_template.tool_use", "T").String("tokenizer.chat_template", "D");
  auto checkpoint = Open(file);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ((*checkpoint)->chat_templates().size(), 2U);
  EXPECT_EQ((*checkpoint)->chat_templates()[0].name, "default");
  EXPECT_EQ((*checkpoint)->chat_templates()[0].source, "D");
  EXPECT_EQ((*checkpoint)->chat_templates()[1].name, "tool_use");
  file.U32("tokenizer.chat_template", 1);
  EXPECT_THAT(Refusal(file), HasSubstr("tokenizer.chat_template is a uint32"));
}

TEST_F(GgufCheckpoint, InspectAnswersForWhatCannotRun) {
  GgufBuilder file = Renamed("mamba");
  const std::string path = folder_.Write("model.gguf", file.Build());
  const auto summary = InspectCheckpoint(path);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->architecture, "mamba");
  EXPECT_EQ(summary->format, "GGUF v3");
  EXPECT_EQ(summary->tensors.size(), 21U);
  EXPECT_EQ(summary->tensors[0].name, "token_embd.weight");
  EXPECT_EQ(summary->tensors[0].shape, (std::vector<int64_t>{5, 8}));
  EXPECT_EQ(summary->tensors[0].bytes, 160);
  EXPECT_THAT(summary->tokenizer, HasSubstr("gpt2"));
  EXPECT_THAT(Message(summary->runnable), HasSubstr("mamba"));
  EXPECT_EQ(summary->digest.size(), 64U);
  EXPECT_FALSE(InspectCheckpoint(folder_.Write("bad.gguf", "GGUF")).ok());
  const auto runnable = InspectCheckpoint(folder_.Write("model.gguf", TinyLlama().Build()));
  ASSERT_TRUE(runnable.ok());
  EXPECT_TRUE(runnable->runnable.ok());
  EXPECT_EQ(runnable->digest, (*OpenCheckpoint(folder_.path() + "/model.gguf"))->Digest());
}

TEST_F(GgufCheckpoint, PathsThatAreNoModel) {
  EXPECT_EQ(OpenCheckpoint(folder_.path() + "/absent.gguf").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenCheckpoint("").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(OpenCheckpoint("/dev/null").ok());
  EXPECT_FALSE(OpenCheckpoint(folder_.path()).ok()) << "an empty folder";
  EXPECT_FALSE(OpenCheckpoint(folder_.Write("text.gguf", "model")).ok());
  EXPECT_FALSE(OpenCheckpoint(folder_.Write("empty.gguf", "")).ok());
}

}  // namespace
}  // namespace polysil
