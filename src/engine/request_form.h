// What a request's prompt asks for.
#pragma once

#include "engine/prompt_form.h"
#include "engine/request.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// By the last tokens of the question, or of the prompt where the request marks none. A question without a
// tokenizer, and for a request that reads a beginning and answers nothing.
PromptForm FormOfRequest(const Request& request, const Tokenizer* tokenizer);

}  // namespace coppice
