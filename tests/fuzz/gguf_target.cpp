// A GGUF file: its metadata, tensors, and tokenizer.
#include "formats/gguf.h"
#include "formats/gguf_parse.h"
#include "formats/test_bytes.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {
namespace {

Bytes& Strings(Bytes& file, const char* key, const std::vector<std::string>& items) {
  file.String(key).U32(9).U32(8).U64(items.size());
  for (const std::string& item : items) file.String(item);
  return file;
}

std::string BpeFile() {
  Bytes file;
  file.Head(0, 5).String("tokenizer.ggml.model").U32(8).String("gpt2");
  file.String("tokenizer.ggml.pre").U32(8).String("llama-bpe");
  Strings(file, "tokenizer.ggml.tokens", {"a", "b", "ab", "abab", "<|end|>"});
  file.String("tokenizer.ggml.token_type").U32(9).U32(5).U64(5).U32(1).U32(1).U32(1).U32(1).U32(3);
  return Strings(file, "tokenizer.ggml.merges", {"a b", "ab ab"}).PadTo(32).text();
}

std::string SpmFile() {
  Bytes file;
  file.Head(3, 6).KeyU32("general.alignment", 32).String("general.architecture").U32(8).String("llama");
  file.String("tokenizer.ggml.model").U32(8).String("llama");
  Strings(file, "tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "<0x41>", "aa"});
  file.String("tokenizer.ggml.scores").U32(9).U32(6).U64(6);
  for (int i = 0; i < 6; ++i) file.Put(static_cast<float>(-i));
  file.String("tokenizer.ggml.token_type").U32(9).U32(5).U64(6).U32(2).U32(3).U32(3).U32(1).U32(6).U32(1);
  file.Tensor("norm", {8}, 0, 0).Tensor("q8", {32, 2}, 8, 32).Tensor("q4k", {256}, 12, 128).PadTo(32);
  return file.Zeros(32 + 96 + 144).text();
}

bool Run(std::string_view input) {
  const std::vector<std::byte> bytes = ExactBytes(input);
  return Accepts([&] {
    const ParsedGguf parsed = ParseGguf(bytes, "x.gguf");
    ReadAllValues(parsed.tensors);
    const auto tokenizer = Tokenizer::FromGguf(GgufMetadata("x.gguf", parsed.metadata));
    if (tokenizer) tokenizer->Decode(tokenizer->Encode("abab <s> A\xff \xc3\xa9"));
  });
}

}  // namespace

FuzzTarget GgufTarget() {
  return {"gguf",
          [] {
            return std::vector<std::string>{SpmFile(), BpeFile()};
          },
          {"GGUF", "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
           "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id", "tokenizer.chat_template",
           "general.alignment", "split.count", "split.no", "qwen2", "bloom", "llama", "gpt2", "gemma4"},
          Run};
}

}  // namespace coppice
