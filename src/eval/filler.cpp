#include "eval/filler.h"

#include <array>
#include <cctype>

#include "base/error.h"
#include "base/mmap.h"
#include "eval/words.h"

namespace coppice {

namespace {

// %n thing, %a adjective, %p person, %v what a person did.
constexpr std::array<std::string_view, 24> kForms = {
    "%p %v the %a %n before the others came back from the %n.",
    "Nobody in the %n knew why %p had left so early.",
    "When the rain stopped, %p and %p %v a %n near the %a %n.",
    "It was a %a morning, and the road to the %n lay empty.",
    "They talked for a long while about the %n and the %a days of their youth.",
    "The %n stood behind the %n, as it always had.",
    "%p said that a %a %n was worth more than a %a one.",
    "On the way home %p %v a %n that somebody had forgotten under the %n.",
    "The %a %n and the %a %n were carried up the stairs.",
    "\"I would not go there without a %n,\" said %p.",
    "In the evening the wind turned, and the %n became %a.",
    "%p %v every %n twice, because the first time had brought no luck.",
    "Some of the people believed %p, and some did not.",
    "The letter spoke of a %n, of a %a journey, and of little else.",
    "There had been a time when every family owned a %n.",
    "%p asked for a %n, but there was only a %a %n left.",
    "The children ran past the %n and hid behind the %a %n.",
    "After supper %p %v the %n and went to sleep.",
    "Far away, on the other side of the %n, somebody was singing.",
    "It takes patience to make a %n out of a %n.",
    "The old songs tell of a %a %n that no one ever saw.",
    "%p had never been %a, not even as a child.",
    "Winter came late that year, and the %n stayed %a for weeks.",
    "Without a word %p put the %n on the table and %v it once more.",
};

std::string MadeSentence(Random& random) {
  const std::string_view form = random.Pick(kForms);
  std::string sentence;
  for (size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '%') {
      sentence += form[i];
      continue;
    }
    const char slot = form[++i];
    sentence += random.Pick(slot == 'n'   ? Nouns()
                            : slot == 'a' ? Adjectives()
                            : slot == 'p' ? People()
                                          : PastVerbs());
  }
  return sentence;
}

bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

}  // namespace

Filler::Filler(const std::string& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  sentences_ = SplitSentences({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (sentences_.empty()) throw Error("[eval] {}: holds no sentence to hide things between", path);
}

std::vector<std::string> Filler::Sentences(int64_t count, Random& random) const {
  std::vector<std::string> sentences;
  size_t at = sentences_.empty() ? 0 : static_cast<size_t>(random.Below(sentences_.size()));
  for (int64_t i = 0; i < count; ++i) {
    if (sentences_.empty()) {
      sentences.push_back(MadeSentence(random));
    } else {
      sentences.push_back(sentences_[at]);
      at = (at + 1) % sentences_.size();
    }
  }
  return sentences;
}

std::vector<std::string> SplitSentences(std::string_view text) {
  std::vector<std::string> sentences;
  std::string sentence;
  bool ended = false;  // at the end of a sentence, but for closing quotes
  for (const char c : text) {
    if (!IsSpace(c)) {
      const bool closes = c == '"' || c == '\'' || c == ')';
      ended = c == '.' || c == '!' || c == '?' || (ended && closes);
      sentence += c;
    } else if (ended) {
      sentences.push_back(std::move(sentence));
      sentence.clear();
      ended = false;
    } else if (!sentence.empty() && sentence.back() != ' ') {
      sentence += ' ';
    }
  }
  if (ended) sentences.push_back(std::move(sentence));
  return sentences;
}

std::string JoinSentences(const std::vector<std::string>& sentences, size_t per_paragraph) {
  std::string text;
  for (size_t i = 0; i < sentences.size(); ++i) {
    if (i > 0) text += i % per_paragraph == 0 ? '\n' : ' ';
    text += sentences[i];
  }
  return text;
}

}  // namespace coppice
