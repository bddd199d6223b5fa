// The subset of NVML that the runner uses, for a device whose power is capped at times.
typedef void *Device;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { return status ? "no such sensor" : "no error"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device *device) { *device = (Device)bus; return 0; }
int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetPowerUsage(Device device, unsigned *mw) { *mw = 345600; return 0; }
int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) { return 3; }
static int looks;
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons) { *reasons = looks++ % 2 ? 5 : 1; return 0; }
static unsigned long long used_mj = 1000;
int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long *mj) { *mj = used_mj += 500; return 0; }
