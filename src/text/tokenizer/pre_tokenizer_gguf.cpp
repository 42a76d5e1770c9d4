// The pre-tokenizers that tokenizer.ggml.pre names, as in llama.cpp's llama-vocab.cpp and unicode.cpp. Files
// in GGUF are made for llama.cpp, so where its expressions differ from those of the model's tokenizer.json,
// these are llama.cpp's. "tekken" and "gpt-4o" with its kin keep the published ones, which tell the cases of
// all letters apart, not only of ASCII's, and leave marks in words.
#include <algorithm>
#include <array>
#include <utility>

#include "text/tokenizer/pre_tokenizer.h"

namespace coppice {
namespace {

constexpr std::string_view kNewlineRegex = R"([\r\n])";
constexpr std::string_view kOneNumberRegex = R"(\p{N})";
constexpr std::string_view kThreeNumbersRegex = R"(\p{N}{1,3})";
constexpr std::string_view kLinesRegex = R"([^\n]+|\n+)";

// Falcon's symbols are those of "default" and the backtick.
constexpr std::string_view kFalconSymbolsRegex = R"([\p{P}\$\+<=>\^~\|`]+)";

// DeepSeek LLM: letters with cases, then ASCII and full-width punctuation. llama.cpp counts U+3000, which is
// in the published class, as white space only.
constexpr std::string_view kDeepseekLettersRegex =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ)"
    R"(Ὀ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯ)"
    R"(ꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepseekPunctuationRegex = R"(\s?[!-/:-~！-／：-～‘-‟、-。]+)";
// \s+$, without a look at the same run of spaces from each of them.
constexpr std::string_view kTrailingSpaceRegex = R"((?<!\s)\s++$)";
// U+0800 to U+9FA5 and Hangul, without white space.
constexpr std::string_view kDeepseekEastRegex = R"([^\s\x{0}-\x{7FF}\x{9FA6}-\x{ABFF}\x{E000}-\x{10FFFF}]+)";
constexpr std::string_view kCoderWordsRegex = R"(\s?\p{L}+)";
constexpr std::string_view kCoderPunctuationRegex = R"(\s?\p{P}+)";

// DeepSeek V3: kana and Chinese characters, then words.
constexpr std::string_view kKanaHanRegex = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
constexpr std::string_view kDeepseek3Regex =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSparkRegex =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
// AFMoE's Asian scripts. Its range of compatibility ideographs begins at U+8C48, which is what U+F900 becomes
// in NFC, and so reaches over Yi, Hangul and the private use area.
constexpr std::string_view kAsianRegex =
    R"([\x{3400}-\x{4DBF}\x{4E00}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF})"
    R"(\x{0E40}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{1100}-\x{11FF}]+)";

// Groups of three numbers that end where their run ends, so that the first has what is left over. llama.cpp
// leaves the text before a run in one piece with the first group. A match begins at the start, behind a run
// or inside one; only there does it look ahead, to the end of one run.
constexpr std::string_view kNumberGroupsRegex =
    R"((?<=\p{N})\p{N}{3}|(?<!\P{N})\P{N}*+\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N})))";
// (?=([0-9]{3})+(?![0-9])) matches nothing and splits where it does; this matches what is between.
constexpr std::string_view kBetweenThousandsRegex =
    R"((?<=[0-9])[0-9]{3}(?=[0-9])|\p{N}(?:(?!(?:[0-9]{3})++(?![0-9]))\p{N})*+)";

// llama.cpp does not tell the letters' cases apart here.
constexpr std::string_view kTinyAyaRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutuScriptsRegex =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
    R"(|[！…“”‘’—：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+)"
    R"(|[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
constexpr std::string_view kYoutuRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Words without marks and without Chinese characters: llama.cpp's ranges of them, which are not the script's.
constexpr std::string_view kKimiRegex =
    R"([\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF})"
    R"(\x{2F800}-\x{2FA1F}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[^\P{L}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF})"
    R"(\x{2A700}-\x{2EBEF}\x{2F800}-\x{2FA1F}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Relatives of Llama 3's and Qwen 2's.
constexpr std::string_view kSeedCoderRegex =
    R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5Regex =
    R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Turkish has suffixes behind apostrophes, so contractions are not split off.
constexpr std::string_view kUfakZekaRegex =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words with single spaces between them are one piece. (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+, without ways back.
constexpr std::string_view kExaoneMoeRegex =
    R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}\p{M}*+(?: ?\p{L}\p{M}*+)*+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n])"
    R"(|\s+(?!\S)|\s+)";
// Runs of spaces are cut to powers of two. Inside a run, newlines are not looked for again: there are none.
constexpr std::string_view kJais2Regex =
    R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|(?<![^\S\r\n])\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)";

constexpr std::string_view kSentinelRegex = "<sentinel:[0-9]+>";
constexpr std::string_view kImageTokenRegex = "IMGIMG[A-I]{1,4}Z";
constexpr std::string_view kTabsRegex = R"([\t\n]|    |  )";
constexpr std::string_view kOnePunctuationRegex = R"([\p{P}!-/:-@\[-`{-~])";

// `splits`: expressions, up to an empty one. Each splits the pieces that the one before left into its matches
// and what is between them.
struct GgufName {
  std::string_view name;
  std::array<std::string_view, 6> splits;
  WholePieces whole = WholePieces::kNone;
  GgufBos add_bos = GgufBos::kNo;
  GgufText text = GgufText::kBytes;
};

constexpr WholePieces kAll = WholePieces::kAll;
constexpr WholePieces kNewlines = WholePieces::kNewlines;

// But for "default".
constexpr std::array kGgufNames = std::to_array<GgufName>({
    {"gpt-2", {kGpt2Regex}},
    {"gpt2", {kGpt2Regex}},
    {"xgen", {kGpt2Regex}},
    {"mpt", {kGpt2Regex}},
    {"olmo", {kGpt2Regex}},
    {"jais", {kGpt2Regex}},
    {"phi-2", {kGpt2Regex}},
    {"gigachat", {kGpt2Regex}},
    {"a.x-4.0", {kGpt2Regex}},
    {"mellum", {kGpt2Regex}},
    {"exaone4", {kGpt2Regex}},
    {"trillion", {kGpt2Regex}},
    {"granite-docling", {kGpt2Regex}},
    {"modern-bert", {kGpt2Regex}},
    {"jina-es", {kGpt2Regex}},
    {"jina-de", {kGpt2Regex}},
    {"jina-v2-es", {kGpt2Regex}},
    {"jina-v2-de", {kGpt2Regex}},
    {"jina-v1-en", {kGpt2Regex}},
    {"jina-v2-code", {kGpt2Regex}},
    {"roberta-bpe", {kGpt2Regex}},
    {"starcoder", {kOneNumberRegex, kGpt2Regex}},
    {"refact", {kOneNumberRegex, kGpt2Regex}},
    {"command-r", {kOneNumberRegex, kGpt2Regex}},
    {"smollm", {kOneNumberRegex, kGpt2Regex}},
    {"codeshell", {kOneNumberRegex, kGpt2Regex}},
    {"exaone", {kOneNumberRegex, kGpt2Regex}},
    {"minerva-7b", {kOneNumberRegex, kGpt2Regex}},
    {"mellum2", {kOneNumberRegex, kGpt2Regex}},
    {"llama-bpe", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"llama3", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"llama-v3", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"falcon3", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"falcon-h1", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"midm-2.0", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"lfm2", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"pixtral", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"jina-v5-nano", {kLlama3Regex}, kAll, GgufBos::kYes},
    {"dbrx", {kLlama3Regex}},
    {"smaug-bpe", {kLlama3Regex}},
    {"chatglm-bpe", {kLlama3Regex}},
    {"glm4", {kLlama3Regex}, kAll},
    {"glm5", {kLlama3Regex}, kAll},
    {"qwen2", {kQwen2Regex}},
    {"stablelm2", {kQwen2Regex}},
    {"deepseek-r1-qwen", {kQwen2Regex}},
    {"megrez", {kQwen2Regex}},
    {"hunyuan", {kQwen2Regex}},
    {"kormo", {kQwen2Regex}},
    {"solar-open", {kQwen2Regex}},
    {"grok-2", {kQwen2Regex}},
    {"f2llmv2", {kQwen2Regex}},
    {"qwen35", {kQwen35Regex}},
    {"laguna", {kLinesRegex, kQwen2Regex}},
    {"ufakzeka", {kUfakZekaRegex}},
    {"seed-coder", {kSeedCoderRegex}},
    {"bailingmoe", {kQwen2Regex}},
    {"bailingmoe2", {kQwen2Regex}},
    {"llada-moe", {kQwen2Regex}},
    {"minicpm5", {kThreeNumbersRegex, kMiniCpm5Regex}, kAll},
    {"jais-2", {kJais2Regex}},
    {"exaone-moe", {kExaoneMoeRegex}},
    {"tekken", {kTekkenRegex}, kAll, GgufBos::kYes},
    {"gpt-4o", {kGpt4oRegex}},
    {"llama4", {kGpt4oRegex}},
    {"kanana2", {kGpt4oRegex}},
    {"minimax-m2", {kGpt4oRegex}},
    {"talkie", {kGpt4oRegex}},
    {"kimi-k2", {kKimiRegex}},
    {"youtu", {kYoutuScriptsRegex, kYoutuRegex}, kAll},
    {"tiny_aya", {kNumberGroupsRegex, kTinyAyaRegex}},
    {"cohere2moe", {kNumberGroupsRegex, kTinyAyaRegex}},
    {"afmoe", {kNumberGroupsRegex, kAsianRegex, kDeepseek3Regex}},
    {"superbpe", {kNumberRegex, kBetweenThousandsRegex}},
    {"bloom", {kBloomRegex}},
    {"gpt3-finnish", {kBloomRegex}},
    {"poro-chat", {kBloomRegex}},
    {"viking", {kBloomRegex, kOneNumberRegex}},
    {"falcon", {kFalconSymbolsRegex, kGpt2Regex, kThreeDigitsRegex}},
    {"deepseek-llm",
     {kNewlineRegex, kDeepseekLettersRegex, kDeepseekPunctuationRegex, kTrailingSpaceRegex,
      kDeepseekEastRegex, kNumberRegex}},
    {"deepseek-coder",
     {kNewlineRegex, kCoderWordsRegex, kCoderPunctuationRegex, kDeepseekEastRegex, kOneNumberRegex}},
    {"deepseek-v3", {kThreeNumbersRegex, kKanaHanRegex, kDeepseek3Regex}},
    {"hunyuan-dense", {kThreeNumbersRegex, kKanaHanRegex, kDeepseek3Regex}},
    {"joyai-llm", {kThreeNumbersRegex, kKanaHanRegex, kDeepseek3Regex}},
    {"hy_v4", {kThreeNumbersRegex, kKanaHanRegex, kDeepseek3Regex}},
    {"spark2_5", {kThreeNumbersRegex, kKanaHanRegex, kSparkRegex, kOneNumberRegex}},
    {"chameleon",
     {kSentinelRegex, kImageTokenRegex, kTabsRegex, kOneNumberRegex, kOnePunctuationRegex, kGpt2Regex},
     WholePieces::kNone,
     GgufBos::kYes},
    {"gemma4", {kLinesRegex}, kNewlines, GgufBos::kAlways, GgufText::kCharacters},
    {"granite-embed-multi-311m", {kLinesRegex}, kNewlines, GgufBos::kAlways, GgufText::kCharacters},
    {"sarvam-moe", {kLinesRegex}, WholePieces::kNone, GgufBos::kNo, GgufText::kCharacters},
});

}  // namespace

GgufPreTokenizer DefaultGgufPreTokenizer() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const std::string_view regex : {kSymbolsRegex, kGpt2Regex, kNumberRegex, kThreeDigitsRegex})
    parts.push_back(MakeKnownSplit(regex));
  parts.push_back(MakeByteLevel(false, false));
  return {MakePreTokenizerSequence(std::move(parts))};
}

std::optional<GgufPreTokenizer> PreTokenizerFromGgufName(std::string_view name) {
  if (name == "default") return DefaultGgufPreTokenizer();
  const auto* known =
      std::find_if(kGgufNames.begin(), kGgufNames.end(), [&](const GgufName& n) { return n.name == name; });
  if (known == kGgufNames.end()) return std::nullopt;
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const std::string_view regex : known->splits) {
    if (!regex.empty()) parts.push_back(MakeKnownSplit(regex));
  }
  if (known->text == GgufText::kBytes) parts.push_back(MakeByteLevel(false, false));
  return GgufPreTokenizer{MakePreTokenizerSequence(std::move(parts)), known->whole, known->add_bos,
                          known->text};
}

}  // namespace coppice
