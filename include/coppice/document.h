// A document that was read once and is asked several times.
#pragma once

#include <string>
#include <string_view>

#include "coppice/answer.h"
#include "coppice/export.h"
#include "coppice/request.h"

namespace coppice {

class Llm;

// It refers to its model, which must outlive it. What was read stays in the model's cache until that needs
// the room; a question after that reads the document again.
class COPPICE_API LlmDocument {
 public:
  LlmAnswer Ask(std::string_view question, const LlmRequest& request = {}) const;
  const std::string& text() const { return text_; }

 private:
  friend class Llm;
  LlmDocument(Llm& llm, std::string text) : llm_(&llm), text_(std::move(text)) {}
  Llm* llm_;
  std::string text_;
};

}  // namespace coppice
