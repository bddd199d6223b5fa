// Calls a compiled function of as many floats as one call has with what comes in, and writes what it gives. Stands in the
// place of TVM's runtime on a processor that an emulator has: the code is called as TVM calls it, on one thread.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = (1 << 20) + 5, POINTER_TO_TENSOR = 7 };

struct device {
  int32_t kind, number;
};
struct type {
  uint8_t code, bits;
  uint16_t lanes;
};
struct tensor {
  void *data;
  struct device device;
  int32_t rank;
  struct type type;
  int64_t *shape, *strides;
  uint64_t offset;
};
struct argument {
  int32_t kind, length;
  union {
    void *pointer;
    int64_t number;
  };
};

extern int32_t __tvm_ffi_main(void *handle, struct argument *arguments, int32_t count, struct argument *result);

static void raise_error(const char *kind, const char *message) { fprintf(stderr, "%s: %s\n", kind, message); }

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  for (int32_t part = 0; part < count; part++) fprintf(stderr, "%s ", parts[part]);
}

static void *take(int kind, int number, uint64_t bytes, int type, int bits) {
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static int give(int kind, int number, void *place) {
  free(place);
  return 0;
}

struct parallel {
  void *barrier;
  int32_t tasks;
};

static int launch(int (*task)(int, struct parallel *, void *), void *data, int tasks) {
  struct parallel alone = {0, 1};
  return task(0, &alone, data);
}

// Code calls TVM's runtime through these.
void *__TVMFFIErrorSetRaisedFromCStr = raise_error;
void *__TVMBackendAllocWorkspace = take;
void *__TVMBackendFreeWorkspace = give;
void *__TVMBackendParallelLaunch = launch;

int main(void) {
  static int64_t shape[] = {LENGTH};
  static int64_t strides[] = {1};
  struct tensor tensors[2];
  struct argument arguments[2], result = {0};
  for (int place = 0; place < 2; place++) {
    void *data = aligned_alloc(64, (4 * (size_t)LENGTH + 63) / 64 * 64);
    if (!data) return 2;
    tensors[place] = (struct tensor){data, {1, 0}, 1, {2, 32, 1}, shape, strides, 0};
    arguments[place] = (struct argument){POINTER_TO_TENSOR, 0, {&tensors[place]}};
  }
  if (fread(tensors[0].data, 4, LENGTH, stdin) != LENGTH) return 3;
  if (__tvm_ffi_main(0, arguments, 2, &result)) return 4;
  return fwrite(tensors[1].data, 4, LENGTH, stdout) == LENGTH ? 0 : 5;
}
