// Renders Hugging Face chat templates with a small interpreter for the subset of Jinja2 that they use.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace coppice {

// A rendering that takes more than its budget of steps, memory or output.
class ChatTemplateLimit : public Error {
 public:
  using Error::Error;
};

class ChatTemplate {
 public:
  // Parses the template. Throws Error, with line and cause, for syntax outside the subset and for too deep
  // nesting.
  explicit ChatTemplate(const std::string& source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  // `context` holds messages, add_generation_prompt, bos_token, eos_token, tools, ... as Hugging Face's
  // apply_chat_template passes them. Object keys keep their order (nlohmann::ordered_json). Blocks are
  // trimmed (trim_blocks, lstrip_blocks). Throws Error for raise_exception, for a call of something
  // undefined, and ChatTemplateLimit when limits::kMaxTemplateSteps, kMaxTemplateMemoryBytes or
  // kMaxTemplateOutputBytes is exceeded. Throws Cancelled once `cancelled`, which may be null, is set.
  std::string Render(const nlohmann::ordered_json& context,
                     const std::atomic<bool>* cancelled = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
