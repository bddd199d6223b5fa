// A CUDA driver whose device is this CPU: the subset that the runner uses, checked against NVIDIA's own declarations.
//
// Machine code is an ELF file whose first section is the path of a library compiled from `device.h` and a kernel. Like a
// real driver, this one does not know its length and reads as far as the headers say. Kernels run when the host waits for
// them, in the worst order that streams, events and graphs allow (`streams.h`); times are those of the host. The device has
// little memory. A kernel whose name starts with `fault` fails, and, as on a real device, so does everything after it.
// Files in the test's folder change the behaviour: `old-driver` emulates a driver for CUDA 12, which rejects the code;
// `fixed-clock` makes 50 us pass between any two events; `slow-launches` and `slow-graphs` add 1 ms to each kernel outside
// and inside of a graph; `drawn-order` and `ahead-order` select another order.
#include <cuda.h>
// Drivers have both versions of a function; the newer ones differ only in their errors.
#undef cuEventElapsedTime

#include "streams.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <string>
#include <unistd.h>
#include <vector>

// For the emulated profiler: number of kernels that ran, and whether the next one fails.
extern "C" {
unsigned long long emulated_launches;
bool emulated_fault;
}

namespace {
using streams::is_set;
struct Launch {
  CUfunction function;
  std::vector<std::vector<char>> values;
  unsigned grid[3], block[3];
};
struct Kernel {
  void *function;
  void (*emulate)(void *, void **, const unsigned *, const unsigned *);
  const int *arguments;
  bool is_faulty;
};
bool is_broken;

constexpr size_t MOST_BYTES = 64 << 20;

CUresult status() { return is_broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS; }
// Rejects calls that are not allowed while a stream is captured.
CUresult refuse() { return streams::captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS; }
// Work that the host waits for follows all work of the null stream.
CUresult copy(void *to, const void *from, size_t bytes) {
  if (refuse()) return refuse();
  streams::wait_for({streams::ask(&streams::null_stream, [=] { memcpy(to, from, bytes); })});
  return status();
}
void run(const Launch &launch, bool is_in_graph) {
  if (is_set(is_in_graph ? "slow-graphs" : "slow-launches")) usleep(1000);
  const Kernel *kernel = (const Kernel *)launch.function;
  std::vector<void *> arguments;
  for (auto &value : launch.values) arguments.push_back((void *)value.data());
  arguments.resize(13);
  kernel->emulate(kernel->function, arguments.data(), launch.grid, launch.block);
  emulated_launches++;
}
}  // namespace

extern "C" {
void nothing() {}
extern const int nothing_arguments = 0;
void emulate(void *, void **, const unsigned *, const unsigned *) {}

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = is_set("old-driver") ? 12040 : 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int room, CUdevice) { strncpy(name, "emulated GPU", room); return CUDA_SUCCESS; }
CUresult cuDeviceGetPCIBusId(char *name, int room, CUdevice) { strncpy(name, "0000:00:00.0", room); return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 64 << 10; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) { *bytes = size_t(1) << 30; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) { *context = (CUcontext)&is_broken; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() {
  if (refuse()) return refuse();
  streams::wait_for_all();
  return status();
}
CUresult cuMemGetInfo(size_t *free, size_t *total) { *free = size_t(1) << 29; *total = size_t(1) << 30; return CUDA_SUCCESS; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  const char *path = (const char *)image;
  Dl_info here;
  // The only PTX code is an empty kernel.
  if (!strncmp(path, ".version", 8)) dladdr((void *)&cuInit, &here), path = here.dli_fname;
  else if (is_set("old-driver") || memcmp(path, ELFMAG, SELFMAG)) return CUDA_ERROR_INVALID_IMAGE;
  else path += ((const Elf64_Shdr *)(path + ((const Elf64_Ehdr *)path)->e_shoff))[1].sh_offset;
  *module = (CUmodule)dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return *module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  Kernel *kernel = new Kernel{dlsym(module, name)};
  kernel->emulate = (decltype(kernel->emulate))dlsym(module, "emulate");
  kernel->arguments = (const int *)dlsym(module, (std::string(name) + "_arguments").c_str());
  kernel->is_faulty = !strncmp(name, "fault", 5);
  *function = (CUfunction)kernel;
  return kernel->function && kernel->emulate && kernel->arguments ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t place, size_t *offset, size_t *bytes) {
  if (place >= (size_t) * ((Kernel *)function)->arguments) return CUDA_ERROR_INVALID_VALUE;
  *offset = place * sizeof(void *), *bytes = sizeof(void *);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int) {
  return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  if (refuse()) return refuse();
  if (bytes > MOST_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = (CUdeviceptr)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return status();
}
CUresult cuMemFree(CUdeviceptr address) {
  if (refuse()) return refuse();
  streams::wait_for_all();
  free((void *)address);
  return status();
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) { return copy((void *)to, from, bytes); }
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) { return copy(to, (void *)from, bytes); }
CUresult cuMemsetD8(CUdeviceptr to, unsigned char byte, size_t bytes) {
  if (refuse()) return refuse();
  streams::ask(&streams::null_stream, [=] { memset((void *)to, byte, bytes); });
  return status();
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned, CUstream on, void **values, void **) {
  is_broken |= emulated_fault || ((Kernel *)function)->is_faulty;
  if (is_broken) return status();
  if (gz != 1 || bz != 1) return CUDA_ERROR_NOT_SUPPORTED;
  Launch launch{function, {}, {gx, gy, gz}, {bx, by, bz}};
  for (int i = 0; i < *((Kernel *)function)->arguments; i++) launch.values.emplace_back((char *)values[i], (char *)values[i] + sizeof(void *));
  streams::Stream *stream = streams::of(on);
  if (stream == &streams::null_stream && streams::captured) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  bool is_in_graph = stream->captured;
  streams::ask(stream, [=] { run(launch, is_in_graph); });
  streams::wait_for_no_more_than_fit();
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  streams::Stream *made = new streams::Stream{!(flags & CU_STREAM_NON_BLOCKING)};
  streams::others.insert(made);
  *stream = (CUstream)made;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  streams::others.erase(streams::of(stream));
  delete streams::of(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  if (!stream || streams::captured) return CUDA_ERROR_INVALID_VALUE;
  streams::of(stream)->outside.swap(streams::of(stream)->last);
  streams::of(stream)->captured = streams::captured = new streams::Graph{{}, ++streams::graphs};
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  streams::Graph *ended;
  CUresult result = streams::end_capture(streams::of(stream), ended);
  *graph = (CUgraph)ended;
  return result;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return streams::wait_event(streams::of(stream), *(streams::Event *)event);
}
CUresult cuGraphInstantiate(CUgraphExec *ready, CUgraph graph, unsigned long long) {
  *ready = (CUgraphExec) new streams::Graph(*(streams::Graph *)graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec ready, CUstream stream) {
  if (refuse()) return refuse();
  streams::ask_for_graph(streams::of(stream), *(streams::Graph *)ready);
  streams::wait_for_no_more_than_fit();
  return status();
}
CUresult cuGraphExecDestroy(CUgraphExec ready) { delete (streams::Graph *)ready; return CUDA_SUCCESS; }
CUresult cuGraphDestroy(CUgraph graph) { delete (streams::Graph *)graph; return CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent *event, unsigned) { *event = (CUevent) new streams::Event{}; return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent event, CUstream on) {
  streams::Stream *stream = streams::of(on);
  if (stream == &streams::null_stream && streams::captured) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *(streams::Event *)event = {streams::ask(stream, nullptr), stream->captured ? stream->captured->number : 0};
  return status();
}
CUresult cuEventSynchronize(CUevent event) {
  if (refuse()) return refuse();
  const streams::Event &mark = *(streams::Event *)event;
  if (mark.of) return CUDA_ERROR_CAPTURED_EVENT;
  if (mark.work) streams::wait_for({mark.work});
  return status();
}
CUresult cuEventElapsedTime(float *elapsed_ms, CUevent start, CUevent end) {
  streams::Shared from = ((streams::Event *)start)->work, to = ((streams::Event *)end)->work;
  if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->is_done || !to->is_done) return CUDA_ERROR_NOT_READY;
  *elapsed_ms = is_set("fixed-clock") ? 0.05f : std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) { delete (streams::Event *)event; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char **name) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; break;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; break;
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED: *name = "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"; break;
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION: *name = "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"; break;
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: *name = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"; break;
    case CUDA_ERROR_CAPTURED_EVENT: *name = "CUDA_ERROR_CAPTURED_EVENT"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) { *text = "as the emulated device says"; return CUDA_SUCCESS; }
}
