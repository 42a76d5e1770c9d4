#include "server/log_prob_list.h"

#include <fmt/format.h>

#include <cmath>

#include "server/errors.h"
#include "server/text_stream.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

// JSON has no infinity; vLLM writes this in its place.
double Shown(double log_prob) { return std::isfinite(log_prob) ? log_prob : -9999.0; }

ordered_json ByteList(const std::string& bytes) {
  ordered_json list = ordered_json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

std::string TokenLabel(const std::string& bytes) {
  if (IsWholeUtf8(bytes)) return bytes;
  std::string label = "bytes:";
  for (const char c : bytes) label += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return label;
}

void LogProbList::Add(int32_t id, const std::string& bytes, const TokenLogProbs* known) {
  // A control token has no bytes in the text; a text's first token may lack the space that its name has.
  const std::string shown = bytes.empty() ? Bytes(id) : bytes;
  const std::string label = TokenLabel(shown);
  if (size_ > 0) {
    for (std::string& list : lists_) list += ',';
  }
  if (is_chat_) {
    lists_[0] += ChatEntry(id, label, shown, known);
  } else {
    lists_[0] += DumpJson(label);
    lists_[1] += known != nullptr ? DumpJson(Shown(known->token.value)) : "null";
    lists_[2] += known != nullptr ? Tops(label, *known) : "null";
    lists_[3] += std::to_string(offset_);
  }
  ++size_;
  offset_ += CountCharacters(bytes);
}

std::string LogProbList::Tops(const std::string& label, const TokenLogProbs& known) const {
  ordered_json top = ordered_json::object();
  for (const TokenLogProb& other : known.top) {
    top.emplace(TokenLabel(Bytes(other.id)), Shown(other.value));  // the first of a name stays
  }
  top.emplace(label, Shown(known.token.value));
  return DumpJson(top);
}

std::string LogProbList::ChatEntry(int32_t id, const std::string& label, const std::string& bytes,
                                   const TokenLogProbs* known) const {
  ordered_json tops = ordered_json::array();
  if (known != nullptr) {
    for (const TokenLogProb& other : known->top) {
      const std::string name = Bytes(other.id);
      tops.push_back({{"id", other.id},
                      {"token", TokenLabel(name)},
                      {"logprob", Shown(other.value)},
                      {"bytes", ByteList(name)}});
    }
  }
  return DumpJson({{"id", id},
                   {"token", label},
                   {"logprob", known != nullptr ? Shown(known->token.value) : -9999.0},
                   {"bytes", ByteList(bytes)},
                   {"top_logprobs", tops}});
}

size_t LogProbList::bytes() const {
  size_t sum = 0;
  for (const std::string& list : lists_) sum += list.size();
  return sum;
}

std::string LogProbList::TakeEntries() {
  std::string json = "[" + lists_[0] + "]";
  lists_ = {};
  size_ = 0;
  return json;
}

std::string LogProbList::Take(const LogProbList* front) {
  static constexpr const char* kNames[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
  std::string json = "{";
  json.reserve(bytes() + (front != nullptr ? front->bytes() : 0) + 128);
  for (size_t i = 0; i < (is_chat_ ? 1 : lists_.size()); ++i) {
    json += fmt::format("{}\"{}\":[", i > 0 ? "," : "", is_chat_ ? "content" : kNames[i]);
    if (front != nullptr) json += front->lists_[i];
    if (front != nullptr && front->size_ > 0 && size_ > 0) json += ',';
    json += lists_[i];
    json += ']';
  }
  lists_ = {};
  size_ = 0;
  return json + (is_chat_ ? ",\"refusal\":null}" : "}");
}

}  // namespace coppice
