// The subset of CUPTI that the runner uses, for the emulated driver: a profiler of kernels that run on this CPU, with
// NVIDIA's own declarations of every structure.
//
// It counts the driver's kernels. Files in the test's folder change its behaviour: `no-permission` rejects counters,
// `fault-in-range` makes the first kernel of a range fail, `cupti-13.0` rejects fields of later releases, and
// `passes-disagree` returns a share above 100 %.
#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {
const char *chip = "GH100";
const uint64_t availability_mark = 0x61766169, config_mark = 0x636f6e66, data_mark = 0x64617461;
const size_t passes = 3;
// Large enough that freed memory is unmapped: access to a freed image crashes.
const size_t image_bytes = 40 << 20;
const uint64_t kernel_ns = 1000;

// Metrics of the chip: another name for reads, and no memory throughput.
const char *counters[] = {"dram__bytes_op_read", "dram__bytes_write", "sm__inst_executed", "sm__warps_active"};
const char *ratios[] = {"lts__t_sector_hit_rate"};
const char *throughputs[] = {"sm__throughput"};

struct Config {
  uint64_t mark, metrics;
};
struct Data {
  uint64_t mark, launches;
  bool is_whole;
};
struct Host {
  const uint64_t *availability;
  std::vector<std::string> metrics;
};
struct Profiler {
  Data *data;
  size_t pass;
  bool is_started, is_open;
  uint64_t before;
  std::vector<uint64_t> launches;
};

CUpti_BuffersCallbackRequestFunc requested;
CUpti_BuffersCallbackCompleteFunc completed;
uint64_t recorded_from;

bool is_set(const char *word) {
  const char *folder = getenv("OPCOLLECT_TEST_EMULATOR");
  return folder && !access((std::string(folder) + "/" + word).c_str(), F_OK);
}
template <class T>
T *of_driver(const char *name) {
  return (T *)dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
}
// Number of kernels that ran, after all queued work is done.
uint64_t launches() {
  of_driver<int()>("cuCtxSynchronize")();
  return *of_driver<uint64_t>("emulated_launches");
}

// Whether a structure ends after this field.
#define ENDS(parameters, field) \
  ((parameters)->structSize == offsetof(std::remove_reference_t<decltype(*(parameters))>, field) + sizeof((parameters)->field))
#define EXPECT(what) \
  if (!(what)) return CUPTI_ERROR_INVALID_PARAMETER
}  // namespace

extern "C" {
CUptiResult cuptiGetVersion(uint32_t *version) { *version = CUPTI_API_VERSION; return CUPTI_SUCCESS; }
CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"; break;
    case CUPTI_ERROR_INVALID_METRIC_NAME: *text = "CUPTI_ERROR_INVALID_METRIC_NAME"; break;
    case CUPTI_ERROR_INVALID_PARAMETER: *text = "CUPTI_ERROR_INVALID_PARAMETER"; break;
    default: return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
  requested = request, completed = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  EXPECT(kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && requested);
  recorded_from = launches();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityFlushAll(uint32_t) {
  uint8_t *buffer;
  size_t bytes, most, used = 0;
  requested(&buffer, &bytes, &most);
  for (uint64_t kernel = recorded_from; kernel < launches(); kernel++, used += sizeof(CUpti_ActivityKernel9)) {
    if (used + sizeof(CUpti_ActivityKernel9) > bytes) return CUPTI_ERROR_OUT_OF_MEMORY;
    CUpti_ActivityKernel9 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.start = 5 * kernel_ns * kernel;
    record.end = record.start + kernel_ns;
    memcpy(buffer + used, &record, sizeof record);
  }
  completed(nullptr, 0, buffer, bytes, used);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, CUpti_Activity **record) {
  uint8_t *next = *record ? (uint8_t *)*record + sizeof(CUpti_ActivityKernel9) : buffer;
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)next;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params *p) { EXPECT(ENDS(p, pPriv)); return CUPTI_SUCCESS; }
CUptiResult cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params *p) {
  EXPECT(ENDS(p, wsl) && p->cuDevice == 0);
  p->isSupported = p->architecture = p->sli = p->vGpu = p->confidentialCompute = p->cmp = p->wsl = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params *p) {
  EXPECT(ENDS(p, pChipName) && p->deviceIndex == 0);
  p->pChipName = chip;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params *p) {
  EXPECT(p->ctx);
  EXPECT(is_set("cupti-13.0") ? ENDS(p, pCounterAvailabilityImage) : ENDS(p, bAllowDeviceLevelCounters) && p->bAllowDeviceLevelCounters == 1);
  EXPECT(!p->pCounterAvailabilityImage || p->counterAvailabilityImageSize == image_bytes);
  p->counterAvailabilityImageSize = image_bytes;
  if (p->pCounterAvailabilityImage) memcpy(p->pCounterAvailabilityImage, &availability_mark, sizeof availability_mark);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params *p) {
  EXPECT(ENDS(p, pHostObject) && p->profilerType == CUPTI_PROFILER_TYPE_RANGE_PROFILER && !strcmp(p->pChipName, chip));
  EXPECT(!memcmp(p->pCounterAvailabilityImage, &availability_mark, sizeof availability_mark));
  p->pHostObject = (CUpti_Profiler_Host_Object *)new Host{(const uint64_t *)p->pCounterAvailabilityImage};
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params *p) {
  EXPECT(ENDS(p, pHostObject) && p->pHostObject);
  EXPECT(*((Host *)p->pHostObject)->availability == availability_mark);
  delete (Host *)p->pHostObject;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetBaseMetrics(CUpti_Profiler_Host_GetBaseMetrics_Params *p) {
  EXPECT(ENDS(p, numMetrics) && p->pHostObject);
  switch (p->metricType) {
    case CUPTI_METRIC_TYPE_COUNTER: p->ppMetricNames = counters, p->numMetrics = std::size(counters); break;
    case CUPTI_METRIC_TYPE_RATIO: p->ppMetricNames = ratios, p->numMetrics = std::size(ratios); break;
    case CUPTI_METRIC_TYPE_THROUGHPUT: p->ppMetricNames = throughputs, p->numMetrics = std::size(throughputs); break;
    default: return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params *p) {
  EXPECT(ENDS(p, numMetrics) && p->pHostObject && p->numMetrics > 0);
  for (size_t i = 0; i < p->numMetrics; i++) {
    // Listed, but not available.
    if (!strncmp(p->ppMetricNames[i], "sm__warps_active.", 17)) return CUPTI_ERROR_INVALID_METRIC_NAME;
    ((Host *)p->pHostObject)->metrics.push_back(p->ppMetricNames[i]);
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params *p) {
  EXPECT(ENDS(p, configImageSize) && p->pHostObject);
  p->configImageSize = sizeof(Config);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params *p) {
  EXPECT(ENDS(p, pConfigImage) && p->pHostObject && p->configImageSize == sizeof(Config));
  *(Config *)p->pConfigImage = {config_mark, ((Host *)p->pHostObject)->metrics.size()};
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params *p) {
  EXPECT(ENDS(p, numOfPasses) && p->configImageSize == sizeof(Config) && ((Config *)p->pConfigImage)->mark == config_mark);
  p->numOfPasses = passes;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params *p) {
  EXPECT(ENDS(p, pMetricValues) && p->pHostObject && p->counterDataImageSize == image_bytes && p->rangeIndex == 0);
  const Data *data = (const Data *)p->pCounterDataImage;
  EXPECT(data->mark == data_mark && data->is_whole);
  for (size_t i = 0; i < p->numMetrics; i++) {
    std::string name = p->ppMetricNames[i];
    EXPECT(i < ((Host *)p->pHostObject)->metrics.size() && ((Host *)p->pHostObject)->metrics[i] == name);
    double value = 0;
    if (name == "dram__bytes_op_read.sum") value = 4096.0 * data->launches;
    if (name == "dram__bytes_write.sum") value = 1024.0 * data->launches;
    if (name == "sm__inst_executed.sum") value = 100.0 * data->launches;
    if (name == "sm__throughput.avg.pct_of_peak_sustained_elapsed") value = is_set("passes-disagree") ? 198.4 : 62.5;
    // No metric was looked up.
    if (name == "lts__t_sector_hit_rate.pct") value = NAN;
    p->pMetricValues[i] = value;
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params *p) {
  EXPECT(ENDS(p, pRangeProfilerObject) && p->ctx);
  if (is_set("no-permission")) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  p->pRangeProfilerObject = (CUpti_RangeProfiler_Object *)new Profiler{};
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params *p) {
  EXPECT(ENDS(p, pRangeProfilerObject) && p->pRangeProfilerObject);
  const Data *data = ((Profiler *)p->pRangeProfilerObject)->data;
  EXPECT(!data || data->mark == data_mark);
  delete (Profiler *)p->pRangeProfilerObject;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params *p) {
  EXPECT(ENDS(p, counterDataSize) && p->pRangeProfilerObject && p->pMetricNames && p->numMetrics > 0);
  EXPECT(p->maxNumOfRanges == 1 && p->maxNumRangeTreeNodes >= p->maxNumOfRanges);
  p->counterDataSize = image_bytes;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerCounterDataImageInitialize(CUpti_RangeProfiler_CounterDataImage_Initialize_Params *p) {
  EXPECT(ENDS(p, pCounterData) && p->pRangeProfilerObject && p->counterDataSize == image_bytes);
  *(Data *)p->pCounterData = {data_mark, 0, false};
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params *p) {
  EXPECT(ENDS(p, targetNestingLevel) && p->pRangeProfilerObject);
  EXPECT(p->configSize == sizeof(Config) && ((const Config *)p->pConfig)->mark == config_mark);
  EXPECT(p->counterDataImageSize == image_bytes && ((Data *)p->pCounterDataImage)->mark == data_mark);
  EXPECT(p->range == CUPTI_UserRange && p->replayMode == CUPTI_UserReplay && p->maxRangesPerPass == 1);
  EXPECT(p->numNestingLevels == 1 && p->minNestingLevel == 1 && p->targetNestingLevel == 1 && p->passIndex == 0);
  ((Profiler *)p->pRangeProfilerObject)->data = (Data *)p->pCounterDataImage;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params *p) {
  Profiler *profiler = (Profiler *)p->pRangeProfilerObject;
  EXPECT(ENDS(p, pRangeProfilerObject) && profiler->data && !profiler->is_started && profiler->pass < passes);
  profiler->is_started = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params *p) {
  Profiler *profiler = (Profiler *)p->pRangeProfilerObject;
  EXPECT(ENDS(p, pRangeName) && profiler->is_started && !profiler->is_open && *p->pRangeName);
  profiler->is_open = true;
  profiler->before = launches();
  if (is_set("fault-in-range")) *of_driver<bool>("emulated_fault") = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params *p) {
  Profiler *profiler = (Profiler *)p->pRangeProfilerObject;
  EXPECT(ENDS(p, pRangeProfilerObject) && profiler->is_open);
  profiler->is_open = false;
  profiler->launches.push_back(launches() - profiler->before);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params *p) {
  Profiler *profiler = (Profiler *)p->pRangeProfilerObject;
  EXPECT(ENDS(p, isAllPassSubmitted) && profiler->is_started && !profiler->is_open);
  profiler->is_started = false;
  p->isAllPassSubmitted = ++profiler->pass == passes;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params *p) {
  Profiler *profiler = (Profiler *)p->pRangeProfilerObject;
  EXPECT(ENDS(p, numOfRangeDropped) && profiler->pass == passes);
  // Passes with different work cannot be combined.
  for (uint64_t launches : profiler->launches) p->numOfRangeDropped += launches != profiler->launches[0];
  *profiler->data = {data_mark, profiler->launches[0], true};
  return CUPTI_SUCCESS;
}
}
