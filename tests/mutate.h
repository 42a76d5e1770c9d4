// Changes of a valid input, for tests that readers load or reject whatever they get.
#pragma once

#include <algorithm>
#include <random>
#include <string>

namespace coppice {

// Makes one to four changes. Small and extreme numbers are more frequent than at random, because readers fail
// on lengths, counts and types.
inline std::string Mutate(const std::string& original, std::mt19937& random) {
  std::string text = original;
  for (auto changes = random() % 4 + 1; changes > 0 && !text.empty(); --changes) {
    const size_t at = random() % text.size();
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 1:
        text[at] = static_cast<char>(random());
        break;
      case 2:
        text[at] = static_cast<char>(random() % 14);
        break;
      case 3:
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), std::min<size_t>(8, text.size() - at),
                    random() % 2 != 0 ? '\xff' : '\0');
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 16));
        break;
    }
  }
  return text;
}

}  // namespace coppice
