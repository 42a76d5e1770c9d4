// POST /v1/documents/text: the text of a PDF or DOCX file, which is the request's body.
#include <exception>
#include <utility>

#include "base/error.h"
#include "server/server.h"

namespace coppice {

using nlohmann::ordered_json;

void Server::ReadFile(const HttpRequest& request, const ExchangePtr& exchange) {
  if (!files_) {
    throw HttpError({501, "not_supported_error",
                     "reading PDF and DOCX files is switched off on this server: paste the text instead"});
  }
  if (request.body.empty()) throw HttpError({.message = "the body is empty: send the file as the body"});
  // The request counts until it is answered. Released before the client sees the end and sends its next one.
  const auto admission = std::make_shared<std::shared_ptr<void>>(request.admission);
  const auto fail = [this, exchange, form = ErrorFormFor(request)](const HttpFault& fault) {
    Fail(exchange, fault, form);
  };
  files_->Submit({.bytes = request.body,
                  .cancelled = request.cancelled,
                  .done =
                      [=, this](FileText file) {
                        admission->reset();
                        try {
                          ordered_json reply = {{"object", "document.text"}, {"kind", file.kind}};
                          if (file.pages) reply["pages"] = *file.pages;
                          reply["warnings"] = file.warnings;
                          reply["text"] = std::move(file.text);
                          Answer(exchange, reply);
                        } catch (const std::exception&) {
                          fail({503, "unavailable_error", "out of memory"});
                        }
                      },
                  .failed =
                      [=, this](const std::exception_ptr& error) {
                        admission->reset();
                        try {
                          std::rethrow_exception(error);
                        } catch (const HttpError& refusal) {
                          fail(refusal.fault());
                        } catch (const Cancelled&) {
                          fail(CancelledFault(!ready_));
                        } catch (const std::bad_alloc&) {
                          fail({503, "unavailable_error", "out of memory"});
                        } catch (const std::exception& other) {
                          fail({500, "server_error", other.what()});
                        }
                      }});
}

}  // namespace coppice
