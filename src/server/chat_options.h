// How a request wants its messages to be rendered.
#pragma once

#include <atomic>
#include <vector>

#include "engine/chat_prompt.h"
#include "server/parameters.h"

namespace coppice {

// `messages`: those of the request. Throws Error if it is not clear which of them the answer continues.
ChatOptions ChatOptionsOf(const Parameters& p, const std::vector<ChatMessage>& messages,
                          const std::atomic<bool>* cancelled);

}  // namespace coppice
