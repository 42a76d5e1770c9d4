// Changes text before it is split into pieces: the components of "normalizer" in tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string Apply(std::string text) const = 0;  // linear, up to a logarithmic factor
};

std::unique_ptr<Normalizer> MakePrepend(std::string prefix);  // unless the text is empty
// `pattern` must not be empty.
std::unique_ptr<Normalizer> MakeReplace(std::string pattern, std::string content);
std::unique_ptr<Normalizer> MakeNfc();
// Removes spaces at both ends and collapses runs of spaces (SentencePiece's remove_extra_whitespaces).
std::unique_ptr<Normalizer> MakeTrimSpaces();
std::unique_ptr<Normalizer> MakeNormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts);

// Supports Prepend, Replace (of a string), NFC and Sequence; null stays null. `source` names the file. Throws
// Error naming any other component.
std::unique_ptr<Normalizer> NormalizerFromJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
