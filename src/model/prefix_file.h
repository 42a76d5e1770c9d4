// A prefix (model/prefix.h) as a file: what the document cache keeps on disk, and what a slot of the server saves.
//
// Little-endian, as every machine that this runs on:
//   head       fixed fields (prefix_file.cpp: Head), a checksum per section, and a checksum over both
//   sections   the tokens; per layer its keys, then its values; the hidden states where there are any
// A file is written beside its name, synced, and renamed: it is there whole or not at all. Reading trusts nothing: every
// field is held against the engine's own format and against the file's length before anything is allocated, and every
// section against its checksum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "model/prefix.h"

namespace coppice {

// What an engine's prefixes look like.
struct PrefixFormat {
  Fingerprint fingerprint;  // of model, backend, ISA and arithmetic: whatever changes a bit of a state
  DType cache_type = DType::kBF16;
  int layers = 0;
  int64_t key_width = 0;  // kv_heads * head_dim
  int64_t hidden = 0;
  int64_t vocab = 0;
};

// What a file holds, by its head and its tokens alone.
struct PrefixHead {
  std::vector<int32_t> tokens;
  LayerPoint point;
  bool complete = true;
  int64_t file_bytes = 0;
};

// Throws Error, naming the file, where it cannot be written; what stood there before then still does.
void WritePrefixFile(const PrefixState& state, const PrefixFormat& format, const std::string& path);

// Throw Error, naming the file and the cause. A state of more than `most_bytes` is refused before memory is taken for it:
// a file may be sparse, and its length costs nothing.
PrefixHead ReadPrefixHead(const std::string& path, const PrefixFormat& format);
PrefixState ReadPrefixFile(const std::string& path, const PrefixFormat& format,
                           int64_t most_bytes = INT64_MAX);

}  // namespace coppice
