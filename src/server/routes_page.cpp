// The web page's files, the list of methods that the page shows, and what the program says of itself.
#include <algorithm>

#include "base/cpu_info.h"
#include "policies/registry.h"
#include "server/openapi.h"
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

HttpHeaders PageHeaders() {
  // File names have no versions: the browser must not keep those of another version of the program.
  return {{"Cache-Control", "no-cache"},
          {"Content-Security-Policy", kContentSecurityPolicy},
          {"Referrer-Policy", "no-referrer"}};
}

ordered_json VersionJson(const BuildFacts& facts) {
  ordered_json version = {{"version", facts.version},
                          {"commit", facts.commit},
                          {"build", facts.type},
                          {"compiler", facts.compiler},
                          {"isa", IsaName(ChooseIsa())}};
  if (facts.commit.empty()) version["commit"] = nullptr;
  return version;
}

}  // namespace

bool Server::IsPage(std::string_view path) {
  return path == "/" || path == "/docs" || path.starts_with(kFolder);
}

void Server::Page(const HttpRequest& request, const ExchangePtr& exchange) {
  const std::string_view path = request.path;
  const std::string_view name = path == "/" ? "server/index.html" : path.substr(kFolder.size());
  const auto files = WebFiles();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& f) { return f.name == name; });
  if (file == files.end()) throw HttpError({404, "not_found_error", "the page has no such file"});
  metrics_.CountRequest(200);
  exchange->Reply(
      {.status = 200, .body = std::string(file->content), .type = TypeOf(name), .headers = PageHeaders()});
}

// What the program is and what it answers. The page says nothing of this server, so it needs no key.
void Server::Documents(const HttpRequest& request, const ExchangePtr& exchange) {
  if (request.path == "/version") return Answer(exchange, VersionJson(options_.facts));
  if (request.path == "/openapi.json")
    return Answer(exchange, OpenApiDocument(options_.facts.version, options_.defaults));
  static const std::string page = DocsPage(OpenApiDocument("", {}));
  metrics_.CountRequest(200);
  exchange->Reply(
      {.status = 200, .body = page, .type = "text/html; charset=utf-8", .headers = PageHeaders()});
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
