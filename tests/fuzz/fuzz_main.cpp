// A libFuzzer program for one target (COPPICE_FUZZ_TARGET). `write FOLDER` writes the target's seeds into
// FOLDER/corpus/NAME and its dictionary to FOLDER/NAME.dict, and ends.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fuzz/fuzz_target.h"

namespace {

const coppice::FuzzTarget& Target() {
  static const coppice::FuzzTarget target = coppice::COPPICE_FUZZ_TARGET();
  return target;
}

void WriteCorpus(const std::filesystem::path& folder) {
  const std::filesystem::path corpus = folder / "corpus" / Target().name;
  std::filesystem::create_directories(corpus);
  int number = 0;
  for (const std::string& seed : Target().seeds())
    std::ofstream(corpus / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
  std::ofstream dictionary(folder / (std::string(Target().name) + ".dict"));
  for (const std::string& word : Target().words) {
    dictionary << '"';
    for (const char c : word) {
      char code[5];
      std::snprintf(code, sizeof code, "\\x%02X", static_cast<unsigned>(static_cast<uint8_t>(c)));
      dictionary << code;
    }
    dictionary << "\"\n";
  }
  if (!dictionary.flush()) std::exit(1);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::string((*argv)[1]) == "write") {
    WriteCorpus((*argv)[2]);
    std::_Exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}
