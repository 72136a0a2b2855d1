/* The clock that compiled programs read: four XLA FFI handlers in plain C.

     benchax_stamp   (leaves...)              -> (leaves..., u32[2])   the time; the leaves pass through, aliased
     benchax_arm     (f32[], u32[2], tie)     -> u32[2]                the earlier of now + seconds and a given time
     benchax_tick    (u32[2], u32[3], tie)    -> (u32[3], pred[])      is it past that time? and how long to go unasked
     benchax_spin    (x), attribute ns        -> x                     waits, busily: a function of known duration

   Times are nanoseconds of the system's monotonic clock as two u32, low word first, because JAX narrows 64-bit integers
   unless told otherwise. Results that alias an operand are not touched: XLA has put the operand there.

   Only the C structs below are needed of XLA: no C++, no Python, so one library serves every Python and every JAX. They
   lay out the call frame of XLA's FFI, which versions 0.1 (jax 0.6) to 0.5 (jax 0.12) have in common. XLA asks for the
   version before the first call and refuses a handler that names one above its own, or one too old. */

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define DEADLINE_EXCEEDED 4
#define METADATA 1

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef struct Extension {
  size_t struct_size;
  int type;
  struct Extension* next;
} Extension;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
} ApiVersion;

typedef struct {
  size_t struct_size;
  ApiVersion api_version;
} Metadata; /* its later fields are not used */

typedef struct {
  Extension base;
  Metadata* metadata;
} MetadataExtension;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  int code;
} ErrorArguments;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  ApiVersion api_version;
  const void* internal_api;
  void* (*error_create)(ErrorArguments*);
} Api; /* its later fields are not used */

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
} Buffer;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  void* types;
  Buffer** buffers;
} Buffers;

typedef struct {
  int dtype;
  void* value;
} Scalar;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  void* types;
  void* names;
  Scalar** values;
} Attributes;

typedef struct {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  int stage;
  Buffers operands;
  Buffers results;
  Attributes attributes;
} CallFrame;

/* Which source this library was made of; whoever loads it compares. */
EXPORT const int benchax_handlers_version = 1;

/* The minor version of XLA's FFI to name, set by whoever loads this library (handlers.py reads it from XLA's header). */
EXPORT int benchax_api_minor = 1;

static uint64_t now_ns(void) {
#if defined(__APPLE__)
  return clock_gettime_nsec_np(CLOCK_UPTIME_RAW); /* CLOCK_MONOTONIC steps by microseconds there */
#else
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static uint64_t joined(const uint32_t* words) { return words[0] | (uint64_t)words[1] << 32; }

static void split(uint64_t ns, uint32_t* words) {
  words[0] = (uint32_t)ns;
  words[1] = (uint32_t)(ns >> 32);
}

static uint32_t* operand(CallFrame* frame, int i) { return (uint32_t*)frame->operands.buffers[i]->data; }
static uint32_t* result(CallFrame* frame, int64_t i) { return (uint32_t*)frame->results.buffers[i]->data; }
static int64_t attribute(CallFrame* frame) { return *(int64_t*)frame->attributes.values[0]->value; }

static int answers_metadata(CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != METADATA) return 0;
  ApiVersion* version = &((MetadataExtension*)frame->extension_start)->metadata->api_version;
  version->major_version = 0;
  version->minor_version = benchax_api_minor;
  return 1;
}

EXPORT void* benchax_stamp(CallFrame* frame) {
  if (answers_metadata(frame)) return 0;
  split(now_ns(), result(frame, frame->results.size - 1));
  return 0;
}

EXPORT void* benchax_arm(CallFrame* frame) {
  if (answers_metadata(frame)) return 0;
  double seconds = *(float*)operand(frame, 0);
  uint64_t now = now_ns(), latest = joined(operand(frame, 1));
  /* The comparison is false for NaN as well: no limit of its own. */
  uint64_t left = latest > now ? latest - now : 0;
  int is_earlier = seconds < left * 1e-9;
  split(!is_earlier ? latest : seconds > 0 ? now + (uint64_t)(seconds * 1e9) : now, result(frame, 0));
  return 0;
}

/* A strip is a number of iterations between two looks at the clock. Looks cost 0.2 to 0.4 us, so a strip is lengthened
   until it takes 0.2 ms, and shortened when it takes more than 1 ms, which is how late a stop may come. */
static uint32_t next_strip(uint32_t strip, uint64_t elapsed_ns) {
  uint64_t next = strip;
  if (elapsed_ns < 25000) next *= 8;
  else if (elapsed_ns < 200000) next *= 2;
  else if (elapsed_ns > 1000000) next = (uint64_t)(next * (500000.0 / (double)elapsed_ns));
  if (next > 1u << 28) next = 1u << 28;
  return next < 1 ? 1 : (uint32_t)next;
}

EXPORT void* benchax_tick(CallFrame* frame) {
  if (answers_metadata(frame)) return 0;
  uint64_t now = now_ns(), last = joined(operand(frame, 1));
  int is_expired = now >= joined(operand(frame, 0));
  uint32_t strip = operand(frame, 1)[2];
  if (is_expired && attribute(frame)) {
    ErrorArguments why = {sizeof why, 0, "benchax: the time limit was reached", DEADLINE_EXCEEDED};
    return frame->api->error_create(&why);
  }
  split(now, result(frame, 0));
  result(frame, 0)[2] = last ? next_strip(strip, now - last) : strip; /* 0: the first look of a loop */
  *(uint8_t*)result(frame, 1) = (uint8_t)is_expired;
  return 0;
}

EXPORT void* benchax_spin(CallFrame* frame) {
  if (answers_metadata(frame)) return 0;
  uint64_t until = now_ns() + (uint64_t)attribute(frame);
  while (now_ns() < until) {
  }
  return 0;
}
