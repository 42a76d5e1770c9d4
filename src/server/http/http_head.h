// Converts a request's head from Beast's form to HttpRequest, and finds heads that no server should accept.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>

#include "server/errors.h"
#include "server/http/http.h"

namespace coppice {

HttpRequest HeadOf(const boost::beast::http::request_header<>& header);

// Why a head is refused for what it is, whatever it asks for; empty if it is sound. A proxy in front may read
// such a head in another way, and so take a part of one request for the next one (request smuggling), or see
// another Host: a header that must not repeat and does, Transfer-Encoding in HTTP/1.0, HTTP/1.1 without a
// Host, a Host that is not a name or address with an optional port.
std::optional<HttpFault> FaultOfHead(const boost::beast::http::request_header<>& header);

// Whether the connection can serve another request after this one was refused before its body was read. It
// cannot if the server may be wrong about where the body ends.
bool EndIsKnown(const boost::beast::http::request_header<>& header, bool body_is_read);

}  // namespace coppice
