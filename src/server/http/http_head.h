// Converts a request's head from Beast's form to HttpRequest, and finds heads that no server should accept.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string_view>

#include "server/errors.h"
#include "server/http/http.h"

namespace coppice {

HttpRequest HeadOf(const boost::beast::http::request_header<>& header);

// Whether a header in these bytes of a head goes on in the next line. HTTP/1.1 gave that up (RFC 9112, 5.2).
bool IsFolded(std::string_view head);

// Returns a fault if a proxy in front of the server could read this head in another way. The proxy could then
// take a part of one request for the next one (request smuggling), or see another Host. Faults are: a
// folded header, a repeated header that may occur once, Transfer-Encoding in HTTP/1.0, HTTP/1.1 without a
// Host, and a Host that is not a name or address with an optional port.
std::optional<HttpFault> FaultOfHead(const boost::beast::http::request_header<>& header, bool folded = false);

// Returns false if the server cannot know where the request's body ends. After a refused request with an
// unread body the connection must then be closed.
bool EndIsKnown(const boost::beast::http::request_header<>& header, bool body_is_read);

}  // namespace coppice
