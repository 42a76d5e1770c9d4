// The table of architectures: everything that differs between them and that their files do not say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace coppice {

// Which layers have the sliding window that a config.json names.
enum class WindowRule {
  kNever,  // none: the key does not change the model
  kEveryLayer,
  kFromLayer,       // those from max_window_layers on, or as layer_types says, if use_sliding_window is true
  kPattern,         // as layer_types says, or all but every so many
  kPatternFromEnd,  // the same, counted from the last layer, which has no window
  kNoRopeLayers,    // those without RoPE, or as layer_types says, if use_sliding_window is true
  kEveryLayerIfUsed,  // all, if use_sliding_window is true
  // Every second one below max_window_layers, from the first on, or as layer_types says, if
  // use_sliding_window is true.
  kEvenUpTo,
};

// What an architecture says about positions where its files do not.
struct PositionTraits {
  int global_every = 0;            // every so many layers one attends without the window; 0: none does
  double rope_base = 10000;        // of a GGUF file without one
  bool own_window_rope = false;    // layers with a window have a RoPE without scaling
  double window_rope_base = 0;     // its base in a GGUF file without one; 0: that of the others
  double hf_window_rope_base = 0;  // its base in a config.json without one
  bool own_window_heads = false;   // layers with a window have heads of their own size
  // GGUF's converter permutes q and k for interleaved RoPE: Llama's, not Qwen2's.
  bool gguf_interleaved = false;
  bool hf_rope_if_named = false;   // config.json: RoPE only where position_embedding_type is rope
  bool finetuned_rope = false;     // GGUF: no layer has RoPE where rope.scaling.finetuned is false
  int no_rope_every = 0;           // GGUF: every so many layers one has no RoPE; 0: none
  bool rope_in_windows = false;    // GGUF: layers without a window have no RoPE; a folder lists those with it
  bool long_rope = false;          // GGUF: the RoPE may have short and long factors, and no type
  bool partial_rotary = false;     // config.json's partial_rotary_factor counts
  bool query_temperature = false;  // queries grow with the logarithm of their position
  bool none = false;               // no layer has RoPE, whatever the file says of one
};

// The keys of a config.json with a mixture of experts. A null key counts as absent.
struct HfMixture {
  const char* experts = nullptr;  // null: the type has no mixtures
  const char* width = nullptr;
  const char* shared_width = nullptr;  // null: there is no shared expert, or the traits say which
  const char* used = "num_experts_per_tok";
  const char* enabled = nullptr;  // a flag without which there are no mixtures; null: there always are
  // norm_topk_prob says whether weights are divided by their sum; else they are.
  bool may_normalise = false;
  // decoder_sparse_step and mlp_only_layers say which layers have an FFN of intermediate_size instead.
  bool dense_layers = false;
  bool may_lack = false;              // a number of experts of 0 means that there are none
  const char* first_dense = nullptr;  // a number of first layers that have it
  const char* bias = nullptr;         // a flag: experts are chosen with a bias
  const char* scale = nullptr;        // a factor on the weights of experts
  bool of_blocks = false;             // HfBlocks says which layers have one
};

// A model_type of Hugging Face; of text_config where a folder nests it.
struct HfType {
  const char* name;
  WindowRule windows = WindowRule::kNever;
  HfMixture mixture = {};
};

// What an architecture says of its mixtures of experts where GGUF files do not.
struct MixtureTraits {
  enum class Presence { kNever, kMaybe, kAlways } presence = Presence::kNever;
  enum class Shared {
    kNone,
    kPlain,
    kGated,
    kFfn  // the layer's usual FFN, beside which the mixture is
  } shared = Shared::kNone;
  RouterKind router = RouterKind::kSoftmaxTopK;
  bool gguf_normalise = true;
  double gguf_gating = 1;  // llama.cpp's number of the router, where a file gives it
  // GGUF files without a width of experts: feed_forward_length is that of the experts of a row together, not
  // of one.
  bool gguf_ffn_of_row = false;
};

enum class HeadNorm { kNone, kEachHead, kWholeWidth };

// Where the weight of the gate on attention's output is.
enum class OutputGate {
  kNone,
  kSeparate,
  kInQuery  // behind each head's rows of the query's matrix
};

// The layer does not know the architecture: it sees which weights exist.
struct Architecture {
  const char* gguf;  // general.architecture
  std::vector<HfType> hf;
  const char* models;  // for people
  NormKind norm = NormKind::kRms;
  FfnKind ffn = FfnKind::kSwiGlu;
  bool alibi = false;
  bool qkv_bias = false;
  bool all_biases = false;
  EmbeddingNorm embedding_norm = EmbeddingNorm::kNone;
  HeadNorm head_norm = HeadNorm::kNone;
  bool pre_norms = true;
  bool sinks = false;
  const char* gguf_ffn_norm = "ffn_norm";
  bool post_norms = false;
  double post_norm_eps = 0;  // of GGUF files, which do not say; 0: that of the other norms
  OutputGate output_gate = OutputGate::kNone;
  bool scaled_embedding = false;  // by sqrt(hidden)
  double hf_norm_offset = 0;      // Hugging Face's files store norm weights without this, and the last norm's
  double hf_final_norm_offset = 0;  // without this
  bool fused = false;               // q, k and v are one matrix in Hugging Face's files, and gate and up
  bool multipliers = false;         // of embedding, residual, attention and logits, which its files give
  bool capped_logits = false;       // its files give a factor on logits and their cap
  bool gemma4_layers = false;       // ModelConfig::gemma4_layers, and what config_gemma4.h reads
  // Of the layers that do not attend; kAttention: all do.
  MixerKind state = MixerKind::kAttention;
  int attention_every = 0;  // every so many layers one attends, where a file does not say
  // A layer attends, has a state, or is an FFN or a mixture of experts, with one norm.
  bool one_mixer = false;
  NameStyle names = NameStyle::kUsual;
  PositionTraits positions = {};
  MixtureTraits mixture = {};
};

const std::vector<Architecture>& Architectures();

// The row of general.architecture, or of a config.json's model_type. These throw Error for a name that has
// none; the message starts with `path` and `key`, and gives the reason, or the names that there are.
const Architecture& ArchitectureOfGguf(const std::string& name, const std::string& path,
                                       const std::string& key);
struct HfArchitecture {
  const Architecture& row;
  const HfType& type;
};
HfArchitecture ArchitectureOfHf(const std::string& name, const std::string& path, const std::string& key);

// The model_type that text_config has where it names none, for the model_type of a folder that nests its text
// model; "" if `name` is no such type.
std::string_view NestedTextType(std::string_view name);

}  // namespace coppice
