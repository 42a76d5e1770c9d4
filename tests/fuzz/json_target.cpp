// JSON, as configurations, tokenizers and requests contain it.
#include "formats/json.h"

#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {R"({"hidden_size": 64, "rope": {"type": "yarn", "f": [1.5, -2e3, null, true]}, "s": "a\u00e9\n"})",
          R"([[[]], {}, "", 0, -0.0, 18446744073709551615, 1e308, "\ud83d\ude00"])"};
}

bool Run(std::string_view input) {
  return Accepts([&] {
    const std::string text(input);
    const OwnedJson<nlohmann::json> value = ParseJson(text, "x.json", 100'000);
    // What was accepted reads back as the same value.
    if (ParseJson(value->dump(), "x.json", 100'000) != *value) abort();
  });
}

}  // namespace

FuzzTarget JsonTarget() {
  return {"json",
          Seeds,
          {"true", "false", "null", "\\u", "\\ud83d", "[[", "]]", "{\"", "\":", "1e", "-", "NaN", "Infinity"},
          Run};
}

}  // namespace coppice
