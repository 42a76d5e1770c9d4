// A prefix (model/prefix.h) as a file: the document cache keeps such files on disk, and a slot of the server
// saves one.
//
// Little-endian, like every machine that this program runs on:
//   head       fixed fields (prefix_file.cpp: Head), the key width of each layer below the point, the rows of
//              each checkpoint, a checksum per section, and a checksum over all of these
//   sections   the tokens; for each layer its keys, then its values; the hidden states, if there are any; for
//              each checkpoint and each layer with a state the convolution's last rows, then the state
// A file is written under another name, synced, and renamed, so it exists complete or not at all. Reading
// trusts nothing: it checks every field against the engine's own format and the file's length before it
// allocates memory, and every section against its checksum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "model/prefix.h"
#include "model/run_control.h"

namespace coppice {

// The format of one engine's prefixes.
struct PrefixFormat {
  Fingerprint fingerprint;  // of everything that may change a bit of a state: model, backend, ISA, arithmetic
  DType cache_type = DType::kBF16;
  std::vector<int64_t> key_widths;          // [layers] kv_heads * head_dim
  std::vector<RecurrentShape> states = {};  // [layers], without taps where a layer attends; or empty
  int64_t hidden = 0;
  int64_t vocab = 0;

  int layers() const { return static_cast<int>(key_widths.size()); }
  // Of a layer that attends it has no channels.
  RecurrentShape state(int layer) const {
    return states.empty() ? RecurrentShape() : states[static_cast<size_t>(layer)];
  }
};

// The contents of a file's head and of its token section.
struct PrefixHead {
  PrefixOwner owner;
  std::vector<int32_t> tokens;
  LayerPoint point;
  bool complete = true;
  int64_t file_bytes = 0;
  std::optional<std::vector<int64_t>> checkpoints;  // rows; nullopt: no layer below the point has a state
};

// Throws Error, naming the file, if it cannot be written; an existing file is then unchanged, as it is when
// `control` cancels. Writing pauses between pieces, as reading does.
void WritePrefixFile(const PrefixState& state, const PrefixFormat& format, const std::string& path,
                     const RunControl& control = {});

// These throw Error, naming the file and the cause. They refuse a state of more than `most_bytes` before they
// allocate memory for it: a sparse file can be long without taking space on the disk. A state can be as large
// as gigabytes, so reading it pauses between pieces and can be cancelled.
PrefixHead ReadPrefixHead(const std::string& path, const PrefixFormat& format);
PrefixState ReadPrefixFile(const std::string& path, const PrefixFormat& format,
                           int64_t most_bytes = INT64_MAX, const RunControl& control = {});

}  // namespace coppice
