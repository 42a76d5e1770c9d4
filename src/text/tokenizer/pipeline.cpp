#include "text/tokenizer/pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/end_tokens.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max() / 4;  // indices of symbols have 32 bits

// A character that `text` does not hold, or "" if that is not known soon.
std::string UnusedCharacter(std::string_view text) {
  constexpr uint32_t kLastPrivate = 0x10FFFD;
  constexpr uint32_t kTries = 16;
  for (uint32_t code = kLastPrivate; code > kLastPrivate - kTries; --code) {
    std::string character;
    AppendUtf8(code, character);
    if (text.find(character) == text.npos) return character;
  }
  return "";
}

// Normalises `text`, and turns its offsets `plain` into those of the normalised text: a mark before each of
// these bytes goes through the normaliser. Returns false, with the text normalised, if the marks got lost.
bool NormalizeMarked(const Normalizer& normalizer, std::string& text, std::vector<size_t>& plain) {
  const std::string mark = UnusedCharacter(text);
  if (mark.empty()) {
    text = normalizer.Apply(std::move(text));
    return false;
  }
  std::string marked;
  size_t done = 0;
  for (const size_t at : plain) {
    marked.append(text, done, at - done);
    marked += mark;
    done = at;
  }
  marked.append(text, done);
  marked = normalizer.Apply(std::move(marked));
  const size_t marks = plain.size();
  text.clear();
  plain.clear();
  done = 0;
  for (size_t at = marked.find(mark); at != marked.npos; at = marked.find(mark, done)) {
    text.append(marked, done, at - done);
    plain.push_back(text.size());
    done = at + mark.size();
  }
  text.append(marked, done);
  return plain.size() == marks;
}

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

  std::string_view kind() const override { return parts_.kind; }
  int32_t vocab_size() const override { return parts_.vocabulary->size(); }
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<size_t> ControlStarts(std::string_view text) const override;
  std::string Piece(int32_t id, bool special) const override;
  std::string Decode(std::span<const int32_t> ids, bool special) const override;

  std::optional<int32_t> bos() const override { return parts_.bos; }
  std::optional<int32_t> eos() const override { return parts_.eos; }
  bool EndsGeneration(int32_t id) const override {
    return parts_.eos == id || std::ranges::binary_search(parts_.ends, id);
  }
  bool IsControl(int32_t id) const override {
    return parts_.vocabulary->Contains(id) && parts_.vocabulary->type(id) == TokenType::kControl;
  }
  std::optional<int32_t> Find(std::string_view token) const override {
    return parts_.vocabulary->Find(token);
  }
  const std::string& chat_template() const override { return parts_.chat_template; }
  const std::string& tool_template() const override { return parts_.tool_template; }
  void SetChatTemplate(std::string jinja) override {
    parts_.chat_template = std::move(jinja);
    parts_.tool_template.clear();
  }
  const std::string& note() const override { return parts_.note; }

 private:
  struct Run {
    const EncodeOptions& options;
    MergeScratch scratch;
    std::vector<int32_t> ids;
  };

  void EncodeText(std::string text, const Fragment& part, Run& run) const;
  void EncodePlain(std::string text, bool at_start, Run& run) const;
  // The text of a token for the decoder; nullopt if the token is hidden.
  std::optional<std::string> Shown(int32_t id, bool special) const;

  TokenizerParts parts_;
};

std::vector<int32_t> PipelineTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    throw Error("[tokenizer] a text of {} bytes is longer than the {} that one call takes", text.size(),
                kMaxTextBytes);
  }
  Run run{options, {}, {}};
  run.scratch.cancelled = options.cancelled;
  if (options.add_special) run.ids = parts_.prefix;
  for (const Fragment& part : parts_.raw_added.Split(text, options.parse_special, options.plain)) {
    ThrowIfCancelled(options.cancelled);
    if (part.id >= 0) {
      run.ids.push_back(part.id);
    } else {
      EncodeText(std::string(text.substr(part.begin, part.end - part.begin)), part, run);
    }
  }
  if (options.add_special) run.ids.insert(run.ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return std::move(run.ids);
}

std::vector<size_t> PipelineTokenizer::ControlStarts(std::string_view text) const {
  std::vector<size_t> starts;
  parts_.raw_added.AddSpecialStarts(text, starts);
  if (parts_.normalized_added.empty()) return starts;
  parts_.normalized_added.AddSpecialStarts(text, starts);
  if (parts_.normalizer != nullptr) {
    std::vector<size_t> normalized;
    parts_.normalized_added.AddSpecialStarts(parts_.normalizer->Apply(std::string(text)), normalized);
    // Offsets in the normalised text say nothing of the text's own, so none of its characters may be a part.
    for (size_t at = 0; !normalized.empty() && at < text.size(); at += DecodeUtf8(text, at).size)
      starts.push_back(at);
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

// `text` is that of `part` of the whole.
void PipelineTokenizer::EncodeText(std::string text, const Fragment& part, Run& run) const {
  const bool at_start = part.begin == 0;
  bool parse_special = run.options.parse_special;
  std::vector<size_t> plain;
  if (!parts_.normalized_added.empty()) {
    const auto first = std::ranges::lower_bound(run.options.plain, part.begin);
    for (auto at = first; at != run.options.plain.end() && *at < part.end; ++at)
      plain.push_back(*at - part.begin);
  }
  if (parts_.normalizer != nullptr) {
    // Where the offsets are lost, text must not become a control token; the template's own are lost as well.
    if (plain.empty()) {
      text = parts_.normalizer->Apply(std::move(text));
    } else if (!NormalizeMarked(*parts_.normalizer, text, plain)) {
      parse_special = false;
    }
  }
  if (parts_.normalized_added.empty()) return EncodePlain(std::move(text), at_start, run);
  for (const Fragment& inner : parts_.normalized_added.Split(text, parse_special, plain)) {
    if (inner.id >= 0) {
      run.ids.push_back(inner.id);
    } else {
      EncodePlain(text.substr(inner.begin, inner.end - inner.begin), at_start && inner.begin == 0, run);
    }
  }
}

void PipelineTokenizer::EncodePlain(std::string text, bool at_start, Run& run) const {
  if (text.empty()) return;
  Pieces pieces;
  pieces.ranges.push_back({0, text.size()});
  pieces.text = std::move(text);
  pieces.at_start = at_start;
  pieces.cancelled = run.options.cancelled;
  if (parts_.pre_tokenizer != nullptr) parts_.pre_tokenizer->Apply(pieces);
  for (const TextRange range : pieces.ranges) {
    ThrowIfCancelled(run.options.cancelled);
    const std::string_view piece = std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    parts_.merger->Encode(piece, run.scratch, run.ids);
  }
}

std::optional<std::string> PipelineTokenizer::Shown(int32_t id, bool special) const {
  const Vocabulary& vocabulary = *parts_.vocabulary;
  if (!vocabulary.Contains(id)) return std::nullopt;
  const TokenType type = vocabulary.type(id);
  if (special) return vocabulary.text(id);
  if (type == TokenType::kControl) return std::nullopt;
  if (type == TokenType::kUnknown && !parts_.unknown_surface.empty()) return parts_.unknown_surface;
  return vocabulary.text(id);
}

std::string PipelineTokenizer::Piece(int32_t id, bool special) const {
  std::optional<std::string> text = Shown(id, special);
  if (!text) return "";
  const TokenType type = parts_.vocabulary->type(id);
  // Added tokens of a byte-level model are stored as plain text.
  const bool as_is = parts_.byte_level && (type == TokenType::kControl || type == TokenType::kUserDefined);
  return as_is || parts_.decoder == nullptr ? std::move(*text) : parts_.decoder->Piece(std::move(*text));
}

std::string PipelineTokenizer::Decode(std::span<const int32_t> ids, bool special) const {
  std::string out;
  if (parts_.decoder == nullptr || parts_.decoder->IsLocal()) {
    for (const int32_t id : ids) out += Piece(id, special);
    return out;
  }
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const int32_t id : ids) {
    std::optional<std::string> text = Shown(id, special);
    if (text) texts.push_back(std::move(*text));
  }
  parts_.decoder->Apply(texts);
  for (const std::string& text : texts) out += text;
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> MakePipelineTokenizer(TokenizerParts parts) {
  for (const int32_t id : NamedEnds(*parts.vocabulary)) parts.ends.push_back(id);
  std::ranges::sort(parts.ends);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

void SetSpmText(TokenizerParts& parts, bool add_space_prefix, bool trim_spaces) {
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  if (trim_spaces) normalizers.push_back(MakeTrimSpaces());
  if (add_space_prefix) normalizers.push_back(MakePrepend(kSpmSpace));
  normalizers.push_back(MakeReplace(" ", kSpmSpace));
  parts.normalizer = MakeNormalizerSequence(std::move(normalizers));

  std::vector<std::unique_ptr<Decoder>> decoders;
  decoders.push_back(MakeReplaceDecoder(kSpmSpace, " "));
  decoders.push_back(MakeByteFallbackDecoder());
  decoders.push_back(MakeFuseDecoder());
  if (add_space_prefix) decoders.push_back(MakeStripDecoder(" ", 1, 0));
  parts.decoder = MakeDecoderSequence(std::move(decoders));
  parts.unknown_surface = " \xE2\x81\x87 ";  // SentencePiece's default unk_surface
}

AddedTokenMatcher MatcherFromTypes(const Vocabulary& vocabulary, bool spm, const std::string& source) {
  std::vector<AddedToken> tokens;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    if (vocabulary.text(id).empty()) continue;
    AddedToken token{.id = id, .content = vocabulary.text(id), .special = type == TokenType::kControl};
    // SentencePiece stores spaces of a user-defined token as U+2581, but the matcher searches the text before
    // normalisation.
    if (spm) {
      for (size_t at = token.content.find(kSpmSpace); at != std::string::npos;
           at = token.content.find(kSpmSpace, at)) {
        token.content.replace(at, 3, " ");
      }
    }
    tokens.push_back(std::move(token));
  }
  return AddedTokenMatcher(std::move(tokens), source);
}

}  // namespace coppice
