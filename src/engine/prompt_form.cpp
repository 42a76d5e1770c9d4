#include "engine/prompt_form.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace coppice {

namespace {

constexpr size_t kLongLine = 300;  // bytes: a paragraph of a text

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Work on the whole text, wherever the words stand.
constexpr std::string_view kWholeText[] = {"summar",
                                           "tl;dr",
                                           "tldr",
                                           "main points",
                                           "key points",
                                           "main ideas",
                                           "main idea",
                                           "key takeaways",
                                           "takeaways",
                                           "an overview",
                                           "an outline",
                                           "an abstract",
                                           "text about?",
                                           "document about?",
                                           "article about?",
                                           "book about?",
                                           "story about?",
                                           "paraphrase",
                                           "zusammenfass",
                                           "r\xc3\xa9sum",
                                           "resumen",
                                           "resume el",
                                           "resuma ",
                                           "\xe6\x91\x98\xe8\xa6\x81",
                                           "\xe6\x80\xbb\xe7\xbb\x93"};
// The same at the beginning of a sentence.
constexpr std::string_view kWholeTextVerbs[] = {"fasse ",   "translate", "rewrite",          "proofread",
                                                "condense", "shorten",   "correct the text", "rephrase"};
constexpr std::string_view kContinueVerbs[] = {"continue",          "go on",      "keep writing", "write on",
                                               "complete the text", "finish the "};
// What asks without a question mark, in a last line.
constexpr std::string_view kAskingVerbs[] = {"name ",     "list ",    "find ",  "give ",
                                             "tell ",     "say ",     "quote ", "state ",
                                             "identify ", "extract ", "show ",  "explain "};
constexpr std::string_view kPolite[] = {"please ", "now ", "can you ", "could you ", "then "};

// Whether a sentence of the text begins with one of the verbs, behind a polite word or none.
template <size_t N>
bool SentenceBegins(std::string_view text, const std::string_view (&verbs)[N]) {
  bool begins = true;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' || c == '!' || c == '?' || c == '\n' || c == ':') {
      begins = true;
    } else if (begins && c != ' ') {
      std::string_view rest = text.substr(at);
      for (const std::string_view word : kPolite) {
        if (rest.starts_with(word)) rest.remove_prefix(word.size());
      }
      for (const std::string_view verb : verbs) {
        if (rest.starts_with(verb)) return true;
      }
      begins = false;
    }
  }
  return false;
}

// The last lines that are not blank, two of them.
std::string_view LastLines(std::string_view text) {
  size_t begin = text.size();
  for (int lines = 0; lines < 2 && begin > 0;) {
    const size_t end = begin;
    const size_t line = text.rfind('\n', end - 1);
    begin = line == std::string_view::npos ? 0 : line;
    const std::string_view body = text.substr(begin, end - begin);
    lines += body.find_first_not_of(" \t\r\n") != std::string_view::npos ? 1 : 0;
    if (line == std::string_view::npos) break;
  }
  return text.substr(begin);
}

// A question mark behind which no quotation mark ends somebody's words.
bool AsksOutsideQuotes(std::string_view text) {
  for (const std::string_view mark : {"?", "\xef\xbc\x9f", "\xd8\x9f"}) {
    for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
      const std::string_view rest = text.substr(at + mark.size());
      const bool quoted = rest.starts_with("\"") || rest.starts_with("'") ||
                          rest.starts_with("\xe2\x80\x9d") || rest.starts_with("\xe2\x80\x99") ||
                          rest.starts_with("\xc2\xbb");
      if (!quoted) return true;
    }
  }
  return false;
}

bool HasQuestion(std::string_view text) {
  const std::string_view lines = LastLines(text);
  if (AsksOutsideQuotes(lines)) return true;
  for (const std::string_view word : {"question:", "answer:", "query:", "find all"}) {
    if (lines.find(word) != std::string_view::npos) return true;
  }
  const std::string_view line = lines.substr(lines.find_last_of('\n', lines.find_last_not_of(" \t\r\n")) + 1);
  if (line.size() < kLongLine && SentenceBegins(line, kAskingVerbs)) return true;
  const size_t last = lines.find_last_not_of(" \t\r\n\"");
  return last != std::string_view::npos && lines[last] == ':';
}

}  // namespace

PromptForm FormOf(std::string_view ending, bool marked) {
  const std::string text = Lower(ending);
  const std::string_view asked = marked ? std::string_view(text) : LastLines(text);
  const bool whole = std::any_of(std::begin(kWholeText), std::end(kWholeText), [&](std::string_view words) {
    return asked.find(words) != std::string_view::npos;
  });
  if (whole || SentenceBegins(asked, kWholeTextVerbs)) return PromptForm::kSummary;
  if (SentenceBegins(asked, kContinueVerbs)) return PromptForm::kText;
  return marked || HasQuestion(text) ? PromptForm::kQuestion : PromptForm::kText;
}

}  // namespace coppice
