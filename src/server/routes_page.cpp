// The web page's files, and the list of methods that the page shows.
#include <algorithm>

#include "policies/registry.h"
#include "server/server.h"
#include "server/web_files.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

constexpr std::string_view kFolder = "/web/";

// The browser loads and runs only the page's own files, sends nothing elsewhere, and lets no other page frame
// it.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

bool Server::IsPage(std::string_view path) { return path == "/" || path.starts_with(kFolder); }

void Server::Page(const HttpRequest& request, const ExchangePtr& exchange) {
  const std::string_view path = request.path;
  const std::string_view name = path == "/" ? "server/index.html" : path.substr(kFolder.size());
  const auto files = WebFiles();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& f) { return f.name == name; });
  if (file == files.end()) throw HttpError({404, "not_found_error", "the page has no such file"});
  metrics_.CountRequest(200);
  exchange->Reply({.status = 200,
                   .body = std::string(file->content),
                   .type = TypeOf(name),
                   // File names have no versions: the browser must not keep those of another version of the
                   // program.
                   .headers = {{"Cache-Control", "no-cache"},
                               {"Content-Security-Policy", kContentSecurityPolicy},
                               {"Referrer-Policy", "no-referrer"}}});
}

// What `coppice methods` prints.
void Server::ListMethods(const HttpRequest&, const ExchangePtr& exchange) {
  ordered_json methods = ordered_json::array();
  for (const MethodInfo& method : Methods()) {
    ordered_json keys = ordered_json::array();
    for (const MethodKey& key : method.keys) {
      keys.push_back({{"name", key.name},
                      {"default", key.fallback},
                      {"range", key.range},
                      {"meaning", key.meaning},
                      {"names_file", key.names_file}});
    }
    methods.push_back(
        {{"name", method.name}, {"summary", method.summary}, {"paper", method.paper}, {"keys", keys}});
  }
  Answer(exchange, {{"methods", methods}});
}

}  // namespace coppice
