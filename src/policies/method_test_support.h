// For the tests of methods: a method made from the text of a spec, on a shape that is published.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "policies/method_info.h"
#include "shape_edit.h"
#include "test_files.h"

namespace coppice {

inline ModelShape Llama8B() {
  ModelShape s;
  s.architecture = "llama";
  s.hidden = 4096;
  s.layers.assign(32, {.heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 14336});
  s.vocab = 128256;
  return s;
}

inline MethodInstance MakeMethod(const MethodInfo& method, const std::string& text,
                                 const ModelShape& shape = Llama8B(), int64_t tokens = 32768) {
  const std::vector<MethodSpec> specs = ParseSpec(text);
  EXPECT_EQ(specs.size(), 1u);
  EXPECT_EQ(specs.front().name, method.name);
  return method.make(specs.front(), {.shape = shape, .tokens = tokens});
}

// What is wrong with a spec, which the length of the prompt must not decide.
inline std::string RefusalOf(const MethodInfo& method, const std::string& text,
                             const ModelShape& shape = Llama8B()) {
  const std::string message = ErrorOf([&] { MakeMethod(method, text, shape); });
  EXPECT_EQ(ErrorOf([&] { MakeMethod(method, text, shape, 1); }), message) << text;
  return message;
}

// The settings of a spec; they must mean themselves and name every key of the method, in its order.
inline std::string SettingsOf(const MethodInfo& method, const std::string& text,
                              const ModelShape& shape = Llama8B(), int64_t tokens = 32768) {
  const std::string settings = MakeMethod(method, text, shape, tokens).settings;
  EXPECT_EQ(MakeMethod(method, settings, shape, tokens).settings, settings);
  size_t at = 0;
  for (const MethodKey& key : method.keys) {
    at = settings.find(std::string(key.name) + "=", at);
    EXPECT_NE(at, std::string::npos) << key.name << " in " << settings;
    if (at == std::string::npos) break;
  }
  EXPECT_EQ(settings.find(',', at), std::string::npos) << settings << " has more than the method's keys";
  EXPECT_THAT(RefusalOf(method, std::string(method.name) + ":nonsense=1"),
              testing::HasSubstr("unknown key 'nonsense'"));
  return settings;
}

// It needs `tokens` tokens, and full attention.
inline void ExpectStandsAside(const MethodInfo& method, int64_t tokens) {
  const std::string name(method.name);
  EXPECT_NE(MakeMethod(method, name, Llama8B(), tokens).policy, nullptr);
  EXPECT_THAT(MakeMethod(method, name, Llama8B(), tokens - 1).reason,
              testing::HasSubstr("below its break-even of " + std::to_string(tokens)));
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_THAT(MakeMethod(method, name, windowed, 32768).reason, testing::HasSubstr("sliding window of 4096"));
}

}  // namespace coppice
