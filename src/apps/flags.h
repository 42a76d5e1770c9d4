// The text of an exception for the command line, of both programs.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/field_error.h"

namespace coppice::cli {

// A field's flag: the field's name with dashes, except for flags with llama.cpp's names.
inline std::string FlagOf(std::string_view field) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{"context", "ctx-size"},
                                                                       {"least_confidence", "fallback"},
                                                                       {"max_tokens", "predict"},
                                                                       {"question", "query-span"},
                                                                       {"temperature", "temp"}};
  for (const auto& [name, flag] : kOthers) {
    if (name == field) return "--" + std::string(flag);
  }
  std::string flag = "--" + std::string(field);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// The message, with the field's flag in place of its name.
inline std::string MessageOf(const std::exception& error) {
  const std::string message = error.what();
  const auto* about = dynamic_cast<const FieldError*>(&error);
  return about == nullptr ? message
                          : FlagOf(about->field()) + message.substr(std::string_view(about->field()).size());
}

}  // namespace coppice::cli
