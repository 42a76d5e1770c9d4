// A probe, not a way to save time: tokens of one span leave the stream before one layer. It shows from which
// layer on the other tokens carry what the span says.
//
//   S = all rows but those at positions of the span, before layer p; the last row stays
//
// SlimInfer's figure 2 drops the needle's blocks this way, before one layer after the other: an answer that
// is still right shows that the layers below have spread the needle over the other tokens ("information
// diffusion"). span=evidence takes the span from the request: coppice eval knows where a needle lies.
// block=64 widens the span to whole blocks of 64 positions, as SlimInfer drops them.
//
// Source: SlimInfer, arXiv 2508.06447, figure 2.
#include "policies/methods/drop.h"

#include <algorithm>
#include <utility>

#include "policies/stages.h"

namespace coppice {

TokenSet DropPolicy::BeforeLayer(const Observation& seen, Backend& /*be*/) {
  const int64_t rows = seen.rows();
  if (seen.layer != config_.layer) return TokenSet::All(rows);
  std::vector<int32_t> stay;
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t position = seen.positions[static_cast<size_t>(row)];
    const bool dropped = std::any_of(config_.spans.begin(), config_.spans.end(), [&](const PositionSpan& s) {
      return position >= s.begin && position < s.end;
    });
    if (!dropped || row + 1 == rows) stay.push_back(static_cast<int32_t>(row));
  }
  return TokenSet::Of(std::move(stay), rows);
}

namespace {

struct DropSettings {
  std::vector<int64_t> span = {};  // empty: the request's evidence
  int layer = 1;
  int64_t block = 1;
  int64_t minimum = 0;
};

Keys DropKeys(DropSettings& s, const ModelShape& shape) {
  // In a model of one layer the only value is 0: no stage.
  const int last = std::max(shape.layer_count() - 1, 0);
  s.layer = std::min(1, last);
  return {Keys("span", &s.span, 0, kManyTokens,
               "positions FROM/TO, without TO; evidence: where the answer lies, as coppice eval knows it",
               "evidence", "evidence, or FROM/TO")
              .NoValues("evidence"),
          {"layer", &s.layer, std::min(1, last), last, "the span is dropped before this layer", "1",
           "1 to L - 1"},
          {"block", &s.block, 1, kManyTokens, "the span is widened to whole blocks of this size"},
          MinKey(s.minimum)};
}

std::vector<PositionSpan> SpansOf(const DropSettings& s, const MethodContext& context) {
  std::vector<PositionSpan> spans(context.evidence.begin(), context.evidence.end());
  if (!s.span.empty()) spans = {{s.span[0], s.span[1]}};
  std::vector<PositionSpan> widened;
  for (const PositionSpan& span : spans) {
    const int64_t begin = span.begin / s.block * s.block;
    const int64_t end = std::min((span.end + s.block - 1) / s.block * s.block, context.tokens);
    if (begin < end) widened.push_back({begin, end});
  }
  return widened;
}

MethodInstance MakeDrop(const MethodSpec& spec, const MethodContext& context) {
  DropSettings s;
  Keys keys = DropKeys(s, context.shape);
  keys.Read(spec);
  if (!s.span.empty() && (s.span.size() != 2 || s.span[0] >= s.span[1]))
    throw PruneError("drop: span is {}, not FROM/TO with FROM below TO", fmt::join(s.span, "/"));
  const std::vector<int> stages(s.layer > 0 ? 1 : 0, s.layer);
  DropConfig config{.spans = SpansOf(s, context), .layer = s.layer};
  std::string unknown;
  if (s.span.empty() && context.evidence.empty())
    unknown =
        fmt::format("nothing says where in the {} prompt tokens the evidence lies; tasks with a needle do",
                    context.tokens);
  const std::string outside = config.spans.empty() ? "the span lies outside the prompt" : "";
  return MakeInstance<DropPolicy>(
      keys, {StageReason(stages, context.shape), LengthReason(context, s.minimum), unknown, outside},
      std::move(config));
}

}  // namespace

MethodInfo DropMethod() {
  return {"drop",
          "drop one span of the prompt before one layer (probe)",
          "the probe of SlimInfer's figure 2, arXiv 2508.06447",
          kDropsRows,
          HelpOf(&DropKeys),
          &MakeDrop};
}

}  // namespace coppice
