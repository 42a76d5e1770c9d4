// What a prompt asks for, by its last words: calibrations are measured on questions, and say nothing about a
// summary or a text to continue.
#pragma once

#include <string_view>

namespace coppice {

enum class PromptForm { kQuestion, kSummary, kText };

// `ending`: the text of the question's last tokens, or of the prompt's. `marked`: it is a question of its
// own, a chat's message or a span that the caller named, and not the end of a text that may hold no question.
//
// A summary, a translation or another work on the whole text is known by English words and those of a few
// other languages; whatever else is marked passes for a question. Unmarked text is a question if its last
// lines have one: a question mark outside quotation marks, "Question:", or a colon at the end.
PromptForm FormOf(std::string_view ending, bool marked);

}  // namespace coppice
