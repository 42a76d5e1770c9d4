#pragma once

namespace coppice {

// Loads libzmq, which brings eight more libraries with it, so that a process without KV events has none of
// them. Must be called before anything of zmq.hpp; throws FieldError if the library is not there.
void LoadZmq();

}  // namespace coppice
