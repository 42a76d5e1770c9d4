#include "trace/page.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "trace/page_files.h"
#include "trace/ranges.h"
#include "trace/texts.h"

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;

// A character that two tokens share is shown with the first of them, but never across the end of the prompt.
std::vector<std::string> ShownTexts(const Trace& trace) {
  const auto middle = trace.tokens.begin() + trace.prompt_tokens;
  std::vector<std::string> texts = TextsOfPieces({trace.tokens.begin(), middle});
  std::vector<std::string> answer = TextsOfPieces({middle, trace.tokens.end()});
  std::ranges::move(answer, std::back_inserter(texts));
  return texts;
}

// A list that is the same as in the layer below is null, as in the file (docs/trace.md).
Json LayersJson(const Trace& trace) {
  Json layers = Json::array();
  const std::vector<int32_t>* before = nullptr;
  for (const TraceLayer& layer : trace.prefill) {
    Json& out = layers.emplace_back(Json::object());
    out["kept"] = before != nullptr && *before == layer.kept ? Json() : Json(RangesText(layer.kept));
    out["ffn"] = layer.ffn == layer.kept ? Json() : Json(RangesText(layer.ffn));
    out["rows"] = layer.rows_per_head;
    out["density"] = layer.density;
    out["heads"] = layer.head_density;
    for (const std::vector<int32_t>& process : layer.computed) out["computed"].push_back(RangesText(process));
    before = &layer.kept;
  }
  return layers;
}

Json StepsJson(const Trace& trace) {
  Json steps = Json::array();
  for (const TraceStep& step : trace.steps) {
    Json events = Json::array();
    for (const TraceEvent& event : step.events) {
      events.push_back(
          {event.layer, kTraceEventNames[static_cast<size_t>(event.kind)], RangesText(event.positions)});
    }
    steps.push_back({{"position", step.position},
                     {"attended", step.attended},
                     {"bytes", {step.bytes.kv, step.bytes.aux, step.bytes.cold}},
                     {"events", std::move(events)}});
  }
  return steps;
}

// JSON that is safe inside <script>: < is escaped, so it cannot contain </script> or <!--.
std::string ForScript(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

// Moves the text before `mark` from `rest` to `page`, and removes the mark.
void CopyUpTo(std::string_view mark, std::string_view& rest, std::string& page) {
  const size_t at = rest.find(mark);
  COPPICE_CHECK(at != std::string_view::npos);
  page += rest.substr(0, at);
  rest.remove_prefix(at + mark.size());
}

// Modules as one script: without their imports, and with names of the page in place of exported ones.
std::string WithoutModuleSyntax(std::string_view script) {
  constexpr std::string_view kImport = "import ", kExport = "export ";
  std::string joined;
  while (!script.empty()) {
    const bool is_import = script.starts_with(kImport);
    if (script.starts_with(kExport)) script.remove_prefix(kExport.size());
    const size_t end = script.find(is_import ? ";\n" : "\n");
    COPPICE_CHECK(end != std::string_view::npos);
    const std::string_view line = script.substr(0, end + (is_import ? 2 : 1));
    if (!is_import) joined += line;
    script.remove_prefix(line.size());
  }
  return joined;
}

// The files whose names end in `type`, joined.
std::string PageFiles(std::string_view type) {
  std::string joined;
  for (const EmbeddedFile& file : TracePageFiles()) {
    if (!file.name.ends_with(type)) continue;
    joined += type == ".js" ? WithoutModuleSyntax(file.content) : std::string(file.content);
  }
  return joined;
}

}  // namespace

std::string TracePage(const Trace& trace) {
  COPPICE_CHECK(static_cast<int>(trace.prefill.size()) == trace.layers);
  COPPICE_CHECK(static_cast<int64_t>(trace.tokens.size()) >= trace.prompt_tokens);
  Json data = {{"model", trace.model},
               {"prune", trace.spec},
               {"backend", trace.backend},
               {"promptTokens", trace.prompt_tokens},
               {"entered", trace.entered.empty() ? Json() : Json(RangesText(trace.entered))},
               {"bytes", {trace.prefill_bytes.kv, trace.prefill_bytes.aux, trace.prefill_bytes.cold}},
               {"denseBytes", trace.kv_bytes_dense},
               {"layers", LayersJson(trace)},
               {"steps", StepsJson(trace)},
               {"texts", ShownTexts(trace)}};
  std::string page;
  const std::string frame = PageFiles(".html");
  std::string_view rest = frame;
  CopyUpTo("<!--coppice:style-->", rest, page);
  page += PageFiles(".css");
  CopyUpTo("<!--coppice:data-->", rest, page);
  page += ForScript(data);
  CopyUpTo("<!--coppice:script-->", rest, page);
  page += PageFiles(".js");
  page += rest;
  return page;
}

}  // namespace coppice
