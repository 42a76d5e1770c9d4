// coppice in a C++ program: a model that reads long prompts, prunes them while it reads, and answers.
//
//   coppice::Llm llm("model.gguf", {.prune = "auto"});
//   std::cout << llm.Ask(report, "Who signed it?").text;
//
// All functions may be called from several threads at once: the engine gives turns, and every answer is, to
// the bit, the one that its request would get alone. They throw LlmError, and let through what a callback
// throws. A process that was forked from one with a model must load its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coppice/answer.h"
#include "coppice/document.h"
#include "coppice/error.h"
#include "coppice/export.h"
#include "coppice/request.h"

namespace coppice {

class COPPICE_API Llm {
 public:
  // `path`: a GGUF file or a Hugging Face folder.
  explicit Llm(const std::string& path, const LlmOptions& options = {});
  ~Llm();  // cancels what is being computed
  Llm(Llm&&) noexcept;
  Llm& operator=(Llm&&) noexcept;

  // The question about the document, in the model's chat template.
  LlmAnswer Ask(std::string_view document, std::string_view question, const LlmRequest& request = {});
  // Reads the document, so that its questions begin where it ends.
  LlmDocument Read(std::string document, const LlmRequest& request = {});
  LlmAnswer Chat(const std::vector<LlmMessage>& messages, const LlmRequest& request = {});
  // Continues a text, or tokens as they are.
  LlmAnswer Generate(std::string_view prompt, const LlmRequest& request = {});
  LlmAnswer Generate(const std::vector<int32_t>& tokens, const LlmRequest& request = {});

  // The natural log-probability of each token after the first, given those before it, in a dense run.
  std::vector<double> Score(const std::vector<int32_t>& tokens);
  // A vector of length 1, of the mean of the final hidden states.
  std::vector<float> Embed(std::string_view text);
  std::vector<int32_t> Tokenize(std::string_view text, bool add_bos = true);
  std::string Detokenize(const std::vector<int32_t>& tokens);

  // Any route of docs/server.md: POST /v1/chat/completions, say. `on_bytes` gets the reply, events of a
  // stream as they come. Returns the reply. An error status throws LlmError.
  std::string Call(const std::string& method, const std::string& path, const std::string& json = {},
                   const std::function<bool(std::string_view bytes)>& on_bytes = {});
  // Serves the model over HTTP as well, on 127.0.0.1 or the --host of LlmOptions::more. Returns the port; 0:
  // any.
  int Listen(int port = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
