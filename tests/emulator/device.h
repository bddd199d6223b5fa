// CUDA C on a CPU: the parts of the language and of NVIDIA's headers that generated kernels use, in plain C++.
//
// A thread of a block is a fiber. Fibers switch only where CUDA's threads wait for each other. Blocks run sequentially.
// Results are those of the kernel's arithmetic and addresses; speed, machine code and races between barriers are not
// emulated. Each lane holds whole fragments of tensor cores, and all lanes compute the same.
#pragma once
// The checked `longjmp` takes a jump to another stack for an error.
#undef _FORTIFY_SOURCE
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

struct Place {
  unsigned x, y, z;
};
static Place threadIdx, blockIdx;

namespace emulator {
enum State { RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK, ENDED };
struct Copy {
  void *to;
  const void *from;
  size_t bytes;
};
struct Fiber {
  ucontext_t start;
  // Where it continues; jumps make no system call, unlike `swapcontext`.
  jmp_buf position;
  bool has_started;
  State state;
  Place place;
  std::vector<char> stack;
  // Asynchronous copies by group; the last group is still open.
  std::vector<std::vector<Copy>> copies;
};
constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 256 << 10;
static std::vector<Fiber> fibers;
static unsigned current;
static jmp_buf scheduler;
static std::function<void()> kernel;
static union { char bytes[16]; } lanes[1024];

static void wait_as(State state) {
  fibers[current].state = state;
  if (!_setjmp(fibers[current].position)) _longjmp(scheduler, 1);
}
static void enter() {
  kernel();
  fibers[current].state = ENDED;
  _longjmp(scheduler, 1);
}
// Returns when the fiber waits or has ended.
__attribute__((noinline)) static void resume(Fiber &fiber) {
  if (_setjmp(scheduler)) return;
  if (fiber.has_started) _longjmp(fiber.position, 1);
  fiber.has_started = true;
  setcontext(&fiber.start);
}
// Resumes fibers whose partners have all arrived.
static bool release(unsigned first, unsigned last, State state) {
  bool waits = false;
  for (unsigned i = first; i < last; i++) {
    if (fibers[i].state == RUNS || (fibers[i].state != ENDED && fibers[i].state != state)) return false;
    waits |= fibers[i].state == state;
  }
  if (waits)
    for (unsigned i = first; i < last; i++)
      if (fibers[i].state == state) fibers[i].state = RUNS;
  return waits;
}
static void run_block(unsigned x, unsigned y) {
  unsigned count = x * y;
  if (fibers.size() < count) fibers.resize(count);
  for (unsigned i = 0; i < count; i++) {
    Fiber &fiber = fibers[i];
    if (fiber.stack.empty()) fiber.stack.resize(STACK_BYTES);
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.data();
    fiber.start.uc_stack.ss_size = fiber.stack.size();
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, enter, 0);
    fiber.has_started = false;
    fiber.place = {i % x, i / x, 0};
    fiber.state = RUNS;
    fiber.copies.assign(1, {});
  }
  for (;;) {
    bool ran = false;
    for (unsigned i = 0; i < count; i++) {
      if (fibers[i].state != RUNS) continue;
      ran = true;
      current = i;
      threadIdx = fibers[i].place;
      resume(fibers[i]);
    }
    for (unsigned i = 0; i < count; i += WARP)
      ran |= release(i, std::min(i + WARP, count), WAITS_FOR_WARP);
    ran |= release(0, count, WAITS_FOR_BLOCK);
    if (!ran) break;
  }
  for (unsigned i = 0; i < count; i++)
    if (fibers[i].state != ENDED) abort();  // Deadlock.
}
}  // namespace emulator

extern "C" void emulate(void *function, void **arguments, const unsigned *grid, const unsigned *block) {
  using Any = void (*)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
  // A function uses as many of these addresses as it has parameters.
  void *a[12] = {};
  for (int i = 0; i < 12 && arguments[i]; i++) a[i] = *(void **)arguments[i];
  emulator::kernel = [=] {
    ((Any)function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
  };
  for (unsigned x = 0; x < grid[0]; x++) {
    for (unsigned y = 0; y < grid[1]; y++) {
      blockIdx = {x, y, 0};
      emulator::run_block(block[0], block[1]);
    }
  }
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __align__(bytes) alignas(bytes)
#define __syncthreads() emulator::wait_as(emulator::WAITS_FOR_BLOCK)
#define __syncwarp(...) emulator::wait_as(emulator::WAITS_FOR_WARP)

// An asynchronous copy is executed as late as allowed: when its group is awaited.
inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes) {
  if ((uintptr_t)to % bytes || (uintptr_t)from % bytes || (bytes != 4 && bytes != 8 && bytes != 16)) abort();
  emulator::fibers[emulator::current].copies.back().push_back({to, from, bytes});
}
inline void __pipeline_commit() { emulator::fibers[emulator::current].copies.emplace_back(); }
inline void __pipeline_wait_prior(size_t left) {
  auto &copies = emulator::fibers[emulator::current].copies;
  for (; copies.size() > left + 1; copies.erase(copies.begin()))
    for (auto &copy : copies.front()) memcpy(copy.to, copy.from, copy.bytes);
}

alignas(1024) static unsigned char buf_dyn_shmem_ptr[256 << 10];

inline unsigned __activemask() { return ~0u; }
template <class T>
T from_lane(T value, unsigned lane) {
  unsigned self = threadIdx.y * 0 + emulator::current, first = self / emulator::WARP * emulator::WARP;
  memcpy(&emulator::lanes[self], &value, sizeof value);
  emulator::wait_as(emulator::WAITS_FOR_WARP);
  T other;
  memcpy(&other, &emulator::lanes[first + lane], sizeof other);
  emulator::wait_as(emulator::WAITS_FOR_WARP);
  return other;
}
template <class T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  int self = emulator::current % emulator::WARP;
  return from_lane(value, self / width * width + lane % width);
}
template <class T>
T __shfl_down_sync(unsigned, T value, int by, int width = 32) {
  int self = emulator::current % emulator::WARP, other = self + by;
  return from_lane(value, other / width == self / width ? other : self);
}

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
#define VECTOR(T, name)                                                  \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                     \
  struct name##3 { T x, y, z; };                                         \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; }; \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }             \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }     \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR(float, float)
VECTOR(double, double)
VECTOR(int, int)
VECTOR(unsigned, uint)
VECTOR(short, short)
VECTOR(ushort, ushort)
VECTOR(signed char, char)
VECTOR(uchar, uchar)
VECTOR(long long, longlong)

template <class A, class B>
auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
template <class A, class B>
auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
inline float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
#define CUDART_INF_F __int_as_float(0x7f800000)
inline double __longlong_as_double(long long i) { double d; memcpy(&d, &i, 8); return d; }
template <class T>
T __ldg(const T *place) { return *place; }

// Half precision.
typedef _Float16 half;
inline float __half2float(half h) { return h; }
inline half __float2half(float f) { return (half)f; }
inline half __float2half_rn(float f) { return (half)f; }
inline bool __hgt(half a, half b) { return a > b; }
inline bool __hlt(half a, half b) { return a < b; }
struct alignas(4) half2 { half x, y; };
inline half2 make_half2(half x, half y) { return {x, y}; }
#define HALF_FUNCTION(name, single) inline half name(half h) { return (half)single((float)h); }
HALF_FUNCTION(hexp, expf)
HALF_FUNCTION(hsqrt, sqrtf)
HALF_FUNCTION(hlog, logf)
HALF_FUNCTION(htanh, tanhf)

// The upper half of single precision.
struct nv_bfloat16 {
  ushort bits;
  nv_bfloat16() = default;
  nv_bfloat16(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    bits = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  }
  operator float() const { return __int_as_float(bits << 16); }
};
inline float __bfloat162float(nv_bfloat16 b) { return b; }
inline nv_bfloat16 __float2bfloat16(float f) { return nv_bfloat16(f); }
inline nv_bfloat16 __float2bfloat16_rn(float f) { return nv_bfloat16(f); }
inline bool __hgt(nv_bfloat16 a, nv_bfloat16 b) { return (float)a > (float)b; }
inline bool __hlt(nv_bfloat16 a, nv_bfloat16 b) { return (float)a < (float)b; }
inline nv_bfloat16 htanh(nv_bfloat16 b) { return nv_bfloat16(tanhf(b)); }

namespace nvcuda { namespace wmma {
struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major;
enum layout_t { mem_row_major, mem_col_major };
template <class Use, int m, int n, int k> struct Sides;
template <int m, int n, int k> struct Sides<matrix_a, m, n, k> { enum { rows = m, columns = k }; };
template <int m, int n, int k> struct Sides<matrix_b, m, n, k> { enum { rows = k, columns = n }; };
template <int m, int n, int k> struct Sides<accumulator, m, n, k> { enum { rows = m, columns = n }; };
namespace precision { struct tf32; }
template <class T> struct Stored { typedef T type; };
template <> struct Stored<precision::tf32> { typedef float type; };
template <class Use, int m, int n, int k, class T, class Layout = row_major> struct fragment {
  static constexpr int rows = Sides<Use, m, n, k>::rows, columns = Sides<Use, m, n, k>::columns;
  static constexpr int num_elements = rows * columns;
  union {
    typename Stored<T>::type at[rows][columns];
    typename Stored<T>::type x[num_elements];
  };
};
// Rounds to ten fraction bits; halves away from zero.
inline float __float_to_tf32(float f) {
  unsigned bits;
  memcpy(&bits, &f, 4);
  return __int_as_float((bits + 0x1000) & ~0x1fffu);
}
template <class F, class T> void fill_fragment(F &f, T value) {
  for (auto &row : f.at)
    for (auto &element : row) element = value;
}
template <class Use, int m, int n, int k, class T>
void load_matrix_sync(fragment<Use, m, n, k, T, row_major> &f, const typename Stored<T>::type *from, unsigned stride) {
  for (int r = 0; r < f.rows; r++)
    for (int c = 0; c < f.columns; c++) f.at[r][c] = from[r * stride + c];
}
template <class Use, int m, int n, int k, class T>
void load_matrix_sync(fragment<Use, m, n, k, T, col_major> &f, const typename Stored<T>::type *from, unsigned stride) {
  for (int r = 0; r < f.rows; r++)
    for (int c = 0; c < f.columns; c++) f.at[r][c] = from[c * stride + r];
}
template <int m, int n, int k, class T>
void store_matrix_sync(T *to, const fragment<accumulator, m, n, k, T> &f, unsigned stride, layout_t layout) {
  if (layout != mem_row_major) abort();
  for (int r = 0; r < m; r++)
    for (int c = 0; c < n; c++) to[r * stride + c] = f.at[r][c];
}
template <int m, int n, int k, class T, class S, class LA, class LB>
void mma_sync(fragment<accumulator, m, n, k, S> &d, const fragment<matrix_a, m, n, k, T, LA> &a,
              const fragment<matrix_b, m, n, k, T, LB> &b, const fragment<accumulator, m, n, k, S> &c) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      S sum = c.at[i][j];
      for (int l = 0; l < k; l++) sum += (S)a.at[i][l] * (S)b.at[l][j];
      d.at[i][j] = sum;
    }
}
}}  // namespace nvcuda::wmma
