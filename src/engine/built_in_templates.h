// Chat templates for models whose files have none.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

// ChatML, which stands in where a model's files have no chat template (ChatTemplateOf). Its turns end with
// kChatMlEnd, which is text to a model without such a token.
extern const std::string kChatMl;
inline constexpr const char* kChatMlEnd = "<|im_end|>";
// Templates that are built in, by llama.cpp's names: chatml, llama3, command-r, gemma. Empty for other names.
std::string BuiltInTemplate(std::string_view name);
// The model's chat template; `with_tools`: the one for chats with tools, if the model has a second one for
// them. In its place, Gemma's for a model with Gemma's control tokens, else kChatMl.
const std::string& ChatTemplateOf(const Tokenizer& tokenizer, bool with_tools = false);

}  // namespace coppice
