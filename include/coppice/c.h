/* coppice from C, and from any language that can call C. The engine answers requests of `coppice serve` in
   this process, without a socket: the same routes and JSON (docs/server.md), so the same answers to the bit.

   Functions may be called from several threads at once, on one model too: the engine gives turns. A process
   that was forked from one with an open model gets errors from its functions, because threads do not survive
   a fork. */
#ifndef COPPICE_C_H
#define COPPICE_C_H

#include <stddef.h>

#include "coppice/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coppice_llm coppice_llm;

/* "0.1.0" */
COPPICE_API const char* coppice_version(void);

/* Loads a model. `options` are those of `coppice serve`, as its command line takes them: {"-m", "model.gguf",
   "--prune", "auto"}. Nothing listens until coppice_listen. Returns null, and in *error a text for
   coppice_free, if that fails. */
COPPICE_API coppice_llm* coppice_open(const char* const* options, size_t count, char** error);

/* Cancels what is being computed, waits until it has ended, and frees the model. No other call may use the
   model at that time or later. Null does nothing. */
COPPICE_API void coppice_close(coppice_llm* llm);

/* Gets bytes of a reply, or 0 bytes every 50 ms while there are none. To cancel the request, return anything
   but 0: it ends within a tile of the prefill or a token, and no more bytes come. It runs on the thread that
   called coppice_call. */
typedef int (*coppice_receive)(void* user, const char* bytes, size_t size);

/* Answers one request, and returns its HTTP status when the reply has ended: POST /v1/chat/completions with a
   body of `size` bytes, say. The bytes of a stream are server-sent events. Returns 499 for a request that
   `receive` cancelled. */
COPPICE_API int coppice_call(coppice_llm* llm, const char* method, const char* path, const char* body,
                             size_t size, coppice_receive receive, void* user);

/* Serves the model over HTTP as well, at the --host and with the --api-key of its options; port 0: any free
   one. Returns the port, or -1 and a text in *error. */
COPPICE_API int coppice_listen(coppice_llm* llm, int port, char** error);

/* The program `coppice`, with argv as its main function gets it. Returns its exit code. */
COPPICE_API int coppice_main(int argc, char** argv);

COPPICE_API void coppice_free(char* text);

#ifdef __cplusplus
}
#endif

#endif
