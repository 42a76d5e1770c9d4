#include "engine/fingerprint.h"

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

void AddConfig(const ModelConfig& c, Fingerprinter& print) {
  const ModelShape& s = c.shape;
  print.Add(s.architecture);
  for (const int64_t size : {int64_t{s.layers}, s.hidden, s.ffn, int64_t{s.heads}, int64_t{s.kv_heads},
                             int64_t{s.head_dim}, s.vocab, int64_t{s.gated_ffn}, int64_t{s.window}}) {
    print.Add(size);
  }
  for (const int64_t kind : {static_cast<int64_t>(c.norm), static_cast<int64_t>(c.ffn),
                             static_cast<int64_t>(c.position), int64_t{c.qkv_bias}, int64_t{c.all_biases},
                             int64_t{c.embedding_norm}, int64_t{c.tied_head}, int64_t{c.hf_names}}) {
    print.Add(kind);
  }
  const RopeConfig& r = c.rope;
  for (const int64_t field :
       {int64_t{r.dims}, int64_t{r.interleaved}, static_cast<int64_t>(r.scaling), r.original_context}) {
    print.Add(field);
  }
  for (const double field : {c.norm_eps, r.base, r.factor, r.low_freq_factor, r.high_freq_factor, r.beta_fast,
                             r.beta_slow, r.attention_factor}) {
    print.Add(field);
  }
}

}  // namespace

Fingerprint FingerprintOf(const TensorStore& store, const ModelConfig& config, const Backend& be,
                          bool exact) {
  Fingerprinter print;
  AddConfig(config, print);
  AddTensors(store, print);
  print.Add(be.name());
  print.Add(be.isa());
  print.Add(static_cast<int64_t>(exact));
  print.Add(Info(be.cache_dtype()).name);
  print.Add(Cpu().model);  // oneDNN chooses its kernels by it
  print.Add(MappedFile("/proc/self/exe").bytes());
  return print.Result();
}

}  // namespace coppice
