#include "server/errors.h"

namespace coppice {

HttpError BadField(const std::string& field, const std::string& message) {
  return HttpError({400, "invalid_request_error", field + ": " + message, field});
}

HttpFault CancelledFault(bool server_stops) {
  if (server_stops) return {503, "unavailable_error", "the server is stopping"};
  return {499, "request_cancelled", "the client closed the connection"};
}

HttpFault NoRoomForReplies() {
  return {
      503, "unavailable_error",
      "this reply and those that others still read take too much memory: ask for less, or try again later"};
}

std::string ErrorBody(const HttpFault& fault) {
  nlohmann::ordered_json error = {{"message", fault.message}, {"type", fault.type}, {"param", nullptr}};
  if (!fault.param.empty()) error["param"] = fault.param;
  error["code"] = fault.status;
  error.update(fault.more);
  return DumpJson({{"error", error}});
}

HttpReply ErrorReply(const HttpFault& fault) {
  HttpReply reply{.status = fault.status, .body = ErrorBody(fault)};
  if (fault.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  const int64_t retry_after = fault.status == 503 ? 1 : fault.retry_after;
  if (!fault.allow.empty()) reply.headers.emplace_back("Allow", fault.allow);
  if (retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(retry_after));
  return reply;
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace coppice
