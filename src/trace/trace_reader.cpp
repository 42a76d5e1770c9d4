#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/mmap.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "trace/ranges.h"
#include "trace/trace_file.h"

namespace coppice {
namespace {

using nlohmann::json;

// Maximum number of positions in all lists of a file: 1 GiB. A limit on the file's size would not bound the
// memory, because a range of any length takes a few bytes. A million tokens kept in all of 80 layers take 0.6
// GiB.
constexpr int64_t kMaxPositions = int64_t{1} << 28;
constexpr uint64_t kMaxFileBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxLineBytes = 64 << 20;             // a header of a million tokens has 7 MB
constexpr int64_t kMaxTokens = 2 * limits::kMaxContext;  // prompt and answer
constexpr int64_t kMaxBytes = int64_t{1} << 53;          // exact in the page's numbers
constexpr int64_t kMaxProcesses = 4096;

// The lines of a file, one after the other.
class Lines {
 public:
  explicit Lines(const std::string& path) : file_(path) {
    if (file_.size() > kMaxFileBytes) {
      throw Error("[trace] {}: {} bytes, the limit is {}", path, file_.size(), kMaxFileBytes);
    }
    rest_ = {reinterpret_cast<const char*>(file_.bytes().data()), file_.size()};
  }

  // Parses the next line. `what` names the line in the error message if the file ends before it.
  json Next(const std::string& what) {
    ++number_;
    if (rest_.empty()) throw Error("[trace] {}: the file ends before {}", Here(), what);
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) throw Error("[trace] {}: the line is cut off", Here());
    if (end > kMaxLineBytes) {
      throw Error("[trace] {}: {} bytes, the limit is {}", Here(), end, kMaxLineBytes);
    }
    json line = ParseJson(rest_.substr(0, end), Here());
    rest_.remove_prefix(end + 1);
    if (!line.is_object()) throw Error("[trace] {}: no object", Here());
    return line;
  }
  void End() {
    ++number_;
    if (!rest_.empty()) throw Error("[trace] {}: more lines than layers and steps", Here());
  }

  std::string Here() const { return fmt::format("{}:{}", Printable(file_.path()), number_); }

 private:
  MappedFile file_;
  std::string_view rest_;
  int64_t number_ = 0;
};

// An object's fields, each checked when it is read.
class Fields {
 public:
  Fields(const json& object, std::string here) : object_(object), here_(std::move(here)) {
    if (!object.is_object()) Fail("no object");
  }

  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("[trace] {}: {}", here_, fmt::format(format, std::forward<Args>(args)...));
  }
  bool Has(const char* key) const { return object_.contains(key); }
  const json& At(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) Fail("no \"{}\"", key);
    return *found;
  }
  int64_t Int(const char* key, int64_t low, int64_t high) const { return Int(At(key), key, low, high); }
  int64_t Int(const json& value, const char* key, int64_t low, int64_t high) const {
    // The JSON library stores integers from 0 on as unsigned; get<int64_t>() turns those above INT64_MAX
    // negative.
    const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                                 : value.is_number_integer();
    if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
      Fail("\"{}\" is {}, not an integer of {} to {}", key, Shown(value), low, high);
    }
    return value.get<int64_t>();
  }
  double Share(const json& value, const char* key) const {
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= 1)) {
      Fail("\"{}\" is {}, not a number of 0 to 1", key, Shown(value));
    }
    return value.get<double>();
  }
  const std::string& Text(const char* key) const {
    const json& value = At(key);
    if (!value.is_string()) Fail("\"{}\" is {}, not a text", key, Shown(value));
    return value.get_ref<const std::string&>();
  }
  const json& List(const char* key) const {
    const json& value = At(key);
    if (!value.is_array()) Fail("\"{}\" is {}, not a list", key, Shown(value));
    return value;
  }
  // Positions below `end`; `budget` is the number of positions that the file's lists may still have.
  std::vector<int32_t> Positions(const char* key, int64_t end, int64_t& budget) const {
    return Positions(At(key), key, end, budget);
  }
  std::vector<int32_t> Positions(const json& value, const char* key, int64_t end, int64_t& budget) const {
    if (!value.is_string()) Fail("\"{}\" is {}, not a text", key, Shown(value));
    std::vector<int32_t> positions;
    const std::string wrong = ParseRanges(value.get_ref<const std::string&>(), end, budget, positions);
    if (!wrong.empty()) Fail("\"{}\": {}", key, wrong);
    budget -= static_cast<int64_t>(positions.size());
    return positions;
  }
  TraceBytes Bytes() const {
    return {Int("kv_bytes", 0, kMaxBytes), Int("aux_bytes", 0, kMaxBytes), Int("cold_bytes", 0, kMaxBytes)};
  }

 private:
  static std::string Shown(const json& value) {
    if (value.is_structured()) return value.type_name();
    return Printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
  }

  const json& object_;
  std::string here_;
};

std::string TokenOf(const json& value, const Fields& header) {
  if (value.is_string()) return value.get<std::string>();
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (value.is_object() && value.size() == 1 && value.contains("bytes") && value["bytes"].is_string()) {
    const std::string& hex = value["bytes"].get_ref<const std::string&>();
    const bool good = std::ranges::all_of(hex, [&](char c) { return digit(c) >= 0; });
    if (good && hex.size() % 2 == 0) {
      std::string bytes;
      for (size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
      return bytes;
    }
  }
  header.Fail("a token is neither a text nor {{\"bytes\": hex}}");
}

class Reader {
 public:
  explicit Reader(const std::string& path) : lines_(path) {}

  Trace Read() {
    const int64_t steps = ReadHeader();
    for (int l = 0; l < trace_.layers; ++l) ReadLayer(l);
    for (int64_t s = 0; s < steps; ++s) ReadStep(s);
    lines_.End();
    return std::move(trace_);
  }

 private:
  int64_t ReadHeader() {
    const json line = lines_.Next("the header");
    const Fields header(line, lines_.Here());
    if (!header.Has("coppice_trace")) header.Fail("no trace: the first line has no \"coppice_trace\"");
    header.Int("coppice_trace", kTraceVersion, kTraceVersion);
    trace_.model = header.Text("model");
    trace_.spec = header.Text("prune");
    trace_.backend = header.Text("backend");
    trace_.layers = static_cast<int>(header.Int("layers", 1, limits::kMaxLayers));
    const json& tokens = header.List("tokens");
    const int64_t count = static_cast<int64_t>(tokens.size());
    if (count > kMaxTokens) header.Fail("{} tokens, the limit is {}", count, kMaxTokens);
    trace_.prompt_tokens = header.Int("prompt_tokens", 1, count);
    for (const json& token : tokens) trace_.tokens.push_back(TokenOf(token, header));
    if (header.Has("entered")) {
      trace_.entered = header.Positions("entered", trace_.prompt_tokens, budget_);
      if (trace_.entered.empty()) header.Fail("\"entered\" is empty");
    }
    trace_.prefill_bytes = header.Bytes();
    trace_.kv_bytes_dense = header.Int("kv_bytes_dense", 0, kMaxBytes);
    return header.Int("steps", 0, count - trace_.prompt_tokens);
  }

  void ReadLayer(int l) {
    const json line = lines_.Next(fmt::format("layer {} of {}", l, trace_.layers));
    const Fields fields(line, lines_.Here());
    fields.Int("layer", l, l);
    TraceLayer layer;
    if (l == 0 || fields.Has("kept")) {
      layer.kept = fields.Positions("kept", trace_.PromptPositions(), budget_);
    } else {
      layer.kept = trace_.prefill.back().kept;
      Spend(static_cast<int64_t>(layer.kept.size()), fields);
    }
    if (fields.Has("ffn")) {
      layer.ffn = fields.Positions("ffn", trace_.PromptPositions(), budget_);
    } else {
      layer.ffn = layer.kept;
      Spend(static_cast<int64_t>(layer.ffn.size()), fields);
    }
    const int64_t rows = static_cast<int64_t>(layer.kept.size());
    layer.rows_per_head = fields.Has("rows_per_head") ? fields.Int("rows_per_head", 0, rows) : rows;
    layer.density = fields.Share(fields.At("density"), "density");
    if (fields.Has("head_density")) {
      const json& heads = fields.List("head_density");
      if (static_cast<int64_t>(heads.size()) > limits::kMaxHeads) fields.Fail("{} heads", heads.size());
      for (const json& head : heads) {
        layer.head_density.push_back(static_cast<float>(fields.Share(head, "head_density")));
      }
    }
    if (fields.Has("computed")) {
      const json& processes = fields.List("computed");
      if (static_cast<int64_t>(processes.size()) > kMaxProcesses)
        fields.Fail("{} processes, the limit is {}", processes.size(), kMaxProcesses);
      for (const json& process : processes) {
        layer.computed.push_back(fields.Positions(process, "computed", trace_.PromptPositions(), budget_));
      }
    }
    trace_.prefill.push_back(std::move(layer));
  }

  void ReadStep(int64_t s) {
    const json line = lines_.Next(fmt::format("step {}", s));
    const Fields fields(line, lines_.Here());
    fields.Int("step", s, s);
    TraceStep step;
    const int64_t first = trace_.steps.empty() ? trace_.PromptPositions() : trace_.steps.back().position + 1;
    step.position = static_cast<int32_t>(fields.Int("position", first, trace_.Positions() - 1));
    const json& attended = fields.List("attended");
    if (static_cast<int64_t>(attended.size()) != trace_.layers) {
      fields.Fail("\"attended\" has {} layers, the header says {}", attended.size(), trace_.layers);
    }
    for (const json& keys : attended) {
      step.attended.push_back(fields.Int(keys, "attended", 0, step.position + int64_t{1}));
    }
    step.bytes = fields.Bytes();
    for (const json& event : fields.List("events")) step.events.push_back(EventOf(event, step.position));
    trace_.steps.push_back(std::move(step));
  }

  TraceEvent EventOf(const json& value, int32_t position) {
    const Fields fields(value, lines_.Here());
    TraceEvent event;
    event.layer = static_cast<int>(fields.Int("layer", 0, trace_.layers - 1));
    const auto kind = std::ranges::find(kTraceEventNames, fields.Text("kind"));
    if (kind == kTraceEventNames.end()) fields.Fail("unknown kind \"{}\"", Printable(fields.Text("kind")));
    event.kind = static_cast<TraceEventKind>(kind - kTraceEventNames.begin());
    event.positions = fields.Positions("positions", position + int64_t{1}, budget_);
    return event;
  }

  void Spend(int64_t positions, const Fields& fields) {
    if (positions > budget_) fields.Fail("more than {} positions in all lists", kMaxPositions);
    budget_ -= positions;
  }

  Lines lines_;
  Trace trace_;
  int64_t budget_ = kMaxPositions;
};

}  // namespace

Trace ReadTrace(const std::string& path) { return Reader(path).Read(); }

}  // namespace coppice
