// The replies to POST /v1/responses.
#include <fmt/format.h>

#include "server/errors.h"
#include "server/responses_form.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

// A function that a client sent within a namespace is called by both names, as Codex and openai's client read
// them.
template <typename Block>
ordered_json ItemJson(const Block& block, bool whole, const BlockReplyOptions& options) {
  const auto& functions = options.functions;
  const char* status = !whole ? "in_progress" : block.is_cut ? "incomplete" : "completed";
  if (block.is_thought) {
    ordered_json item = {{"type", "reasoning"},
                         {"id", "rs_" + block.id},
                         {"status", status},
                         {"summary", ordered_json::array()},
                         {"content", ordered_json::array()}};
    if (whole) item["content"].push_back({{"type", "reasoning_text"}, {"text", block.text}});
    if (options.returns_thinking)
      item["encrypted_content"] = std::string(kKeptThinking) + (whole ? block.text : std::string());
    return item;
  }
  if (block.call) {
    ordered_json item = {{"type", "function_call"},  {"id", "fc_" + block.id},
                         {"call_id", block.id},      {"status", status},
                         {"name", block.call->name}, {"arguments", whole ? block.call->arguments : ""}};
    if (const auto found = functions.find(block.call->name); found != functions.end()) {
      item["name"] = found->second.name;
      item["namespace"] = found->second.space;
    }
    return item;
  }
  ordered_json item = {{"type", "message"},
                       {"id", block.id},
                       {"status", status},
                       {"role", "assistant"},
                       {"content", ordered_json::array()}};
  if (whole)
    item["content"].push_back(
        {{"type", "output_text"}, {"text", block.text}, {"annotations", ordered_json::array()}});
  return item;
}

}  // namespace

ordered_json ResponsesReply::Response(const char* status) const {
  const Parameters& p = options().parameters;
  const bool is_incomplete = std::string_view(status) == "incomplete";
  ordered_json tools = ordered_json::array();
  for (const ordered_json& tool : *p.tools) {
    ordered_json flat = {{"type", "function"}};
    flat.update(tool["function"]);
    tools.push_back(std::move(flat));
  }
  return {{"id", options().id},
          {"object", "response"},
          {"created_at", options().created},
          {"status", status},
          {"error", nullptr},
          {"incomplete_details",
           is_incomplete ? ordered_json({{"reason", "max_output_tokens"}}) : ordered_json()},
          {"model", options().model},
          {"output", ordered_json::array()},
          {"parallel_tool_calls", p.parallel_tool_calls},
          {"tool_choice", p.tool_choice == ToolChoice::kNone   ? "none"
                          : p.tool_choice == ToolChoice::kAuto ? "auto"
                                                               : "required"},
          {"tools", std::move(tools)},
          {"temperature", p.sampling.temperature},
          {"top_p", p.sampling.top_p},
          {"store", false}};
}

ordered_json ResponsesReply::Whole(const End& end) {
  ordered_json response = Response(end.finish_reason == "length" ? "incomplete" : "completed");
  for (const Block& block : blocks()) response["output"].push_back(ItemJson(block, true, options()));
  response["usage"] = {{"input_tokens", options().prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", cached()}}},
                       {"output_tokens", end.sampled},
                       {"output_tokens_details", {{"reasoning_tokens", end.thinking}}},
                       {"total_tokens", options().prompt_tokens + end.sampled}};
  response.update(end.more);
  return response;
}

std::string ResponsesReply::TypedText(const std::string& type, ordered_json data) {
  ordered_json event = {{"type", type}, {"sequence_number", sent_++}};
  event.update(data);
  return EventText(type, event);
}

void ResponsesReply::SendTyped(const std::string& type, ordered_json data) {
  Send(TypedText(type, std::move(data)));
}

void ResponsesReply::SendBegin() {
  for (const char* type : {"response.created", "response.in_progress"})
    SendTyped(type, {{"response", Response("in_progress")}});
}

void ResponsesReply::SendBlock(size_t index, const Block& block) {
  const ordered_json item = ItemJson(block, false, options());
  SendTyped("response.output_item.added", {{"output_index", index}, {"item", item}});
  if (block.call) return;
  SendTyped("response.content_part.added",
            {{"item_id", item["id"]},
             {"output_index", index},
             {"content_index", 0},
             {"part", block.is_thought ? ordered_json({{"type", "reasoning_text"}, {"text", ""}})
                                       : ordered_json({{"type", "output_text"},
                                                       {"text", ""},
                                                       {"annotations", ordered_json::array()}})}});
}

void ResponsesReply::SendText(size_t index, const Block& block, const std::string& text) {
  if (block.call) {
    return SendTyped("response.function_call_arguments.delta",
                     {{"item_id", "fc_" + block.id}, {"output_index", index}, {"delta", text}});
  }
  if (block.is_thought) {
    return SendTyped(
        "response.reasoning_text.delta",
        {{"item_id", "rs_" + block.id}, {"output_index", index}, {"content_index", 0}, {"delta", text}});
  }
  SendTyped("response.output_text.delta", {{"item_id", block.id},
                                           {"output_index", index},
                                           {"content_index", 0},
                                           {"delta", text},
                                           {"logprobs", ordered_json::array()}});
}

void ResponsesReply::SendBlockEnd(size_t index, const Block& block) {
  const ordered_json item = ItemJson(block, true, options());
  if (block.call) {
    SendTyped("response.function_call_arguments.done", {{"item_id", item["id"]},
                                                        {"output_index", index},
                                                        {"name", item["name"]},
                                                        {"arguments", block.call->arguments}});
  } else {
    const ordered_json place = {{"item_id", item["id"]}, {"output_index", index}, {"content_index", 0}};
    ordered_json done = place;
    done["text"] = block.text;
    if (!block.is_thought) done["logprobs"] = ordered_json::array();
    SendTyped(block.is_thought ? "response.reasoning_text.done" : "response.output_text.done",
              std::move(done));
    ordered_json part = place;
    part["part"] = item["content"][0];
    SendTyped("response.content_part.done", std::move(part));
  }
  SendTyped("response.output_item.done", {{"output_index", index}, {"item", item}});
}

// Codex reads the first event, openai's client raises at the second.
std::string ResponsesReply::ErrorEvents(const HttpFault& fault) {
  const ordered_json code = fault.more.contains("code") ? fault.more["code"] : ordered_json(fault.type);
  ordered_json response = Response("failed");
  response["error"] = {{"code", code}, {"message", fault.message}};
  const std::string failed = TypedText("response.failed", {{"response", std::move(response)}});
  return failed +
         TypedText("error", {{"error", {{"type", fault.type}, {"code", code}, {"message", fault.message}}}});
}

void ResponsesReply::SendEnd(const End& end) {
  const ordered_json whole = Whole(end);
  SendTyped(end.finish_reason == "length" ? "response.incomplete" : "response.completed",
            {{"response", whole}});
}

}  // namespace coppice
