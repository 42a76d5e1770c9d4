// ask MODEL DOCUMENT QUESTION...: reads a document once and answers questions about it.
#include <coppice/llm.h>

#include <fstream>
#include <iostream>
#include <iterator>

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: ask MODEL DOCUMENT QUESTION...\n";
    return 2;
  }
  try {
    coppice::Llm llm(argv[1], {.prune = "auto", .context = 8192});
    std::ifstream file(argv[2]);
    const coppice::LlmDocument document =
        llm.Read({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    for (int i = 3; i < argc; ++i) {
      coppice::LlmRequest request{.max_tokens = 64, .temperature = 0};
      request.on_text = [](std::string_view text) {
        return static_cast<bool>(std::cout << text << std::flush);
      };
      const coppice::LlmAnswer answer = document.Ask(argv[i], request);
      std::cout << "\n[" << answer.prompt_tokens << " tokens, " << answer.cached_tokens
                << " of them read before, first token "
                << "after " << answer.ttft_ms << " ms]\n";
    }
  } catch (const coppice::LlmError& error) {
    std::cerr << "ask: " << error.what() << "\n";
    return 1;
  }
}
