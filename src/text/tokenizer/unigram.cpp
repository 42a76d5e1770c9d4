// SentencePiece's Unigram model, as XLM-RoBERTa uses it:
//   1. replace characters by the charsmap, by grapheme; cut at white space; a word begins with U+2581
//   2. the tokens of a word: of all ways to cut it, the one with the greatest sum of log probabilities
// A character without a token costs the least log probability - 10; unknown neighbours are one token.
// Sources: Kudo, "Subword regularization", arXiv 1804.10959; tokenizers of Hugging Face, Unigram and
// spm_precompiled (read for the rules).
#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/encoder_tokenizer.h"
#include "text/tokenizer/encoder_words.h"
#include "text/unicode/unicode.h"

namespace coppice {

namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
constexpr double kUnknownPenalty = 10;
constexpr size_t kLongGrapheme = 6;  // from here on its characters are replaced one by one
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// How the best cut reaches a place of a word.
struct Arrival {
  double score = -std::numeric_limits<double>::infinity();
  size_t from = 0;
  int32_t id = 0;
};

class Unigram final : public EncoderTokenizer {
 public:
  explicit Unigram(UnigramParts parts) : parts_(std::move(parts)), charsmap_(MapOf(parts_)) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t id = 0; id < parts_.tokens.size(); ++id) {
      ids_.Add(parts_.tokens[id].first, static_cast<int32_t>(id));
      least = std::min(least, parts_.tokens[id].second);
    }
    unknown_score_ = least - kUnknownPenalty;
    vocab_size_ = std::ssize(parts_.tokens);
    if (parts_.unknown < 0 || parts_.unknown >= vocab_size_)
      throw Error("[tokenizer] {}: unk_id {} is no token", parts_.source, parts_.unknown);
    first_ = ids_.Need("<s>", parts_.source);
    last_ = ids_.Need("</s>", parts_.source);
    full_stop_ = ids_.Find(".");
  }

  std::string_view Text(int32_t id) const override {
    std::string_view text = parts_.tokens.at(static_cast<size_t>(id)).first;
    while (text.starts_with(kMark)) text.remove_prefix(kMark.size());
    return text;
  }

  std::vector<PlacedToken> Encode(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    EncoderWord word;  // with the mark
    const auto end_word = [&] {
      if (!word.text.empty()) Cut(word, tokens);
      word = {};
    };
    // A replaced piece of the text: its bytes join the word, white space ends it.
    const auto take = [&](std::string_view replaced, size_t begin, size_t end) {
      for (size_t at = 0; at < replaced.size();) {
        const Char c = DecodeUtf8(replaced, at);
        const std::string_view bytes =
            c.code == kInvalidByte ? kReplacementCharacter : replaced.substr(at, c.size);
        at += c.size;
        if (c.code != kInvalidByte && IsWhiteSpace(c.code)) {
          end_word();
          continue;
        }
        if (word.text.empty()) word.Append(kMark, begin, begin);
        word.Append(bytes, begin, end);
      }
    };
    for (size_t at = 0; at < text.size();) {
      const size_t size = GraphemeSize(text, at);
      const std::string_view grapheme = text.substr(at, size);
      const auto whole = size < kLongGrapheme ? charsmap_.Replacement(grapheme) : std::nullopt;
      if (whole) {
        take(*whole, at, at + size);
        at += size;
        continue;
      }
      for (const size_t end = at + size; at < end;) {
        const Char c = DecodeUtf8(text, at);
        const std::string_view character = text.substr(at, c.size);
        take(charsmap_.Replacement(character).value_or(character), at, at + c.size);
        at += c.size;
      }
    }
    end_word();
    return tokens;
  }

 private:
  static Charsmap MapOf(const UnigramParts& parts) {
    return parts.charsmap.empty() ? Charsmap() : Charsmap(parts.charsmap, parts.source);
  }

  // The best way to reach each place; places inside a character are never reached.
  std::vector<Arrival> Best(const std::string& word) const {
    std::vector<Arrival> best(word.size() + 1);
    best[0].score = 0;
    for (size_t begin = 0; begin < word.size();) {
      const size_t next = begin + DecodeUtf8(word, begin).size;
      bool single = false;  // a token for the one character
      const auto arrive = [&](size_t end, double score, int32_t id) {
        if (best[begin].score + score > best[end].score) best[end] = {best[begin].score + score, begin, id};
      };
      for (size_t end = next; end <= word.size() && end - begin <= ids_.longest();) {
        const int32_t id = ids_.Find(std::string_view(word).substr(begin, end - begin));
        if (id != EncoderIds::kNone) {
          arrive(end, parts_.tokens[static_cast<size_t>(id)].second, id);
          single |= end == next;
        }
        if (end == word.size()) break;
        end += DecodeUtf8(word, end).size;
      }
      if (!single) arrive(next, unknown_score_, parts_.unknown);
      begin = next;
    }
    return best;
  }

  void Cut(const EncoderWord& word, std::vector<PlacedToken>& tokens) const {
    const std::vector<Arrival> best = Best(word.text);
    std::vector<std::pair<size_t, int32_t>> cuts;  // begin and id, from the end
    for (size_t end = word.text.size(); end > 0; end = best[end].from)
      cuts.emplace_back(best[end].from, best[end].id);
    std::reverse(cuts.begin(), cuts.end());
    for (size_t i = 0; i < cuts.size(); ++i) {
      const auto [begin, id] = cuts[i];
      const size_t end = i + 1 < cuts.size() ? cuts[i + 1].first : word.text.size();
      const bool unknown = id == parts_.unknown;
      if (unknown && i > 0 && cuts[i - 1].second == id) {
        tokens.back().end = word.ends[end - 1];
        continue;
      }
      const std::string_view text = std::string_view(word.text).substr(begin, end - begin);
      const bool marked = text.starts_with(kMark);
      tokens.push_back({.id = id,
                        .begin = word.begins[begin],
                        .end = word.ends[end - 1],
                        .begins_word = !unknown && (marked || IsPunctuationRun(text)),
                        .marked = marked,
                        .unknown = unknown});
    }
  }

  // `text in string.punctuation` of Python: one mark of ASCII, or several in the order of that string.
  static bool IsPunctuationRun(std::string_view text) {
    constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    return kPunctuation.find(text) != std::string_view::npos;
  }

  UnigramParts parts_;
  Charsmap charsmap_;
  EncoderIds ids_;  // of parts_.tokens
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<EncoderTokenizer> MakeUnigram(UnigramParts parts) {
  return std::make_unique<Unigram>(std::move(parts));
}

}  // namespace coppice
