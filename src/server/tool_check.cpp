#include "server/tool_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_seconds.h"
#include "base/error.h"
#include "formats/json.h"
#include "grammar/schema_check.h"

namespace coppice {

using nlohmann::ordered_json;

ordered_json CallChecks::Errors(const ordered_json& tools, const ToolCall& call, size_t number) {
  ordered_json errors = ordered_json::array();
  const auto add = [&](const std::string& path, const std::string& message) {
    errors.push_back({{"tool_call", number}, {"name", call.name}, {"path", path}, {"message", message}});
  };
  const auto tool = std::ranges::find_if(
      tools, [&](const ordered_json& one) { return one["function"]["name"] == call.name; });
  if (tool == tools.end()) return errors;
  const auto schema = (*tool)["function"].find("parameters");
  if (schema == (*tool)["function"].end() || !schema->is_object() || schema->empty()) return errors;
  if (spent_ > kMostSeconds) {
    add("", "not checked: the reply's calls before it took all the time that there is");
    return errors;
  }
  const double start = ThreadCpuSeconds();
  try {
    const OwnedJson<ordered_json> arguments = ParseOrderedJson(call.arguments, "arguments");
    for (const SchemaFault& fault : CheckSchema(*schema, *arguments)) add(fault.path, fault.message);
  } catch (const Error& error) {
    add("", fmt::format("not checked: {}", error.what()));
  }
  spent_ += ThreadCpuSeconds() - start;
  return errors;
}

}  // namespace coppice
