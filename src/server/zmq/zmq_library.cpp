// The functions of libzmq that zmq.hpp calls. The program does not link the library: each function is looked
// up in it at its first call.
#include "server/zmq/zmq_library.h"

#include <dlfcn.h>
#include <zmq.h>

#include "base/check.h"
#include "base/field_error.h"

namespace coppice {

namespace {

constexpr const char* kZmqName = "libzmq.so.5";  // its interface since 4.0

void* ZmqLibrary() {
  static void* const library = dlopen(kZmqName, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return library;
}

template <typename Function>
Function* Zmq(const char* name) {
  COPPICE_CHECK(ZmqLibrary() != nullptr);  // LoadZmq
  void* const found = dlsym(ZmqLibrary(), name);
  COPPICE_CHECK(found != nullptr);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

void LoadZmq() {
  if (ZmqLibrary() != nullptr) return;
  const char* why = dlerror();
  throw FieldError("kv_events", ": {}", why != nullptr ? why : kZmqName);
}

}  // namespace coppice

#define FORWARD(result, name, parameters, ...)                            \
  result name parameters {                                                \
    static auto* const function = coppice::Zmq<result parameters>(#name); \
    return function(__VA_ARGS__);                                         \
  }

extern "C" {

FORWARD(int, zmq_errno, (void))
FORWARD(const char*, zmq_strerror, (int number), number)
FORWARD(void*, zmq_ctx_new, (void))
FORWARD(int, zmq_ctx_term, (void* context), context)
FORWARD(int, zmq_ctx_set, (void* context, int option, int value), context, option, value)
FORWARD(void*, zmq_socket, (void* context, int type), context, type)
FORWARD(int, zmq_close, (void* socket), socket)
FORWARD(int, zmq_bind, (void* socket, const char* address), socket, address)
FORWARD(int, zmq_setsockopt, (void* socket, int option, const void* value, size_t size), socket, option,
        value, size)
FORWARD(int, zmq_getsockopt, (void* socket, int option, void* value, size_t* size), socket, option, value,
        size)
FORWARD(int, zmq_poll, (zmq_pollitem_t * items, int count, long timeout), items, count, timeout)
FORWARD(int, zmq_msg_init, (zmq_msg_t * message), message)
FORWARD(int, zmq_msg_init_size, (zmq_msg_t * message, size_t size), message, size)
FORWARD(int, zmq_msg_send, (zmq_msg_t * message, void* socket, int flags), message, socket, flags)
FORWARD(int, zmq_msg_recv, (zmq_msg_t * message, void* socket, int flags), message, socket, flags)
FORWARD(int, zmq_msg_close, (zmq_msg_t * message), message)
FORWARD(int, zmq_msg_copy, (zmq_msg_t * to, zmq_msg_t* from), to, from)
FORWARD(void*, zmq_msg_data, (zmq_msg_t * message), message)
FORWARD(size_t, zmq_msg_size, (const zmq_msg_t* message), message)

}  // extern "C"
