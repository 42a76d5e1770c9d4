// What tells one engine's hidden states, keys and values from another's.
#pragma once

#include <string>

#include "base/checksum.h"
#include "formats/tensor_store.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace coppice {

// Over everything that may change a bit of a state: the model's description and every byte of every tensor (a
// sample would miss a model of which a few rows were edited), the backend, its ISA, arithmetic and cache
// type, what the CPU can do, and this program's own file, because another build's kernels may round
// otherwise. Not over threads and tiles, which change nothing (docs/laws.md, C7 and C9). Reads the whole
// model: 60 ms for 0.7 GB in memory. Throws Error where the program's file cannot be read.
Fingerprint FingerprintOf(const TensorStore& store, const ModelConfig& config, const Backend& be, bool exact);

// Tells one model's weights from another's, as 32 hexadecimal digits that are the same on every machine, for
// every backend, and for every build of this program: calibration files store it. It covers the sizes and the
// position encoding of `config`, the name, shape and type of each tensor, and eight pieces of each tensor's
// bytes. The pieces keep it cheap for a model that is not in memory yet (a few MB are read); an edit between
// them is not noticed.
std::string WeightsFingerprintOf(const TensorStore& store, const ModelConfig& config);

}  // namespace coppice
