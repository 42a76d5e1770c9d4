#include "engine/fingerprint.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/cpu_info.h"
#include "base/mmap.h"

namespace coppice {

namespace {

void AddTensors(const TensorStore& store, Fingerprinter& print) {
  for (const StoredTensor& tensor : store.tensors()) {
    print.Add(tensor.name);
    print.Add(static_cast<int64_t>(tensor.shape.size()));
    for (const int64_t extent : tensor.shape) print.Add(extent);
    print.Add(Info(tensor.view.dtype).name);
    const TensorView& view = tensor.view;
    print.Add({view.data, static_cast<size_t>(view.rows * BytesOf(view.dtype, view.cols))});
  }
}

// The model has the sizes of its first layer in every layer, at most one window, and at most one more rope,
// which the layers with the window have.
bool IsPlain(const ModelConfig& c) {
  const std::vector<RopeConfig>& ropes = c.ropes;
  return ropes.size() <= 2 && std::ranges::all_of(c.shape.layers, [&](LayerShape layer) {
           const bool windowed = layer.window > 0;
           const size_t rope = windowed && ropes.size() == 2 ? 1 : 0;
           const bool own_rope =
               ropes.empty() ? layer.rope != kNoRope
                             : layer.rope == kNoRope || ropes[static_cast<size_t>(layer.rope)] != ropes[rope];
           if (own_rope || (windowed && layer.window != c.shape.NarrowestWindow())) return false;
           layer.rope = c.shape.layer(0).rope;
           layer.window = c.shape.layer(0).window;
           return layer == c.shape.layer(0);
         });
}

// What most models do not have, so that the fingerprints of those that do not stay the same.
void AddExtras(const ModelConfig& c, Fingerprinter& print) {
  const ModelShape& s = c.shape;
  if (s.NarrowestWindow() > 0 && (c.ropes.size() > 1 || s.WidestWindow() == 0)) {
    for (const LayerShape& layer : s.layers) print.Add(int64_t{layer.window == 0});
  }
  for (size_t r = 1; r < c.ropes.size(); ++r) {
    print.Add(c.ropes[r].base);
    print.Add(c.ropes[r].factor);
  }
  if (c.attention_scale != 0) print.Add(c.attention_scale);
  if (c.logit_scale != 1) print.Add(c.logit_scale);
  if (c.logit_scale != 1) print.Add(c.embedding_scale);
  for (const double extra : {c.post_norm_eps, c.hf_query_norm, c.logit_cap}) {
    if (extra != 0) print.Add(extra);
  }
  if (c.query_temperature.beta != 0) {
    print.Add(c.query_temperature.beta);
    print.Add(c.query_temperature.context);
  }
  for (const RopeConfig& rope : c.ropes) {
    if (!rope.truncate) print.Add(int64_t{1});
    if (rope.rotating != 1) print.Add(rope.rotating);
    for (const std::vector<float>* factors : {&rope.short_factors, &rope.long_factors}) {
      for (const float factor : *factors) print.Add(static_cast<double>(factor));
    }
  }
  if (s.layer_embedding > 0) print.Add(s.layer_embedding);
  for (const LayerShape& l : s.tail) {
    for (const int64_t size : {int64_t{l.heads}, int64_t{l.head_dim}, int64_t{l.window}, int64_t{l.rope},
                               l.ffn, int64_t{l.keys_of}})
      print.Add(size);
  }
  if (s.HasMixtures()) {
    for (const LayerShape& layer : s.layers) {
      const MixtureShape& m = layer.mixture;
      for (const int64_t size :
           {int64_t{m.experts}, int64_t{m.used}, m.width, m.shared_width, int64_t{m.shared_gate}})
        print.Add(size);
    }
    print.Add(static_cast<int64_t>(c.router.kind));
    print.Add(int64_t{c.router.normalise});
    print.Add(static_cast<double>(c.router.scale));
  }
  if (s.HasStates()) {
    for (const LayerShape& layer : s.layers) {
      const RecurrentShape& r = layer.recurrent;
      for (const int64_t field : {static_cast<int64_t>(layer.mixer), int64_t{r.taps}, r.channels,
                                  int64_t{r.key_heads}, int64_t{r.value_heads}, int64_t{r.key_dim},
                                  int64_t{r.value_dim}, int64_t{r.tiled}, int64_t{r.norm_groups}})
        print.Add(field);
    }
    print.Add(c.recurrent_norm_eps);
    print.Add(int64_t{c.router_bias});
  }
  if (IsPlain(c)) return;
  for (const LayerShape& l : s.layers) {
    for (const int64_t size : {int64_t{l.heads}, int64_t{l.kv_heads}, int64_t{l.head_dim}, int64_t{l.window},
                               int64_t{l.rope}, l.ffn})
      print.Add(size);
  }
}

RopeConfig FirstRope(const ModelConfig& c) { return c.ropes.empty() ? RopeConfig() : c.ropes.front(); }

void AddConfig(const ModelConfig& c, Fingerprinter& print) {
  const ModelShape& s = c.shape;
  const LayerShape& l = s.layer(0);
  print.Add(s.architecture);
  for (const int64_t size :
       {int64_t{s.layer_count()}, s.hidden, l.ffn, int64_t{l.heads}, int64_t{l.kv_heads}, int64_t{l.head_dim},
        s.vocab, int64_t{s.gated_ffn}, int64_t{s.NarrowestWindow()}}) {
    print.Add(size);
  }
  for (const int64_t kind :
       {static_cast<int64_t>(c.norm), static_cast<int64_t>(c.ffn), int64_t{c.shape.alibi},
        int64_t{c.qkv_bias}, int64_t{c.all_biases}, static_cast<int64_t>(c.embedding_norm),
        int64_t{c.tied_head}, int64_t{c.hf_names}}) {
    print.Add(kind);
  }
  AddExtras(c, print);
  const RopeConfig r = FirstRope(c);
  for (const int64_t field :
       {int64_t{r.dims}, int64_t{r.interleaved}, static_cast<int64_t>(r.scaling), r.original_context}) {
    print.Add(field);
  }
  for (const double field : {c.norm_eps, r.base, r.factor, r.low_freq_factor, r.high_freq_factor, r.beta_fast,
                             r.beta_slow, r.attention_factor}) {
    print.Add(field);
  }
}

// Adds the fields that decide how the weights are used. Does not call AddConfig: a field added to AddConfig
// later would invalidate existing calibration files.
void AddIdentity(const ModelConfig& c, Fingerprinter& print) {
  const ModelShape& s = c.shape;
  const LayerShape& l = s.layer(0);
  print.Add(s.architecture);
  for (const int64_t size : {int64_t{s.layer_count()}, s.hidden, l.ffn, int64_t{l.heads}, int64_t{l.kv_heads},
                             int64_t{l.head_dim}, int64_t{s.NarrowestWindow()}}) {
    print.Add(size);
  }
  const RopeConfig rope = FirstRope(c);
  print.Add(static_cast<int64_t>(rope.scaling));
  print.Add(rope.original_context);
  print.Add(rope.base);
  print.Add(rope.factor);
  AddExtras(c, print);
}

// Adds evenly spaced pieces, including the tensor's first and last bytes; a small tensor completely.
void AddPieces(std::span<const std::byte> bytes, Fingerprinter& print) {
  constexpr size_t kPieces = 8;
  constexpr size_t kPieceBytes = 512;
  if (bytes.size() <= kPieces * kPieceBytes) return print.Add(bytes);
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t at = (bytes.size() - kPieceBytes) / (kPieces - 1) * i;
    print.Add(bytes.subspan(i + 1 == kPieces ? bytes.size() - kPieceBytes : at, kPieceBytes));
  }
}

}  // namespace

std::string WeightsFingerprintOf(const TensorStore& store, const ModelConfig& config) {
  Fingerprinter print;
  AddIdentity(config, print);
  // Sorted by name, so that the split of a model into files does not matter.
  std::vector<const StoredTensor*> tensors;
  for (const StoredTensor& tensor : store.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  for (const StoredTensor* tensor : tensors) {
    print.Add(tensor->name);
    for (const int64_t extent : tensor->shape) print.Add(extent);
    const TensorView& view = tensor->view;
    print.Add(Info(view.dtype).name);
    AddPieces({view.data, static_cast<size_t>(view.rows * BytesOf(view.dtype, view.cols))}, print);
  }
  const Fingerprint result = print.Result();
  return fmt::format("{:016x}{:016x}", result.high, result.low);
}

Fingerprint FingerprintOf(const TensorStore& store, const ModelConfig& config, const Backend& be, bool exact,
                          bool fast) {
  Fingerprinter print;
  AddConfig(config, print);
  AddTensors(store, print);
  print.Add(be.name());
  print.Add(be.isa());
  print.Add(static_cast<int64_t>(exact));
  print.Add(static_cast<int64_t>(fast));
  print.Add(Info(be.cache_dtype()).name);
  print.Add(Cpu().model);
  // What chooses kernels beside the ISA. Virtual machines hide features of the same model.
  for (const bool has : {Cpu().avx_vnni, Cpu().avx512_bf16, Cpu().fast_bf16, Cpu().avx512_vnni})
    print.Add(static_cast<int64_t>(has));
  print.Add(MappedFile("/proc/self/exe").bytes());
  return print.Result();
}

}  // namespace coppice
