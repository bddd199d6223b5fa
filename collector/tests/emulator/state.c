// NVML as far as the runner asks it, of a device whose power is capped.
typedef void *Device;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { return status ? "no such sensor" : "no error"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device *device) { *device = (Device)bus; return 0; }
int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetPowerUsage(Device device, unsigned *mw) { *mw = 345600; return 0; }
int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) { return 3; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons) { *reasons = 5; return 0; }
