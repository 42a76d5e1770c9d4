#include "text/jinja/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace coppice {
namespace {

constexpr size_t kMaxMessageBytes = 1024;

// Throws Error with a one-line message, whatever text the template put into it.
template <typename Thrown = Error>
[[noreturn]] void Rethrow(int line, const char* what) {
  std::string message(what);
  if (message.size() > kMaxMessageBytes) {
    size_t end = kMaxMessageBytes;
    while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
    message.resize(end);
  }
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  throw Thrown("[chat template] line {}: {}", line, message);
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(const std::string& source) : impl_(std::make_unique<Impl>()) {
  jinja::Parser parser(source);
  try {
    impl_->body = parser.ParseTemplate();
  } catch (const jinja::Fault& fault) {
    Rethrow(parser.line(), fault.what());
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::Render(const nlohmann::ordered_json& context,
                                 const std::atomic<bool>* cancelled) const {
  jinja::Interpreter interpreter(cancelled);
  try {
    return interpreter.Run(impl_->body, context);
  } catch (const jinja::LimitFault& fault) {
    Rethrow<ChatTemplateLimit>(interpreter.line(), fault.what());
  } catch (const jinja::Fault& fault) {
    Rethrow(interpreter.line(), fault.what());
  }
}

}  // namespace coppice
