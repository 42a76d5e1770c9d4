// A file of MInference's patterns.
#include "policies/methods/head_patterns.h"

#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  HeadPatterns patterns{.model = "m.gguf", .tokens = 6000, .budget = 1024, .heads = {}};
  patterns.heads = {{{PatternKind::kVerticalSlash, 30, 100}, {PatternKind::kAShape, 205, 819}},
                    {{PatternKind::kBlockSparse, 24, 0}, {PatternKind::kVerticalSlash, 341, 600}}};
  return {TextOf(patterns)};
}

bool Run(std::string_view input) {
  static const ModelShape shape = SmallShape(2, 2, 2);
  return Accepts([&] {
    const HeadPatterns patterns = ParseHeadPatterns(input, "x.json", shape);
    ParseHeadPatterns(TextOf(patterns), "again.json", shape);
  });
}

}  // namespace

FuzzTarget HeadPatternsTarget() {
  return {"head_patterns",
          Seeds,
          {"\"format\"", "\"heads\"", "\"vertical_slash\"", "\"block_sparse\"", "\"a_shape\"", "\"budget\"",
           "[[", "]]", "1e30", "16777217"},
          Run};
}

}  // namespace coppice
