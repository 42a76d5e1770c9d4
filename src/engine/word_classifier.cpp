#include "engine/word_classifier.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/unicode/unicode.h"

namespace coppice {

namespace {

bool HasDigit(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    if (c.code != kInvalidByte && IsDecimal(c.code)) return true;
    at += c.size;
  }
  return false;
}

}  // namespace

WordClassifier::WordClassifier(const std::string& path)
    : path_(path), tokenizer_(EncoderTokenizer::FromHfFolder(path)), classifier_(HfFolder::Open(path)) {
  if (tokenizer_->vocab_size() > classifier_.config().vocab)
    throw Error("{}: the tokenizer has {} tokens, the classifier {}", path, tokenizer_->vocab_size(),
                classifier_.config().vocab);
  if (classifier_.config().longest() < 8)
    throw Error("{}: the classifier has {} positions, which is no chunk", path,
                classifier_.config().longest());
}

std::vector<std::pair<size_t, size_t>> WordClassifier::ChunksOf(std::string_view text) const {
  const int64_t most = std::min(kChunkTokens, classifier_.config().longest()) - 2;
  const std::vector<PlacedToken> tokens = tokenizer_->Encode(text);
  const int64_t n = std::ssize(tokens);
  std::vector<std::pair<size_t, size_t>> chunks;
  for (int64_t begin = 0; begin < n;) {
    int64_t end = n - 1;  // the last token
    if (begin + most <= n - 1) {
      end = begin + most;
      for (int64_t last = end; last > begin; --last) {
        if (tokens[static_cast<size_t>(last)].id != tokenizer_->full_stop()) continue;
        end = last;
        break;
      }
    }
    chunks.emplace_back(tokens[static_cast<size_t>(begin)].begin, tokens[static_cast<size_t>(end)].end);
    begin = end + 1;
  }
  return chunks;
}

ReadText WordClassifier::Read(std::span<const std::string> pieces, const RunControl& control,
                              Backend& be) const {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const auto most = static_cast<size_t>(std::min(kChunkTokens, classifier_.config().longest()));
  const std::vector<std::pair<size_t, size_t>> chunks = ChunksOf(text);
  std::vector<std::vector<PlacedToken>> tokens;
  std::vector<std::vector<int32_t>> ids;
  for (const auto& [begin, end] : chunks) {
    tokens.push_back(tokenizer_->Encode(std::string_view(text).substr(begin, end - begin)));
    ids.push_back({tokenizer_->first()});
    for (const PlacedToken& token : tokens.back()) ids.back().push_back(token.id);
    ids.back().push_back(tokenizer_->last());
    if (ids.back().size() > most) ids.back().resize(most);  // as the authors' program: without the last one
  }
  RunControl part = control;
  const double layers = classifier_.config().layers;
  part.progress = [&](double done) {
    if (control.progress) control.progress(done / layers);
  };
  const TokenClassifier::Classes classes = classifier_.Classify(ids, part, be);
  ReadText read{.words = {}, .flops = classes.flops};
  for (size_t c = 0; c < chunks.size(); ++c) {
    bool begun = false;  // the chunk has a word that a token can continue
    for (size_t t = 0; t < tokens[c].size() && t + 1 < ids[c].size(); ++t) {
      const PlacedToken& token = tokens[c][t];
      if (token.unknown) continue;
      if (token.begins_word || !begun)
        read.words.push_back({.parts = {}, .chunk = static_cast<int>(c), .spaced = token.marked});
      begun = true;
      const std::string_view spelled = tokenizer_->Text(token.id);
      read.words.back().parts.push_back({.begin = chunks[c].first + token.begin,
                                         .end = chunks[c].first + token.end,
                                         .keep = classes.probability[c][t + 1],
                                         .text = std::string(spelled),
                                         .digit = HasDigit(spelled)});
    }
  }
  return read;
}

}  // namespace coppice
