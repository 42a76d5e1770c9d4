#include "server/log_prob_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/json.h"
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
  Entry entry{TokenLabel(shown), shown, offset_, std::nullopt};
  if (known != nullptr) entry.known = *known;
  entries_.push_back(std::move(entry));
  offset_ += CountCharacters(bytes);
}

ordered_json LogProbList::TakeCompletion() {
  const ordered_json none = ordered_json::array();
  OwnedJson<ordered_json> lists = ordered_json(
      {{"tokens", none}, {"token_logprobs", none}, {"top_logprobs", none}, {"text_offset", none}});
  ordered_json& tokens = (*lists)["tokens"];
  ordered_json& values = (*lists)["token_logprobs"];
  ordered_json& tops = (*lists)["top_logprobs"];
  ordered_json& offsets = (*lists)["text_offset"];
  for (const Entry& entry : entries_) {
    tokens.push_back(entry.label);
    offsets.push_back(entry.offset);
    values.push_back(nullptr);
    tops.push_back(nullptr);
    if (!entry.known) continue;
    values.back() = Shown(entry.known->token.value);
    ordered_json top = ordered_json::object();
    for (const TokenLogProb& other : entry.known->top) {
      top.emplace(TokenLabel(Bytes(other.id)), Shown(other.value));  // the first of a name stays
    }
    top.emplace(entry.label, Shown(entry.known->token.value));
    tops.back() = std::move(top);
  }
  entries_.clear();
  return lists.Take();
}

ordered_json LogProbList::TakeChat() {
  OwnedJson<ordered_json> list = ordered_json({{"content", ordered_json::array()}, {"refusal", nullptr}});
  ordered_json& content = (*list)["content"];
  for (const Entry& entry : entries_) {
    ordered_json tops = ordered_json::array();
    if (entry.known) {
      for (const TokenLogProb& other : entry.known->top) {
        const std::string bytes = Bytes(other.id);
        tops.push_back(
            {{"token", TokenLabel(bytes)}, {"logprob", Shown(other.value)}, {"bytes", ByteList(bytes)}});
      }
    }
    content.push_back({{"token", entry.label},
                       {"logprob", entry.known ? Shown(entry.known->token.value) : -9999.0},
                       {"bytes", ByteList(entry.bytes)},
                       {"top_logprobs", tops}});
  }
  entries_.clear();
  return list.Take();
}

}  // namespace coppice
