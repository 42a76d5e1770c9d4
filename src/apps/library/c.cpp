// The functions of coppice/c.h. No exception leaves them.
#include <coppice/c.h>

#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/cli/version.h"
#include "apps/library/served_model.h"
#include "server/errors.h"

struct coppice_llm {
  explicit coppice_llm(const std::vector<std::string>& options) : model(options) {}
  coppice::ServedModel model;
};

namespace {

constexpr int kFailed = 500;

// Null if there is no memory for the text either.
void Tell(char** error, const char* text) {
  if (error != nullptr) *error = strdup(text);
}

// Calls `function`; if it throws, returns `failed` and tells why.
template <typename Function, typename Result>
Result Guarded(char** error, Result failed, Function&& function) {
  try {
    return function();
  } catch (const std::exception& exception) {
    Tell(error, exception.what());
  } catch (...) {
    Tell(error, "unknown error");
  }
  return failed;
}

}  // namespace

const char* coppice_version() { return coppice::kVersion; }

coppice_llm* coppice_open(const char* const* options, size_t count, char** error) {
  return Guarded(error, static_cast<coppice_llm*>(nullptr),
                 [&] { return new coppice_llm(std::vector<std::string>(options, options + count)); });
}

void coppice_close(coppice_llm* llm) { delete llm; }

int coppice_call(coppice_llm* llm, const char* method, const char* path, const char* body, size_t size,
                 coppice_receive receive, void* user) {
  char* error = nullptr;
  const int status = Guarded(&error, -1, [&] {
    return llm->model.Call(method, path, std::string(body, size), [&](std::string_view bytes) {
      return receive(user, bytes.data(), bytes.size()) == 0;
    });
  });
  if (status >= 0) return status;
  // As the routes report an error.
  const std::string reply =
      coppice::ErrorReply({kFailed, "server_error", error != nullptr ? error : "out of memory"}, {}).body;
  receive(user, reply.data(), reply.size());
  coppice_free(error);
  return kFailed;
}

int coppice_listen(coppice_llm* llm, int port, char** error) {
  return Guarded(error, -1, [&] { return llm->model.Listen(port); });
}

int coppice_main(int argc, char** argv) { return coppice::cli::Program(argc, argv); }

void coppice_free(char* text) { free(text); }
