#include "engine/text_scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/open_model.h"

namespace coppice {

namespace {

// Number of bytes after the cursor in which a token is searched.
constexpr size_t kSearchBytes = 256;

// The offset of `token` in `text`, searched from `cursor` on; npos if it does not begin within kSearchBytes.
size_t Place(std::string_view text, size_t cursor, std::string_view token) {
  const std::string_view ahead = text.substr(cursor, token.size() + kSearchBytes);
  const size_t at = ahead.find(token);
  return at == std::string_view::npos ? at : cursor + at;
}

}  // namespace

std::vector<float> LayOver(std::span<const double> worth, std::span<const std::string> tokens,
                           std::span<const std::string> pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  std::vector<double> by_byte(text.size());
  size_t cursor = 0;
  double pending = 0;
  const auto spread_to = [&](size_t end) {
    for (size_t i = cursor; i < end; ++i) by_byte[i] += pending / static_cast<double>(end - cursor);
    cursor = end;
    pending = 0;
  };
  for (size_t t = 0; t < tokens.size(); ++t) {
    pending += worth[t];
    std::string_view token = tokens[t];
    if (t == 0 && !token.empty() && token[0] == ' ' && !text.starts_with(' ')) token.remove_prefix(1);
    const size_t at = token.empty() ? std::string::npos : Place(text, cursor, token);
    if (at != std::string::npos) spread_to(at + token.size());
  }
  if (cursor < text.size()) {
    spread_to(text.size());
  } else if (!text.empty()) {
    by_byte.back() += pending;
  }
  std::vector<float> result;
  const double* byte = by_byte.data();
  for (const std::string& piece : pieces) {
    double sum = 0;
    for (size_t i = 0; i < piece.size(); ++i) sum += *byte++;
    result.push_back(static_cast<float>(sum));
  }
  return result;
}

TextScorer::TextScorer(const std::string& path, int64_t tile_rows, Backend* backend)
    : path_(path),
      transformer_([&] {
        OpenedModel model = OpenModel(path);
        if (!model.tokenizer) throw Error("{}: has no tokenizer, so it cannot score a text", path);
        tokenizer_ = std::move(model.tokenizer);
        return MakeTransformer(std::move(model.store), std::move(model.config), backend);
      }()),
      tile_rows_(std::max<int64_t>(tile_rows, 1)) {}

ScoredText TextScorer::Score(std::span<const std::string> pieces, const RunControl& control,
                             Backend& be) const {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  const std::vector<int32_t> ids = tokenizer_->Encode(text, plain);
  // A model with a BOS token gets it before each window.
  const std::vector<int32_t> start = tokenizer_->Encode("", {.add_special = true, .parse_special = false});
  const bool has_bos = !start.empty() && tokenizer_->bos() == start.front();
  const int64_t bos = has_bos ? 1 : 0;

  const auto count = static_cast<int64_t>(ids.size());
  const int64_t window = std::max<int64_t>(std::min(transformer_.config().context, kWindow) - bos, 2);
  const int64_t overlap = std::min(kOverlap, window / 2);
  ScoredText scored;
  Workspace workspace = transformer_.NewWorkspace(tile_rows_, be.memory());
  RunControl part = control;
  std::vector<double> bits(ids.size());
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(tokenizer_->Piece(id));
  for (int64_t done = 0; done < count;) {
    const int64_t begin = std::max<int64_t>(done - overlap, 0);
    const int64_t end = std::min(begin + window, count);
    std::vector<int32_t> input;
    if (has_bos) input.push_back(start.front());
    input.insert(input.end(), ids.begin() + begin, ids.begin() + end);
    part.progress = [&](double layers) {
      if (!control.progress) return;
      const double share = layers / transformer_.config().shape.layer_count();
      control.progress((static_cast<double>(done) + share * static_cast<double>(end - done)) /
                       static_cast<double>(count));
    };
    const TextScore score = transformer_.Score(input, workspace, be, part);
    for (int64_t i = done; i < end; ++i) {
      bits[static_cast<size_t>(i)] =
          -score.log_probabilities[static_cast<size_t>(i - begin + bos)] / std::log(2.0);
    }
    scored.flops += score.flops;
    done = end;
  }
  scored.bits = LayOver(bits, tokens, pieces);
  return scored;
}

}  // namespace coppice
