/* Kernels as TVM's code generator makes them, as far as a session can tell: one that works, and three that do not. */
#include <stdint.h>
typedef struct { void *data; int32_t device[2]; int32_t rank; uint8_t code, bits; uint16_t lanes; int64_t *shape, *strides; uint64_t byte_offset; } Tensor;
typedef struct { int32_t kind; uint32_t zero; union { int64_t integer; Tensor *tensor; } value; } Cell;

extern void TVMFFIErrorSetRaisedFromCStrParts(const char *, const char **, int32_t);
int (*__TVMBackendParallelLaunch)(int (*)(int, void *, void *), void *, int);
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
int (*__TVMBackendFreeWorkspace)(int, int, void *);

static int share(int task, void *environment, void *data) {
    Cell *arguments = data;
    int threads = ((int32_t *)((char *)environment + sizeof(void *)))[0];
    float *from = arguments[0].value.tensor->data, *to = arguments[1].value.tensor->data;
    for (int64_t place = task; place < arguments[0].value.tensor->shape[0]; place += threads) to[place] = from[place] + 1;
    return 0;
}
int __tvm_ffi_main(void *self, Cell *arguments, int count, Cell *result) {
    if (count != 2) {
        const char *parts[] = {"two tensors", " are wanted"};
        TVMFFIErrorSetRaisedFromCStrParts("TypeError", parts, 2);
        return -1;
    }
    void *scratch = __TVMBackendAllocWorkspace(1, 0, 1 << 20, 0, 8);
    if (!scratch) return -1;
    int code = __TVMBackendParallelLaunch(share, arguments, 0);
    return __TVMBackendFreeWorkspace(1, 0, scratch) | code;
}
int __tvm_ffi_crash(void *self, Cell *arguments, int count, Cell *result) { *(volatile int *)8 = 1; return 0; }
int __tvm_ffi_overrun(void *self, Cell *arguments, int count, Cell *result) {
    for (int place = 0; place < 4096; place++) ((volatile char *)arguments[1].value.tensor->data)[place] = 1;
    return 0;
}
int __tvm_ffi_endless(void *self, Cell *arguments, int count, Cell *result) { for (;;) __asm__ volatile(""); }
