#include "engine/follow.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/cpu_seconds.h"
#include "base/error.h"

namespace coppice {

namespace {

using nlohmann::json;

// Commands are CBOR: small ones, but for a prompt's tokens.
void SendJson(Comm& comm, const json& command) {
  const std::vector<uint8_t> bytes = json::to_cbor(command);
  comm.Send(std::as_bytes(std::span(bytes)));
}

json ReceiveJson(Comm& comm) {
  const std::vector<std::byte> bytes = comm.Receive();
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
  return json::from_cbor(begin, begin + bytes.size());
}

json SpansJson(const std::vector<PositionSpan>& spans) {
  json list = json::array();
  for (const PositionSpan& span : spans) list.push_back({span.begin, span.end});
  return list;
}

std::vector<PositionSpan> SpansOf(const json& list) {
  std::vector<PositionSpan> spans;
  for (const json& span : list) spans.push_back({span[0].get<int64_t>(), span[1].get<int64_t>()});
  return spans;
}

Request RequestOf(const json& command) {
  Request request;
  request.tokens = command["tokens"].get<std::vector<int32_t>>();
  request.max_tokens = 0;
  request.prune = command["prune"].get<std::string>();
  request.protection = {command["first"].get<int64_t>(), command["last"].get<int64_t>(),
                        SpansOf(command["spans"]), command["apart"].get<bool>()};
  request.question = SpansOf(command["question"]);
  request.evidence = SpansOf(command["evidence"]);
  request.confidence = command["confidence"].get<bool>();
  return request;
}

std::unique_ptr<Engine> LoadAs(const json& command, Comm& comm) {
  EngineOptions options;
  options.backend = command["backend"].get<std::string>();
  options.threads = command["threads"].get<int>();
  options.exact = command["exact"].get<bool>();
  options.fast = command["fast"].get<bool>();
  options.context = command["context"].get<int64_t>();
  options.tile_rows = command["tile_rows"].get<int64_t>();
  options.packed_bytes = command["packed_bytes"].get<int64_t>();
  if (const int type = command["cache_type"].get<int>(); type >= 0)
    options.cache_type = static_cast<DType>(type);
  options.comm = &comm;
  const auto path = command["path"].get<std::string>();
  try {
    return command["shape"].get<bool>() ? Engine::FromShape(path, options) : Engine::Load(path, options);
  } catch (const Error&) {
    return nullptr;  // process 0 has the message, and sends no prompt for this engine
  }
}

}  // namespace

void Follow(Comm& comm) {
  std::map<int64_t, std::unique_ptr<Engine>> engines;
  while (true) {
    const json command = ReceiveJson(comm);
    const auto what = command["do"].get<std::string>();
    if (what == "end") return;
    const auto engine = command["engine"].get<int64_t>();
    if (what == "load") {
      engines[engine] = LoadAs(command, comm);
    } else if (what == "unload") {
      engines.erase(engine);
    } else {
      const Request request = RequestOf(command);
      try {
        engines.at(engine)->Assist(request);
      } catch (const Cancelled&) {
        continue;  // process 0's caller cancelled the request
      }
    }
  }
}

void SendEnd(Comm& comm) { SendJson(comm, {{"do", "end"}}); }

int64_t SendLoad(Comm& comm, const std::string& path, bool shape, const EngineOptions& options) {
  static int64_t engines = 0;
  SendJson(comm, {{"do", "load"},
                  {"engine", engines},
                  {"path", path},
                  {"shape", shape},
                  {"backend", options.backend},
                  {"threads", options.threads},
                  {"exact", options.exact},
                  {"fast", options.fast},
                  {"context", options.context},
                  {"tile_rows", options.tile_rows},
                  {"packed_bytes", options.packed_bytes},
                  {"cache_type", options.cache_type ? static_cast<int>(*options.cache_type) : -1}});
  return engines++;
}

void SendUnload(Comm& comm, int64_t engine) { SendJson(comm, {{"do", "unload"}, {"engine", engine}}); }

void SendPrefill(Comm& comm, int64_t engine, const Request& request, const std::string& spec) {
  SendJson(comm, {{"do", "prefill"},
                  {"engine", engine},
                  {"tokens", request.tokens},
                  {"prune", spec},
                  {"first", request.protection.first},
                  {"last", request.protection.last},
                  {"spans", SpansJson(request.protection.spans)},
                  {"apart", request.protection.apart},
                  {"question", SpansJson(request.question)},
                  {"evidence", SpansJson(request.evidence)},
                  {"confidence", request.confidence}});
}

namespace {

// A row for each process, of which each fills its own; afterwards every process has all.
template <typename Row>
std::vector<Row> FromAll(Comm& comm, const Row& own) {
  static_assert(sizeof(Row) % sizeof(float) == 0);
  std::vector<Row> all(static_cast<size_t>(comm.size()));
  all[static_cast<size_t>(comm.rank())] = own;
  std::vector<RowRange> ranges;
  for (int p = 0; p < comm.size(); ++p) ranges.push_back({p, 1});
  comm.Share({all.data(), DType::kF32, comm.size(), static_cast<int64_t>(sizeof(Row) / sizeof(float))},
             ranges);
  return all;
}

struct LoadResult {
  Fingerprint print;
  char error[504] = {};  // empty: loaded
};

}  // namespace

void AgreeOnLoad(Comm& comm, const std::string& error, const Fingerprint& print) {
  LoadResult own{.print = print};
  std::memcpy(own.error, error.data(), std::min(error.size(), sizeof own.error - 1));
  const std::vector<LoadResult> all = FromAll(comm, own);
  if (all.front().error[0] != 0) throw Error("{}", all.front().error);
  for (size_t p = 1; p < all.size(); ++p) {
    if (all[p].error[0] != 0) throw Error("process {} of {}: {}", p, all.size(), all[p].error);
    if (all[p].print != all.front().print) {
      throw Error(
          "process {} of {} has other weights, another build or another CPU than process 0: their results "
          "would differ (COPPICE_ISA, if set, must be the same in every process)",
          p, all.size());
    }
  }
}

WorkMeter::WorkMeter(Comm& comm) : comm_(comm), counts_(comm.counts()), cpu_seconds_(CpuSeconds()) {}

std::vector<ProcessWork> WorkMeter::OfAll(const ComputedRows& rows) const {
  return FromAll(comm_, ProcessWork{.rows = rows,
                                    .bytes_sent = comm_.counts().bytes_sent - counts_.bytes_sent,
                                    .seconds_waited = comm_.counts().seconds_waited - counts_.seconds_waited,
                                    .cpu_seconds = CpuSeconds() - cpu_seconds_});
}

}  // namespace coppice
