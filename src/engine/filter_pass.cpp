#include "engine/filter_pass.h"

#include "policies/methods/gemfilter.h"

namespace coppice {

double FilterFlops(const ModelShape& shape, int64_t tokens, int layer) {
  ModelShape first = shape;
  first.layers.resize(static_cast<size_t>(layer) + 1);
  first.tail.clear();
  return DensePrefillFlops(first, tokens) - HeadFlops(first);
}

FilterReading RunFilter(const Transformer& model, std::span<const int32_t> tokens, int layer, Workspace& ws,
                        const RunControl& control, Backend& be, Split* split) {
  const Transformer first = model.FirstLayers(layer + 1);
  const int64_t count = std::ssize(tokens);
  FilterWatch watch(layer);
  SequenceState sequence = first.NewSequence(count, count, be);
  RunControl part = control;
  part.progress = [&](double layers) {
    if (control.progress) control.progress(layers / (layer + 1));
  };
  first.PrefillLayers(tokens, {watch, sequence, ws, be, part, split});
  return {watch.scores(), sequence.ledger.prefill_flops() - HeadFlops(model.config().shape)};
}

}  // namespace coppice
