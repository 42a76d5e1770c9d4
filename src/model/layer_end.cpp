// The end of Gemma 4's layers, after the FFN. t is a row's token, p the width of the layer's own embedding:
//   e = (sqrt(p) table[t] + norm(projection(embedding(t)) / sqrt(d))) / sqrt(2)
//   x = scale (x + post_norm(output(gelu(gate(x)) * e)))
// (transformers, modeling_gemma4.py). A row's e depends on its token alone, so each layer computes it for its
// own rows, and nothing keeps a [tokens, layers p] matrix.
#include <cmath>
#include <vector>

#include "model/layer.h"

namespace coppice {

void Layer::End(const std::vector<Tile>& tiles, std::span<const int32_t> tokens, MutableTensorView x,
                Workspace& ws, Backend& be) const {
  const EmbeddingWeights& w = weights_.own_embedding;
  if (!w.table.empty()) {
    ws.embedding.projection.Prepare(w.projection, tiles, ws.kept, be);
    ws.embedding.gate.Prepare(w.gate, tiles, ws.kept, be);
    ws.embedding.output.Prepare(w.output, tiles, ws.kept, be);
    for (const Tile& tile : tiles) {
      const auto some = tokens.subspan(static_cast<size_t>(tile.begin), static_cast<size_t>(tile.count));
      AddOwnEmbedding(some, tile.kind, x.Rows(tile.begin, tile.count), ws, be);
    }
  }
  if (weights_.scale != 1) be.Scale(x, weights_.scale);
}

// The roots of the equation are factors in front of norms, which change their epsilon alone:
// norm(a y; eps) = norm(y; eps / a^2).
void Layer::AddOwnEmbedding(std::span<const int32_t> tokens, ProductKind kind, MutableTensorView x,
                            Workspace& ws, Backend& be) const {
  const EmbeddingWeights& w = weights_.own_embedding;
  const auto rows = std::ssize(tokens);
  const int64_t p = w.table.cols;
  const auto eps = static_cast<float>(config_.norm_eps);
  ws.embedding.own.Resize(DType::kF32, rows, p);
  ws.embedding.other.Resize(DType::kF32, rows, p);
  const MutableTensorView own = ws.embedding.own.mutable_view();
  const MutableTensorView other = ws.embedding.other.mutable_view();
  const MutableTensorView wide = ws.normed.mutable_view().Rows(0, rows);
  be.Embed(w.tokens, tokens, static_cast<float>(config_.embedding_scale), wide);
  ws.embedding.projection(wide, kind, ProductEnd::kStore, own, be);
  be.RmsNorm(own, w.norm.weight, eps * static_cast<float>(x.cols), own);
  be.Embed(w.table, tokens, std::sqrt(static_cast<float>(p)), other);
  be.Add(other, own);
  ws.embedding.gate(x, kind, ProductEnd::kStore, other, be);
  be.GateMul(other, own, Activation::kGelu);
  ws.embedding.output(other, kind, ProductEnd::kStore, wide, be);
  be.RmsNorm(wide, w.post_norm.weight, 2 * eps, wide);
  be.Add(wide, x);
}

}  // namespace coppice
