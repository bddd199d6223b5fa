// Asks NVIDIA's library of metrics, which needs neither a driver nor a device, which metrics each chip has. Arguments are
// the library and names of metrics; a line is a chip, and for each name 1 or 0.
//
// Its header comes with no wheel; the structures are those of NVIDIA's reference of the library. Each begins with its size
// and a null.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct initialize {
  size_t size;
  void *private;
};
struct chips {
  size_t size;
  void *private;
  const char *const *names;
  size_t count;
};
struct room {
  size_t size;
  void *private;
  const char *chip;
  const uint8_t *availability;
  size_t bytes;
};
struct make {
  size_t size;
  void *private;
  uint8_t *room;
  size_t bytes;
  const char *chip;
  const uint8_t *availability, *data;
  size_t data_bytes;
  void *evaluator;
};
struct request {
  size_t metric;
  uint8_t kind, rollup;
  uint16_t submetric;
};
struct convert {
  size_t size;
  void *private;
  void *evaluator;
  const char *name;
  struct request *request;
  size_t request_bytes;
};

static void *library;

static void call(const char *name, void *parameters) {
  int (*function)(void *) = (int (*)(void *))dlsym(library, name);
  int status = function ? function(parameters) : -1;
  if (status) {
    fprintf(stderr, "%s: %d\n", name, status);
    exit(1);
  }
}

static int has(void *evaluator, const char *name) {
  int (*convert)(void *) = (int (*)(void *))dlsym(library, "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest");
  struct request request;
  struct convert parameters = {sizeof parameters, 0, evaluator, name, &request, offsetof(struct request, submetric) + 2};
  return convert(&parameters) == 0;
}

int main(int count, char **names) {
  library = dlopen(names[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  struct initialize initialize = {sizeof initialize};
  call("NVPW_InitializeHost", &initialize);
  struct chips chips = {sizeof chips};
  call("NVPW_GetSupportedChipNames", &chips);
  for (size_t chip = 0; chip < chips.count; chip++) {
    struct room room = {sizeof room, 0, chips.names[chip]};
    call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", &room);
    struct make make = {sizeof make, 0, malloc(room.bytes), room.bytes, chips.names[chip]};
    call("NVPW_CUDA_MetricsEvaluator_Initialize", &make);
    printf("%s", chips.names[chip]);
    for (int place = 2; place < count; place++) printf(" %d", has(make.evaluator, names[place]));
    printf("\n");
  }
  return 0;
}
