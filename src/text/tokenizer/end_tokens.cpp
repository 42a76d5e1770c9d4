// llama.cpp's lists: special_eog_ids in its llama-vocab.cpp, which takes them whatever their type.
#include "text/tokenizer/end_tokens.h"

#include <algorithm>
#include <array>
#include <optional>

namespace coppice {
namespace {

constexpr auto kEndNames = std::to_array<std::string_view>({
    "<|eot_id|>",
    "<|eot|>",  // of Muse Glimmer's folders; GGUF's converter writes its id
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // A model that fills in the middle of a file ends with the padding, or with the name of another file.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
});

}  // namespace

bool IsEndName(std::string_view text) { return std::ranges::find(kEndNames, text) != kEndNames.end(); }

std::vector<int32_t> NamedEnds(const Vocabulary& vocabulary) {
  const auto has = [&](std::string_view name) { return vocabulary.Find(name).has_value(); };
  const bool calls = has("<|call|>") || has("<|calls|>");
  // The formats of gpt-oss and of Solar Open.
  const bool end_goes_on = calls && (has("<|return|>") || has("<|flush|>"));
  const bool s_is_a_word = has("<|tool_response>") || has("<|plamo:eos|>");
  std::vector<int32_t> ends;
  for (const std::string_view name : kEndNames) {
    if ((end_goes_on && name == "<|end|>") || (s_is_a_word && name == "</s>")) continue;
    if (const std::optional<int32_t> id = vocabulary.Find(name)) ends.push_back(*id);
  }
  return ends;
}

}  // namespace coppice
