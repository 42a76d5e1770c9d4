// A Hugging Face folder: config.json, tokenizer.json and tokenizer_config.json in one input, with separators.
#include <array>

#include "engine/open_model.h"
#include "formats/test_bytes.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"

namespace coppice {
namespace {

constexpr std::string_view kSeparator = "\n----\n";

std::vector<std::string> Seeds() {
  const std::string llama =
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,"intermediate_size":16,)"
      R"("num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":6,)"
      R"("max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":10000.0,"rope_scaling":)"
      R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":32},"tie_word_embeddings":true})";
  const std::string bloom =
      R"({"architectures":["BloomForCausalLM"],"model_type":"bloom","hidden_size":8,"n_layer":2,"n_head":2,)"
      R"("vocab_size":6,"seq_length":64,"layer_norm_epsilon":1e-5})";
  const std::string bpe =
      R"({"added_tokens":[{"id":5,"content":"<|end|>","special":true,"lstrip":false,"rstrip":true,)"
      R"("normalized":false,"single_word":false}],"normalizer":{"type":"Sequence","normalizers":[)"
      R"({"type":"NFC"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]},"pre_tokenizer":)"
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+"},)"
      R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,)"
      R"("use_regex":false}]},"decoder":{"type":"ByteLevel"},"post_processor":null,"model":{"type":"BPE",)"
      R"("vocab":{"a":0,"b":1,"ab":2,"abab":3,"_":4},"merges":["a b",["ab","ab"]],"byte_fallback":false}})";
  const std::string config =
      R"({"bos_token":"<s>","eos_token":{"content":"<|end|>"},"chat_template":"{{ messages[0].content }}"})";
  const std::string separator(kSeparator);
  return {llama + separator + bpe + separator + config, bloom + separator + bpe};
}

bool Run(std::string_view input) {
  static const FuzzFolder folder;
  static const std::string weights = folder.Write(
      "model.safetensors",
      Bytes()
          .String(R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2]}})")
          .Zeros(2)
          .text());
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    const size_t end = std::min(input.find(kSeparator), input.size());
    folder.Write(name, end == 0 ? "{}" : input.substr(0, end));
    input.remove_prefix(std::min(end + kSeparator.size(), input.size()));
  }
  return Accepts([&] {
    const OpenedModel model = OpenModel(folder.path());
    if (model.tokenizer) model.tokenizer->Decode(model.tokenizer->Encode("abab <s> A\xff \xc3\xa9"));
  });
}

}  // namespace

FuzzTarget HfFolderTarget() {
  return {"hf_folder",
          Seeds,
          {"\"rope_scaling\"",
           "\"yarn\"",
           "\"linear\"",
           "\"sliding_window\"",
           "\"head_dim\"",
           "\"Metaspace\"",
           "\"Unigram\"",
           "\"Prepend\"",
           "\"Lowercase\"",
           "\"Strip\"",
           "\"ByteFallback\"",
           "\"Fuse\"",
           "\"Digits\"",
           "\"Punctuation\"",
           "\"Removed\"",
           "\"MergedWithPrevious\"",
           "\"ignore_merges\"",
           "\"unk_token\"",
           "\"TemplateProcessing\"",
           "(?i:",
           "(?!",
           "\\\\p{N}",
           "Qwen2ForCausalLM",
           "\n----\n"},
          Run};
}

}  // namespace coppice
