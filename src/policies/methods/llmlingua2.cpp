// LLMLingua-2: a classifier, trained on texts that GPT-4 compressed, reads the prompt first, in chunks of 512
// tokens of its own. Words that it would leave out do not enter the model.
//
//   p(t) = the probability of class 1 of token t                          (1) engine/word_classifier.h
//   p(w) = mean of p(t) over the tokens of word w                         (2)
//   T    = percentile of p over a chunk's tokens, at 100 (1 - keep) + 1   (3) linear between ranks
//   S    = the words with p(w) > T, and those with p(w) = T = 1           (4)
//
// In (3) a word counts as often as it has tokens of the model (the authors' program: of GPT-3.5, whose
// vocabulary is not here). With keep = 1 every token stays. A token of the model stays if it holds a byte of
// a word of S; white space goes with the words, as in the authors' program, which joins words anew. Control
// tokens always stay.
//
// force=ends sets p of ".", "?" and "!" to 1, digits=keep that of parts with a digit. repeated=drop: a forced
// word that equals the forced word before it, with no word above percentile 100 (1 - keep) between them, gets
// p = 0 and, right behind its equal, is dropped.
//
// The method does not know which part of a prompt is the question. Protect it (Protection::last), because the
// authors compress only the context. FTP's authors compare with keep = 0.2.
//
// Cost: one pass of the classifier over the text, counted in the ledger and in TTFT.
// Sources: Pan et al., "LLMLingua-2: data distillation for efficient and faithful task-agnostic prompt
// compression", arXiv 2403.12968; the rules (3), (4) and of forced words from
// https://github.com/microsoft/LLMLingua, prompt_compressor.py.
#include "policies/methods/llmlingua2.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "policies/stages.h"

namespace coppice {

namespace {

bool IsEnd(std::string_view text) { return text == "." || text == "?" || text == "!"; }

// As NumPy: linear between the two nearest ranks. `values` is not empty.
double Percentile(std::vector<float> values, int percent) {
  std::sort(values.begin(), values.end());
  const double rank = std::min(percent, 100) / 100.0 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(rank);
  const size_t high = std::min(low + 1, values.size() - 1);
  const double part = rank - static_cast<double>(low);
  return values[low] + part * (static_cast<double>(values[high]) - values[low]);
}

// The words of one chunk.
class Chunk {
 public:
  Chunk(const LlmLingua2Config& config, std::span<const ReadWord> words, std::span<const int64_t> weights)
      : config_(config), words_(words), weights_(weights) {
    for (const ReadWord& word : words) {
      probability_.push_back(Mean(word));
      texts_.emplace_back();
      for (const ReadWord::Part& part : word.parts) texts_.back() += part.text;
    }
  }

  // Which of the words stay.
  std::vector<bool> Choose() {
    std::vector<bool> stay(words_.size());
    const double reduce = std::max(0.0, 1 - config_.keep);
    if (config_.drop_repeated) ZeroRepeated(Percentile(probability_, static_cast<int>(100 * reduce)));
    std::vector<float> weighted;
    for (size_t w = 0; w < words_.size(); ++w)
      weighted.insert(weighted.end(), static_cast<size_t>(weights_[w]), probability_[w]);
    if (weighted.empty()) return stay;
    const double threshold = Percentile(std::move(weighted), static_cast<int>(100 * reduce + 1));  // (3)
    std::string_view last;  // the word that stayed last
    for (size_t w = 0; w < words_.size(); ++w) {
      const double p = probability_[w];
      if (!(p > threshold || (threshold == 1 && p == threshold))) continue;  // (4)
      if (config_.drop_repeated && IsForced(w) && last == texts_[w]) continue;
      last = words_[w].spaced ? std::string_view() : texts_[w];  // the mark of a space makes words differ
      stay[w] = true;
    }
    return stay;
  }

 private:
  float Mean(const ReadWord& word) const {  // (2)
    float sum = 0;
    for (const ReadWord::Part& part : word.parts) {
      const bool end = &part == &word.parts.front() && IsEnd(part.text);
      const bool forced = (config_.force_ends && end) || (config_.force_digits && part.digit);
      sum += forced ? 1 : part.keep;
    }
    return sum / static_cast<float>(word.parts.size());
  }

  bool IsForced(size_t w) const { return config_.force_ends && !words_[w].spaced && IsEnd(texts_[w]); }

  void ZeroRepeated(double threshold) {
    bool between = false;
    std::string_view before;
    for (size_t w = 0; w < words_.size(); ++w) {
      float& p = probability_[w];
      if (!IsForced(w)) {
        between |= p > threshold;
        continue;
      }
      if (between) {
        between = false;
      } else if (texts_[w] == before) {
        p = 0;
      }
      before = texts_[w];
    }
  }

  const LlmLingua2Config& config_;
  std::span<const ReadWord> words_;
  std::span<const int64_t> weights_;
  std::vector<std::string> texts_;
  std::vector<float> probability_;
};

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::vector<bool> ChooseWords(const LlmLingua2Config& config, std::span<const ReadWord> words,
                              std::span<const int64_t> weights) {
  std::vector<bool> stay;
  for (size_t begin = 0; begin < words.size();) {
    size_t end = begin;
    while (end < words.size() && words[end].chunk == words[begin].chunk) ++end;
    const std::vector<bool> of_chunk =
        Chunk(config, words.subspan(begin, end - begin), weights.subspan(begin, end - begin)).Choose();
    stay.insert(stay.end(), of_chunk.begin(), of_chunk.end());
    begin = end;
  }
  return stay;
}

LlmLingua2Policy::LlmLingua2Policy(LlmLingua2Config config, std::vector<std::string> pieces, WordReader read)
    : TextInputPolicy(std::move(pieces), config.compact),
      config_(std::move(config)),
      read_(std::move(read)) {}

TokenSet LlmLingua2Policy::Input(int64_t tokens, Backend& /*be*/) {
  if (config_.keep >= 1) return TokenSet::All(tokens);
  COPPICE_CHECK(std::ssize(pieces()) == tokens);
  const std::vector<ReadWord> words = read_();
  std::string text;
  std::vector<size_t> token_of;  // of each byte
  for (size_t t = 0; t < pieces().size(); ++t) {
    text += pieces()[t];
    token_of.resize(text.size(), t);
  }
  std::vector<int64_t> weights;
  for (const ReadWord& word : words) {
    const size_t begin = word.parts.front().begin, end = word.parts.back().end;
    COPPICE_CHECK(begin <= end && end <= text.size());
    weights.push_back(end > begin ? static_cast<int64_t>(token_of[end - 1] - token_of[begin]) + 1 : 0);
  }
  const std::vector<bool> chosen = ChooseWords(config_, words, weights);
  std::vector<bool> stays(pieces().size());
  for (size_t w = 0; w < words.size(); ++w) {
    if (!chosen[w]) continue;
    for (size_t i = words[w].parts.front().begin; i < words[w].parts.back().end; ++i) {
      if (!IsAsciiSpace(text[i])) stays[token_of[i]] = true;
    }
  }
  return Staying([&](size_t t) { return stays[t]; });
}

namespace {

Keys LlmLingua2Keys(LlmLingua2Config& c, const ModelShape& /*shape*/) {
  return {
      Keys::File("model", &c.model, "a Hugging Face folder",
                 "the classifier: BERT or XLM-RoBERTa, safetensors",
                 "LLMLingua-2's classifier; its authors publish two"),
      {"keep", &c.keep, kAboveZero, 1, "share of the tokens to keep (the authors' rate)"},
      {"force", &c.force_ends, "none ends", "ends: . ? and ! always stay"},
      {"digits", &c.force_digits, "choose keep", "keep: words with digits always stay"},
      {"repeated", &c.drop_repeated, "keep drop", "drop: of forced words next to each other one stays"},
      {"positions", &c.compact, "original compact",
       "compact: the remaining tokens are renumbered without gaps"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeLlmLingua2(const MethodSpec& spec, const MethodContext& context) {
  LlmLingua2Config c;
  Keys keys = LlmLingua2Keys(c, context.shape);
  keys.Read(spec);
  return MakeTextInput<LlmLingua2Policy>(keys, c, context, context.open_words);
}

}  // namespace

MethodInfo LlmLingua2Method() {
  return {"llmlingua2",
          "drop words that a trained classifier would leave out, before the model",
          "LLMLingua-2, arXiv 2403.12968",
          kSelectsInput,
          HelpOf(&LlmLingua2Keys),
          &MakeLlmLingua2};
}

}  // namespace coppice
