#include "train/texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/mmap.h"
#include "engine/chat_prompt.h"
#include "formats/json.h"

namespace coppice {

namespace {

using Format = TextOptions::Format;

constexpr size_t kLongestLine = 64u << 20;            // bytes
constexpr uint64_t kLargestFile = uint64_t{4} << 30;  // bytes

class TextReader {
 public:
  TextReader(const Tokenizer& tokenizer, int64_t vocab, const TextOptions& options)
      : tokenizer_(tokenizer), vocab_(vocab), options_(options) {}

  void Read(const std::string& path) {
    const MappedFile file(path);
    if (file.size() > kLargestFile) throw Error("[train] {}: larger than 4 GiB", path);
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.size());
    const bool lines = options_.format == Format::kJsonl ||
                       (options_.format == Format::kAuto && std::string_view(path).ends_with(".jsonl"));
    if (lines) {
      ReadLines(bytes, path);
    } else {
      ReadPlain(bytes);
    }
  }

  bool Full() const { return options_.limit > 0 && texts_.counts.used >= options_.limit; }
  Texts Take() { return std::move(texts_); }

 private:
  void ReadLines(std::string_view bytes, const std::string& path) {
    for (int64_t number = 1; !bytes.empty() && !Full(); ++number) {
      const size_t end = std::min(bytes.find('\n'), bytes.size());
      const std::string_view line = bytes.substr(0, end);
      bytes.remove_prefix(std::min(end + 1, bytes.size()));
      const std::string where = fmt::format("{}:{}", path, number);
      if (line.size() > kLongestLine) throw Error("[train] {}: the line is longer than 64 MiB", where);
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      AddRecord(ParseJson(line, where), where);
    }
  }

  static bool Has(const nlohmann::json& record, const char* key) {
    return record.contains(key) && !record[key].is_null();
  }

  static std::string Field(const nlohmann::json& record, const char* key, const std::string& where) {
    if (!Has(record, key)) throw Error("[train] {}: has no '{}'", where, key);
    if (!record[key].is_string()) throw Error("[train] {}: '{}' is not a string", where, key);
    return record[key].get<std::string>();
  }

  void AddRecord(const nlohmann::json& record, const std::string& where) {
    if (!record.is_object()) throw Error("[train] {}: is not an object", where);
    std::string prompt;
    std::string response;
    if (Has(record, "prompt")) {
      prompt = Field(record, "prompt", where);
      response = Field(record, "answer", where);
    } else {
      prompt = Field(record, "instruction", where);
      const char* context = Has(record, "context") ? "context" : "input";
      if (Has(record, context)) {
        const std::string text = Field(record, context, where);
        if (!text.empty()) prompt += "\n\n" + text;
      }
      if (!options_.chat) prompt += "\n\n";
      response = Field(record, Has(record, "response") ? "response" : "output", where);
    }
    Add(Tokenize(prompt, response));
  }

  // In chat mode, prompt and response are encoded separately, because the end of a template is a token
  // boundary. Otherwise they are encoded together, because characters on both sides of the boundary may form
  // one token; the prompt is then the common prefix of both encodings.
  TrainingText Tokenize(const std::string& prompt, const std::string& response) const {
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    TrainingText text;
    if (options_.chat) {
      text.tokens = EncodeChatText({{"user", prompt}}, tokenizer_).tokens();
      text.prompt = static_cast<int64_t>(text.tokens.size());
      const std::vector<int32_t> answer = tokenizer_.Encode(response, plain);
      text.tokens.insert(text.tokens.end(), answer.begin(), answer.end());
      return text;
    }
    const EncodeOptions whole{.add_special = true, .parse_special = false};
    const std::vector<int32_t> alone = tokenizer_.Encode(prompt, whole);
    text.tokens = tokenizer_.Encode(prompt + response, whole);
    text.prompt = std::ranges::mismatch(alone, text.tokens).in1 - alone.begin();
    return text;
  }

  void Add(TrainingText text) {
    const auto size = static_cast<int64_t>(text.tokens.size());
    // Half of a long response still shows which prompt tokens matter.
    const int64_t needed = text.prompt + (size - text.prompt + 1) / 2;
    if (text.prompt < options_.shortest || size <= text.prompt) {
      ++texts_.counts.too_short;
    } else if (needed > options_.longest) {
      ++texts_.counts.too_long;
    } else {
      text.tokens.resize(static_cast<size_t>(std::min(size, options_.longest)));
      Keep(std::move(text));
    }
  }

  void Keep(TrainingText text) {
    for (const int32_t id : text.tokens) {
      if (id < 0 || id >= vocab_) {
        throw Error("[train] the tokenizer gives token {}, the model has {} of them", id, vocab_);
      }
    }
    texts_.texts.push_back(std::move(text));
    ++texts_.counts.used;
  }

  void ReadPlain(std::string_view bytes) {
    const std::vector<int32_t> ids = tokenizer_.Encode(bytes, {.add_special = false, .parse_special = false});
    const std::vector<int32_t> special = tokenizer_.Encode("", {.add_special = true, .parse_special = false});
    const bool has_start = !special.empty() && tokenizer_.bos() == special.front();
    const size_t step = static_cast<size_t>(options_.longest) - (has_start ? 1 : 0);
    for (size_t begin = 0; begin < ids.size() && !Full(); begin += step) {
      TrainingText text;
      if (has_start) text.tokens.push_back(special.front());
      text.tokens.insert(text.tokens.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
                         ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + step, ids.size())));
      const auto size = static_cast<int64_t>(text.tokens.size());
      text.prompt = size - std::min(options_.response, std::max<int64_t>(1, size / 4));
      Add(std::move(text));
    }
  }

  const Tokenizer& tokenizer_;
  int64_t vocab_;
  const TextOptions& options_;
  Texts texts_;
};

}  // namespace

Texts ReadTexts(const std::vector<std::string>& files, const Tokenizer& tokenizer, int64_t vocab,
                const TextOptions& options) {
  if (options.chat && tokenizer.chat_template().empty())
    throw FieldError("chat", ": the model has no chat template");
  TextReader reader(tokenizer, vocab, options);
  for (const std::string& file : files) {
    if (!reader.Full()) reader.Read(file);
  }
  Texts texts = reader.Take();
  if (texts.counts.used == 0) {
    throw Error("[train] {}: no text to train on: {} are longer than {} tokens, {} have prompts below {}",
                files.front(), texts.counts.too_long, options.longest, texts.counts.too_short,
                options.shortest);
  }
  return texts;
}

}  // namespace coppice
