/* An XLA FFI handler that does nothing but wait, busily, for the nanoseconds of its attribute "ns".

   Its result aliases its operand, so that it touches no data: any shape and type passes through unchanged, and calls
   chained by that operand run one after the other. It is declared without side effects: XLA may move, merge and delete
   it like any other operation, which is what a timer has to cope with. */

#include <stdint.h>
#include <time.h>

#include "xla/ffi/api/c_api.h"

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* XLA asks once, before the first call, which version of its interface we were compiled for. */
static int answers_metadata(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Extension_Base* extension = frame->extension_start;
  if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

XLA_FFI_Error* benchax_spin(XLA_FFI_CallFrame* frame) {
  if (answers_metadata(frame)) return 0;
  int64_t begun_ns = now_ns();
  int64_t ns = *(int64_t*)((XLA_FFI_Scalar*)frame->attrs.attrs[0])->value;
  while (now_ns() - begun_ns < ns) {
  }
  return 0;
}
