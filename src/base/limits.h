// Every limit on the sizes that a file or a request may ask for. Each is far above real use and far below
// what would exhaust a machine, so that no size from outside alone decides how much memory is allocated.
#pragma once

#include <cstdint>

namespace coppice::limits {

// Model files.
inline constexpr uint64_t kMaxGgufTensors = 1u << 20;
inline constexpr uint64_t kMaxGgufKeys = 1u << 20;
inline constexpr uint64_t kMaxGgufKeyBytes = 65535;      // the format's own limit
inline constexpr uint64_t kMaxGgufTensorNameBytes = 64;  // the format's own limit
inline constexpr int kMaxGgufArrayDepth = 8;
inline constexpr uint64_t kMaxGgufAlignment = 1u << 20;
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // as in the safetensors library
inline constexpr int kMaxSafetensorsTensors = 65536;
inline constexpr int kMaxShards = 4096;
inline constexpr int kMaxJsonDepth = 64;
inline constexpr uint64_t kMaxJsonFileBytes = 256u << 20;
// Units of about 16 bytes, as ParseJson() counts them. A tokenizer.json of 260 thousand tokens and 500
// thousand merges takes 10 million.
inline constexpr uint64_t kMaxJsonValues = 32u << 20;

// Model shapes.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHidden = 1 << 20;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxTaps = 64;  // of a layer's short convolution; models have 3 or 4
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxContext = 1 << 24;

// Tokenizers and chat templates.
inline constexpr int64_t kMaxAddedTokens = 65536;
inline constexpr int64_t kMaxTemplateSteps = 1'000'000;
inline constexpr int64_t kMaxTemplateOutputBytes = 64 << 20;
// Of the values that are alive at the same time, and of strings that grow. A template that builds its prompt
// in a variable holds the old and the new string, and the output while it grows.
inline constexpr int64_t kMaxTemplateMemoryBytes = 3 * kMaxTemplateOutputBytes;
inline constexpr int kMaxTemplateDepth = 64;

// Grammars that answers must follow. The JSON schema of a tool takes some hundred states.
inline constexpr uint64_t kMaxGrammarBytes = 1 << 20;  // of GBNF, or of a schema's JSON
inline constexpr int kMaxGrammarDepth = 64;            // of groups in groups
inline constexpr uint64_t kMaxGrammarRules = 16384;
inline constexpr int64_t kMaxGrammarRepeats = 100'000;         // of one {m,n}; states limit it further
inline constexpr uint64_t kMaxGrammarParts = 100'000;          // of a regular expression, as JSON spells it
inline constexpr uint64_t kMaxGrammarStates = 200'000;         // compiled
inline constexpr uint64_t kMaxGrammarEdges = 1'000'000;        // compiled
inline constexpr uint64_t kMaxGrammarWork = 5'000'000;         // steps of compiling (work_budget.h)
inline constexpr uint64_t kSmallGrammarWork = 250'000;         // compilations beyond it run one at a time
inline constexpr uint64_t kMaxGrammarItems = 1024;             // after one byte; JSON takes 1 to 6
inline constexpr uint64_t kMaxGrammarAnswerItems = 4'000'000;  // of a whole answer, 8 bytes each
// Steps of following an answer. A token that looks at the whole vocabulary takes some millions.
inline constexpr uint64_t kMaxGrammarTokenSteps = 10'000'000;    // for one token, about 80 ms
inline constexpr uint64_t kFirstGrammarSteps = 200'000'000;      // for a whole answer,
inline constexpr uint64_t kGrammarStepsOfEachToken = 2'000'000;  // and what each of its tokens adds

}  // namespace coppice::limits
