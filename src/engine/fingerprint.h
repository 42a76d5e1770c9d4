// Hashes that identify an engine's hidden states, keys and values, and a model's weights.
#pragma once

#include <string>

#include "base/checksum.h"
#include "formats/tensor_store.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace coppice {

// Hashes everything that may change a bit of a state: the model's description, every byte of every tensor (a
// sample would miss a model with a few edited rows), the backend, its ISA, arithmetic and cache type, the CPU
// model, and this program's own file, because the kernels of another build may round differently. Threads and
// tiles change nothing and are left out (docs/laws.md, C7 and C9). Reads the whole model: 60 ms for 0.7 GB in
// memory. Throws Error if the program's file cannot be read.
Fingerprint FingerprintOf(const TensorStore& store, const ModelConfig& config, const Backend& be, bool exact,
                          bool fast);

// Identifies a model's weights, as 32 hexadecimal digits that are the same on every machine, for every
// backend and for every build of this program, so calibration files can store them. Hashes the sizes and the
// position encoding of `config`, the name, shape and type of each tensor, and eight pieces of each tensor's
// bytes. Because of the pieces, only a few MB of a model that is not yet in memory are read; an edit between
// the pieces goes unnoticed.
std::string WeightsFingerprintOf(const TensorStore& store, const ModelConfig& config);

}  // namespace coppice
