// Embeddings: one job computes all texts of a request, one after the other.
#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>

#include "server/server.h"

namespace coppice {

namespace {

std::string Base64(std::span<const unsigned char> bytes) {
  constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t left = std::min<size_t>(bytes.size() - at, 3);
    unsigned bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < left ? bytes[at + i] : 0U);
    for (size_t i = 0; i < 4; ++i) text += i <= left ? kLetters[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

// fp32 in little-endian order, as OpenAI's clients read it.
std::string Base64(const std::vector<float>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return Base64(bytes);
}

constexpr int64_t kMostUnpooled = 4 << 20;  // values of one reply
constexpr int64_t kBytesPerValue = 12;      // of its text, on average

struct EmbeddingReplyOptions {
  std::string model;
  std::vector<std::string> ignored;  // fields
  bool as_base64 = false;
  bool is_native = false;  // llama.cpp's form: a list, and a list of vectors in each of its items
  int norm = 2;
  int64_t width = 0;      // of the model's states
  bool is_pooled = true;  // otherwise each text has a vector for each of its tokens, as they are
  int64_t tokens = 0;
  std::shared_ptr<void> admission;
};

class EmbeddingReply final : public JobEvents {
 public:
  EmbeddingReply(EmbeddingReplyOptions options, Metrics& metrics, std::shared_ptr<Exchange> exchange)
      : options_(std::move(options)), metrics_(metrics), exchange_(std::move(exchange)) {}

  void OnPrefix(int64_t) override {}
  void OnProgress(int64_t, int64_t, double) override {}
  void OnLogProbs(const TokenLogProbs&) override {}
  void OnText(int32_t, const std::string&) override {}

  void OnDone(const JobResult& result) override {
    int64_t values = 0;
    for (const auto& all : result.embeddings) values += std::ssize(all);
    if (!exchange_->Hold(values * kBytesPerValue)) return OnError(NoRoomForReplies());
    std::string body = Body(result.embeddings);
    EndRequest();
    metrics_.CountRequest(200);
    exchange_->Reply({.status = 200, .body = std::move(body)});
  }

  void OnError(const HttpFault& fault) override {
    EndRequest();
    metrics_.CountRequest(fault.status);
    exchange_->Reply(ErrorReply(fault));
  }

 private:
  void EndRequest() {
    options_.admission.reset();  // before the client sees the end and sends its next request
    exchange_->Note({fmt::format(" prompt={}", options_.tokens),
                     {{"model", options_.model}, {"prompt_tokens", options_.tokens}}});
  }

  // Written directly: a JSON document takes several times the memory.
  std::string Body(const std::vector<std::vector<float>>& embeddings) const {
    std::string list = "[";
    for (size_t index = 0; index < embeddings.size(); ++index) {
      const std::vector<float>& all = embeddings[index];
      std::string vector;
      for (size_t at = 0; at < all.size(); at += static_cast<size_t>(options_.width)) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
        std::vector<float> values(begin, begin + options_.width);
        if (options_.is_pooled) Normalize(options_.norm, values);
        if (at > 0) vector += ',';
        vector +=
            options_.as_base64 ? '"' + Base64(values) + '"' : fmt::format("[{}]", fmt::join(values, ","));
      }
      fmt::format_to(std::back_inserter(list), "{}{{{}\"index\":{},\"embedding\":{}}}", index == 0 ? "" : ",",
                     options_.is_native ? "" : "\"object\":\"embedding\",", index,
                     options_.is_native ? '[' + vector + ']' : vector);
    }
    list += ']';
    if (options_.is_native) return list;
    nlohmann::ordered_json rest = {
        {"model", options_.model},
        {"usage", {{"prompt_tokens", options_.tokens}, {"total_tokens", options_.tokens}}}};
    if (!options_.ignored.empty()) rest["ignored_parameters"] = options_.ignored;
    return fmt::format("{{\"object\":\"list\",\"data\":{},{}", list, DumpJson(rest).substr(1));
  }

  EmbeddingReplyOptions options_;
  Metrics& metrics_;
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

void Server::Embeddings(const HttpRequest& request, const ExchangePtr& exchange) {
  const Parameters p = ParseParameters(request.body, kEmbeddings, options_.defaults);
  auto job = std::make_shared<Job>();
  job->pooling = p.pooling;
  job->request.use_documents = false;
  job->request.documents_owner = OwnerOf(request, p);
  std::vector<int32_t>& all = job->request.tokens;
  for (const PromptInput& input : p.prompts) {
    const std::shared_ptr<const EncodedPrompt> text = Encode(input, "input", p, request.cancelled.get());
    all.insert(all.end(), text->tokens.begin(), text->tokens.end());
    job->texts.push_back(text->tokens);
  }
  const int64_t width = engine_->model().config().shape.hidden;
  if (p.dimensions != 0 && p.dimensions != width)
    throw BadField("dimensions", fmt::format("{}: the model's vectors have {}", p.dimensions, width));
  const bool is_native = request.path != "/v1/embeddings";
  const bool is_pooled = p.pooling != Pooling::kNone;
  if (!is_pooled && !is_native)
    throw BadField("pooling", "none is for /embeddings: a text has one vector here");
  if (!is_pooled && std::ssize(all) * width > kMostUnpooled)
    throw BadField("input", fmt::format("{} tokens are too many without pooling; the most is {}", all.size(),
                                        kMostUnpooled / width));
  job->events = std::make_shared<EmbeddingReply>(EmbeddingReplyOptions{.model = options_.alias,
                                                                       .ignored = p.ignored,
                                                                       .as_base64 = p.as_base64,
                                                                       .is_native = is_native,
                                                                       .norm = static_cast<int>(p.norm),
                                                                       .width = width,
                                                                       .is_pooled = is_pooled,
                                                                       .tokens = std::ssize(all),
                                                                       .admission = request.admission},
                                                 metrics_, exchange);
  Start({job}, p, request, exchange);
}

}  // namespace coppice
