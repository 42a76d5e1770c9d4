// How a request wants its messages to be rendered.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/chat_prompt.h"
#include "server/parameters.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// `messages`: those of the request. Throws Error if it is not clear which of them the answer continues.
ChatOptions ChatOptionsOf(const Parameters& p, const std::vector<ChatMessage>& messages,
                          const Tokenizer& tokenizer, const std::atomic<bool>* cancelled);

// How many tokens the answer may think; nullopt: as many as it likes.
std::optional<int64_t> ThinkingBudgetOf(const Parameters& p);

}  // namespace coppice
