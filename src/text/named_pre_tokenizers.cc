// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre. The expressions are those of the
// models' own tokenizers, as docs of those models publish them; where several stand in a list, each
// splits the pieces that the one before left.
#include <algorithm>
#include <optional>

#include "text/pre_tokenizer.h"

namespace polysil {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kNumber = R"(\p{N})";
constexpr std::string_view kDefault1 = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kDefault3 = R"(\p{N}+)";
constexpr std::string_view kDefault4 = R"([0-9][0-9][0-9])";
constexpr std::string_view kLlama3 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekLlm1 = R"([\r\n])";
constexpr std::string_view kDeepseekLlm2 =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-)"
    R"(ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮ)"
    R"(ⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepseekLlm3 = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepseekLlm4 = R"(\s+$)";
constexpr std::string_view kDeepseekLlm5 = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kDeepseekCoder2 = R"(\s?\p{L}+)";
constexpr std::string_view kDeepseekCoder3 = R"(\s?\p{P}+)";
constexpr std::string_view kDeepseekV31 = R"(\p{N}{1,3})";
constexpr std::string_view kDeepseekV32 = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kDeepseekV33 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S))"
    R"(|\s+)";
constexpr std::string_view kYoutu1 =
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kYoutu2 =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS])"
    R"(|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS)"
    R"(]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kFalcon1 = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kJais2 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S))"
    R"(|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
    R"(|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kGemma4 = R"([^\n]+|[\n]+)";
constexpr std::string_view kQwen2 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kChameleon1 = R"(<sentinel:[0-9]+>)";
constexpr std::string_view kChameleon2 = R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)";
constexpr std::string_view kChameleon3 = R"(([\t\n]|    |  ))";
constexpr std::string_view kChameleon5 = R"([\p{P}!-/:-@\[-`{-~])";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s)"
    R"(|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{)"
    R"(Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTinyAya =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS])"
    R"(|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS)"
    R"(]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailingMoe =
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+)"
    R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{L)"
    R"(m}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p)"
    R"({M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kAfmoe1 =
    R"([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)";
constexpr std::string_view kAfmoe2 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S))"
    R"(|\s+)";

struct Entry {
  std::vector<std::string_view> names;
  std::vector<std::string_view> regexes;
  std::optional<DigitGroups> digit_groups = std::nullopt;
  bool byte_level = true;
  bool ignore_merges = false;
  bool add_bos = false;
};

const std::vector<Entry>& Table() {
  static const std::vector<Entry> table = {
      {.names = {"default"}, .regexes = {kDefault1, kGpt2, kDefault3, kDefault4}},
      {.names = {"llama3", "llama-v3", "llama-bpe", "laguna", "falcon3", "falcon-h1", "pixtral",
                 "midm-2.0", "lfm2", "jina-v5-nano"},
       .regexes = {kLlama3},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, .regexes = {kLlama3}},
      {.names = {"deepseek-llm"},
       .regexes = {kDeepseekLlm1, kDeepseekLlm2, kDeepseekLlm3, kDeepseekLlm4, kDeepseekLlm5,
                   kDefault3}},
      {.names = {"deepseek-coder"},
       .regexes = {kDeepseekLlm1, kDeepseekCoder2, kDeepseekCoder3, kDeepseekLlm5, kNumber}},
      {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
       .regexes = {kDeepseekV31, kDeepseekV32, kDeepseekV33}},
      {.names = {"youtu"}, .regexes = {kYoutu1, kYoutu2}, .ignore_merges = true},
      {.names = {"falcon"}, .regexes = {kFalcon1, kGpt2, kDefault4}},
      {.names = {"mpt", "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es",
                 "jina-v2-de", "a.x-4.0", "mellum", "modern-bert", "jina-v1-en", "jina-v2-code",
                 "roberta-bpe", "olmo", "jais", "exaone4", "trillion", "granite-docling"},
       .regexes = {kGpt2}},
      {.names = {"starcoder", "mellum2", "refact", "command-r", "cohere2_moe", "smollm",
                 "codeshell", "exaone", "minerva-7b"},
       .regexes = {kNumber, kGpt2}},
      {.names = {"jais-2"}, .regexes = {kJais2}},
      {.names = {"gemma4"}, .regexes = {kGemma4}, .byte_level = false},
      {.names = {"qwen2", "deepseek-r1-qwen", "kormo", "openpangu", "f2llmv2", "stablelm2",
                 "megrez", "hunyuan", "grok-2", "solar-open"},
       .regexes = {kQwen2}},
      {.names = {"qwen35"}, .regexes = {kQwen35}},
      {.names = {"poro-chat", "bloom", "gpt3-finnish"}, .regexes = {kBloom}},
      {.names = {"viking"}, .regexes = {kBloom, kNumber}},
      {.names = {"tekken"}, .regexes = {kTekken}, .ignore_merges = true, .add_bos = true},
      {.names = {"exaone-moe"}, .regexes = {kExaoneMoe}},
      {.names = {"chameleon"},
       .regexes = {kChameleon1, kChameleon2, kChameleon3, kNumber, kChameleon5, kGpt2},
       .add_bos = true},
      {.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2"}, .regexes = {kO200k}},
      {.names = {"tiny_aya"}, .regexes = {kTinyAya}, .digit_groups = DigitGroups::kDigitsAtWordEnd},
      {.names = {"superbpe"}, .regexes = {kDefault3}, .digit_groups = DigitGroups::kDigits},
      {.names = {"bailingmoe", "bailingmoe2", "llada-moe"}, .regexes = {kBailingMoe}},
      {.names = {"seed-coder"}, .regexes = {kSeedCoder}},
      {.names = {"kimi-k2"}, .regexes = {kKimiK2}},
      {.names = {"afmoe"}, .regexes = {kAfmoe1, kAfmoe2}, .digit_groups = DigitGroups::kNumbers},
  };
  return table;
}

}  // namespace

StatusOr<NamedPreTokenizer> MakeNamedPreTokenizer(std::string_view name) {
  if (name.empty()) {
    return InvalidArgument(
        "the file has no tokenizer.ggml.pre, and without it the text cannot be split as the model "
        "was trained; convert the model again with a current converter");
  }
  const auto entry = std::find_if(Table().begin(), Table().end(), [name](const Entry& e) {
    return std::find(e.names.begin(), e.names.end(), name) != e.names.end();
  });
  if (entry == Table().end()) {
    return InvalidArgument("tokenizer.ggml.pre is '{}', which is not a known pre-tokenizer", name);
  }
  std::vector<std::unique_ptr<SplitStep>> steps;
  const auto add_digit_groups = [&] {
    if (entry->digit_groups) steps.push_back(SplitDigitGroups(*entry->digit_groups));
  };
  // superbpe groups digits within the numbers that its expression found, the others before it.
  const bool digits_first = entry->digit_groups != DigitGroups::kDigits;
  if (digits_first) add_digit_groups();
  for (const std::string_view pattern : entry->regexes) {
    ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
    steps.push_back(SplitByRegex(std::move(regex), SplitBehavior::kIsolated, false));
  }
  if (!digits_first) add_digit_groups();
  return NamedPreTokenizer{.pre_tokenizer = PreTokenizer(std::move(steps)),
                           .byte_level = entry->byte_level,
                           .ignore_merges = entry->ignore_merges,
                           .add_bos = entry->add_bos};
}

}  // namespace polysil
