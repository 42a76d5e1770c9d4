// LLMLingua-2's classifier: the files of an encoder in one input, with separators: config.json, then
// tokenizer.json, or nothing, tokenizer_config.json and vocab.txt.
#include "formats/json.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "model/token_classifier.h"
#include "text/tokenizer/encoder_tokenizer.h"

namespace coppice {
namespace {

constexpr std::string_view kSeparator = "\n----\n";

std::vector<std::string> Seeds() {
  const std::string sizes =
      R"("num_hidden_layers":2,"num_attention_heads":2,"hidden_size":8,"intermediate_size":8,"vocab_size":9,)"
      R"("max_position_embeddings":16,"pad_token_id":1,"layer_norm_eps":1e-5})";
  const std::string bert =
      R"({"normalizer":{"type":"BertNormalizer","lowercase":false},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
      R"("model":{"type":"WordPiece","vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"a":3,"##b":4,".":5}}})";
  // The charsmap's trie has three units and no text that they reach.
  const std::string unigram =
      R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":)"
      R"("DAAAAAAEAAAAAAAAAAAAAGEA"}]},"pre_tokenizer":{"type":"Metaspace"},"model":{"type":"Unigram","unk_id":2,)"
      R"("vocab":[["<s>",0],["</s>",0],["<unk>",0],["\u2581a",-1.5],["b",-2],[".",-3]]}})";
  const std::string separator(kSeparator);
  return {R"({"model_type":"bert",)" + sizes + separator + bert,
          R"({"model_type":"xlm-roberta",)" + sizes + separator + unigram,
          R"({"model_type":"bert",)" + sizes + separator + separator + R"({"do_lower_case":false})" +
              separator + "[UNK]\n[CLS]\r\n[SEP]\na\n##b\n.\n"};
}

bool Run(std::string_view input) {
  static const FuzzFolder folder;
  const auto next = [&input] {
    const size_t end = std::min(input.find(kSeparator), input.size());
    const std::string_view part = input.substr(0, end);
    input.remove_prefix(std::min(end + kSeparator.size(), input.size()));
    return part;
  };
  const std::string config = folder.Write("config.json", next());
  if (const std::string_view tokenizer = next(); !tokenizer.empty() || input.empty()) {
    folder.Write("tokenizer.json", tokenizer);
  } else {
    std::filesystem::remove(folder.path() + "/tokenizer.json");
    folder.Write("tokenizer_config.json", next());
    folder.Write("vocab.txt", input);
  }
  return Accepts([&] {
    EncoderConfigFrom(ReadJsonFile(config), config);
    const std::string text = "ab a.b <s> \xff\xc3\xa9 e\xcc\x81\r\n \xef\xac\x81";
    const auto tokenizer = EncoderTokenizer::FromHfFolder(folder.path());
    for (const PlacedToken& token : tokenizer->Encode(text)) {
      if (token.begin > token.end || token.end > text.size()) std::abort();
      if (!token.unknown) tokenizer->Text(token.id);
    }
  });
}

}  // namespace

FuzzTarget EncoderTarget() {
  return {
      "encoder",
      Seeds,
      {"\"WordPiece\"", "\"Unigram\"", "\"Precompiled\"", "\"precompiled_charsmap\"", "\"Metaspace\"",
       "\"WhitespaceSplit\"", "\"strip_accents\"", "\"handle_chinese_chars\"", "\"unk_id\"",
       "\"pad_token_id\"", "\"hidden_act\"", "\"bert\"", "\"xlm-roberta\"", "\xE2\x96\x81", "##", "\n----\n"},
      Run};
}

}  // namespace coppice
