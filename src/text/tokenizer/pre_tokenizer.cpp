// Follows Hugging Face's tokenizers 0.21 (as documented in its API reference, and case by case).
#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/merger.h"
#include "text/tokenizer/text_json.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

// The text in bloom's tokenizer.json: a class inside a class, which regex engines interpret differently. It
// means kBloomRegex.
constexpr std::string_view kBloomNestedRegex = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

struct Marked {
  TextRange range;
  bool match;
};

void AppendMerged(const std::vector<Marked>& parts, SplitBehavior behavior, std::vector<TextRange>& out) {
  const size_t first = out.size();
  bool before = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Marked& part : parts) out.push_back(part.range);
      return;
    case SplitBehavior::kRemoved:
      for (const Marked& part : parts) {
        if (!part.match) out.push_back(part.range);
      }
      return;
    case SplitBehavior::kMergedWithPrevious:
      for (const Marked& part : parts) {
        const bool join = part.match && !before && out.size() > first;
        if (join) out.back().end = part.range.end;
        if (!join) out.push_back(part.range);
        before = part.match;
      }
      return;
    case SplitBehavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        const bool join = part->match && !before && out.size() > first;
        if (join) out.back().begin = part->range.begin;
        if (!join) out.push_back(part->range);
        before = part->match;
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
      return;
    case SplitBehavior::kContiguous:
      for (const Marked& part : parts) {
        const bool join = out.size() > first && part.match == before;
        if (join) out.back().end = part.range.end;
        if (!join) out.push_back(part.range);
        before = part.match;
      }
      return;
  }
}

// Splits every piece at the matches that Find appends for its text.
class Splitter : public PreTokenizer {
 public:
  Splitter(SplitBehavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}

  void Apply(Pieces& pieces) const override {
    std::vector<TextRange> out;
    std::vector<TextRange> matches;
    std::vector<Marked> parts;
    for (const TextRange piece : pieces.ranges) {
      matches.clear();
      parts.clear();
      ThrowIfCancelled(pieces.cancelled);
      Find(std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), matches,
           pieces.cancelled);
      size_t done = piece.begin;
      for (const TextRange match : matches) {
        const TextRange range{piece.begin + match.begin, piece.begin + match.end};
        if (done < range.begin) parts.push_back({{done, range.begin}, invert_});
        parts.push_back({range, !invert_});
        done = range.end;
      }
      if (done < piece.end) parts.push_back({{done, piece.end}, invert_});
      AppendMerged(parts, behavior_, out);
    }
    pieces.ranges = std::move(out);
  }

 protected:
  virtual void Find(std::string_view text, std::vector<TextRange>& matches,
                    const std::atomic<bool>* cancelled) const = 0;

 private:
  SplitBehavior behavior_;
  bool invert_;
};

class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(Regex regex, SplitBehavior behavior, bool invert)
      : Splitter(behavior, invert), regex_(std::move(regex)) {}

 protected:
  void Find(std::string_view text, std::vector<TextRange>& matches,
            const std::atomic<bool>* cancelled) const override {
    regex_.FindAll(text, matches, cancelled);
  }

 private:
  Regex regex_;
};

class StringSplitter final : public Splitter {
 public:
  StringSplitter(std::string pattern, SplitBehavior behavior, bool invert)
      : Splitter(behavior, invert), pattern_(std::move(pattern)) {}

 protected:
  void Find(std::string_view text, std::vector<TextRange>& matches, const std::atomic<bool>*) const override {
    for (size_t at = text.find(pattern_); at != std::string_view::npos; at = text.find(pattern_, at)) {
      matches.push_back({at, at + pattern_.size()});
      at += pattern_.size();
    }
  }

 private:
  std::string pattern_;
};

// Splits at single characters of a class: Digits and Punctuation.
class ClassSplitter final : public Splitter {
 public:
  ClassSplitter(bool (*is_member)(char32_t), SplitBehavior behavior)
      : Splitter(behavior, false), is_member_(is_member) {}

 protected:
  void Find(std::string_view text, std::vector<TextRange>& matches, const std::atomic<bool>*) const override {
    for (size_t at = 0; at < text.size();) {
      const Char c = DecodeUtf8(text, at);
      if (is_member_(c.code)) matches.push_back({at, at + c.size});
      at += c.size;
    }
  }

 private:
  bool (*is_member_)(char32_t);
};

// Rebuilds the text; `change` returns the new text of each piece.
template <typename Change>
void ChangePieces(Pieces& pieces, Change change) {
  std::string text;
  for (TextRange& range : pieces.ranges) {
    const size_t begin = text.size();
    change(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), range.begin, text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, ByteAlphabet alphabet)
      : add_prefix_space_(add_prefix_space),
        split_(use_regex ? MakeKnownSplit(kGpt2Regex) : nullptr),
        alphabet_(alphabet) {}

  void Apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      ChangePieces(pieces, [](std::string_view piece, size_t, std::string& out) {
        if (!piece.starts_with(' ')) out.push_back(' ');
        out.append(piece);
      });
    }
    if (split_ != nullptr) split_->Apply(pieces);
    if (alphabet_ == ByteAlphabet::kWritten) {
      ChangePieces(pieces, [](std::string_view piece, size_t, std::string& out) {
        for (const char c : piece) out += ByteLevelAlphabet()[static_cast<uint8_t>(c)];
      });
    }
  }
  ByteAlphabet Alphabet() const override { return alphabet_; }

 private:
  bool add_prefix_space_;
  std::unique_ptr<PreTokenizer> split_;
  ByteAlphabet alphabet_;
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split ? std::make_unique<StringSplitter>(replacement_, SplitBehavior::kMergedWithNext, false)
                     : nullptr) {}

  void Apply(Pieces& pieces) const override {
    const bool at_start = pieces.at_start;
    ChangePieces(pieces, [&](std::string_view piece, size_t begin, std::string& out) {
      const std::string replaced = ReplaceAll(piece, " ", replacement_);
      const bool wanted =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start && begin == 0);
      if (wanted && !replaced.starts_with(replacement_)) out.append(replacement_);
      out.append(replaced);
    });
    if (split_ != nullptr) split_->Apply(pieces);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  std::unique_ptr<PreTokenizer> split_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void Apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->Apply(pieces);
  }
  // The last part that sets an alphabet determines it.
  ByteAlphabet Alphabet() const override {
    ByteAlphabet alphabet = ByteAlphabet::kNone;
    for (const auto& part : parts_) {
      if (part->Alphabet() != ByteAlphabet::kNone) alphabet = part->Alphabet();
    }
    return alphabet;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeSplit(const SplitPattern& pattern, SplitBehavior behavior, bool invert,
                                        const std::string& source) {
  if (!pattern.is_regex) return std::make_unique<StringSplitter>(pattern.text, behavior, invert);
  const bool bloom = pattern.text == kBloomNestedRegex;
  return std::make_unique<RegexSplitter>(Regex(bloom ? std::string(kBloomRegex) : pattern.text, source),
                                         behavior, invert);
}
std::unique_ptr<PreTokenizer> MakeKnownSplit(std::string_view regex) {
  return MakeSplit({std::string(regex), true}, SplitBehavior::kIsolated, false, "a known pattern");
}
std::unique_ptr<PreTokenizer> MakeByteLevel(bool add_prefix_space, bool use_regex, ByteAlphabet alphabet) {
  return std::make_unique<ByteLevel>(add_prefix_space, use_regex, alphabet);
}
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}
std::unique_ptr<PreTokenizer> MakeDigits(bool individual) {
  const SplitBehavior behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  return std::make_unique<ClassSplitter>(IsNumber, behavior);
}
std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior) {
  return std::make_unique<ClassSplitter>(IsPunctuation, behavior);
}
std::unique_ptr<PreTokenizer> MakePreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

}  // namespace coppice
