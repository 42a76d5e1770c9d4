// The parts of a message's content, in the forms of three APIs, as the text that the model reads.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace coppice {

inline constexpr size_t kMaxIgnored = 32;  // names that a reply lists, of up to 64 bytes

// Adds a name to a reply's `ignored_parameters`, once, as long as there is room.
void AddIgnored(std::string_view name, std::vector<std::string>& ignored);

// The text of a part or block: its own, that of a document or of a search result, or one line in brackets for
// what cannot be shown as text (a picture, a result of a tool that the server lacks); that type is then added
// to `ignored`. Nothing for what a model need not read again, such as thinking. Throws HttpError, naming
// `field`, for what is neither a text nor an object with a type.
std::optional<std::string> TextOfPart(const nlohmann::ordered_json& part, const std::string& field,
                                      std::vector<std::string>& ignored);

// The same for a content: null, a text, a part, or a list of parts, which become lines.
std::string TextOfContent(const nlohmann::ordered_json& content, const std::string& field,
                          std::vector<std::string>& ignored);

// Takes the parts that are thinking ({"type": "thinking"} of Anthropic and Mistral, {"type": "reasoning"})
// from a message's content, if that is a list, and returns their texts, with an empty line between them.
std::string TakeThoughts(nlohmann::ordered_json& content);

// A chat's messages as OpenAI's API has them, changed so that every content is a text, calls are in
// `tool_calls` and an assistant's thinking is in `reasoning_content`: parts, refusals, and the deprecated
// function_call and role function. Throws HttpError.
void SimplifyMessages(nlohmann::ordered_json& messages, std::vector<std::string>& ignored);

}  // namespace coppice
