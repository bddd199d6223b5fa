/* Asks NVIDIA's own occupancy calculator: lines of seven numbers in, resident blocks out. */
#include <stddef.h>
#include <stdio.h>
#include "cuda_occupancy.h"
int main(void) {
  int number, sm_threads, sm_shared_kib, reserved, threads, registers, shared;
  while (scanf("%d %d %d %d %d %d %d", &number, &sm_threads, &sm_shared_kib, &reserved, &threads, &registers, &shared) == 7) {
    struct cudaOccDeviceProp device = {0};
    struct cudaOccFuncAttributes kernel = {0};
    struct cudaOccDeviceState state = {0};
    struct cudaOccResult result;
    device.computeMajor = number / 10;
    device.computeMinor = number % 10;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = sm_threads;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = sm_shared_kib * 1024;
    device.sharedMemPerBlockOptin = sm_shared_kib * 1024 - reserved;
    device.reservedSharedMemPerBlock = reserved;
    device.numSms = 1;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = shared;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_DEFAULT;
    kernel.maxDynamicSharedSizeBytes = 0;
    state.cacheConfig = CACHE_PREFER_SHARED;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, 0);
    printf("%d\n", error ? -error : result.activeBlocksPerMultiprocessor);
  }
  return 0;
}
