// What happens to a stretch of text before it is cut into pieces. The components of tokenizer.json's
// "normalizer".
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string Apply(std::string text) const = 0;  // linear, up to a log
};

std::unique_ptr<Normalizer> MakePrepend(std::string prefix);  // of a text that is not empty
std::unique_ptr<Normalizer> MakeReplace(std::string pattern, std::string content);  // pattern not empty
std::unique_ptr<Normalizer> MakeNfc();
// Spaces at both ends go, runs of them become one (SentencePiece's remove_extra_whitespaces).
std::unique_ptr<Normalizer> MakeTrimSpaces();
std::unique_ptr<Normalizer> MakeNormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts);

// Prepend, Replace (of a string), NFC and Sequence; null stays null. `source` names the file. Throws Error
// naming any other component.
std::unique_ptr<Normalizer> NormalizerFromJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
