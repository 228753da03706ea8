/* Stands in for NVIDIA's driver where there is none: every call succeeds, nothing runs, and the last
   launch is kept to be looked at.  It says that it is an H100. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes; } Config;

static long launches;
static Config last;
static uint64_t arguments[64];
static int anything;

long last_count(void) { return launches; }
unsigned last_grid(void) { return last.gridX; }
unsigned last_threads(void) { return last.blockX; }
unsigned last_shared(void) { return last.sharedBytes; }
uint64_t last_argument(int number) { return arguments[number]; }

/* How many arguments there are is not told: the test says how many it wants to look at. */
static int wanted;
void look_at(int count) { wanted = count; }

int cuLaunchKernelEx(const Config *config, void *function, void **parameters, void **extra) {
  last = *config;
  for (int i = 0; i < wanted; i++) memcpy(&arguments[i], parameters[i], sizeof(uint64_t));
  launches++;
  return 0;
}

int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &anything; return 0; }
int cuCtxGetCurrent(void **context) { *context = &anything; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = &anything; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = &anything;
  return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  *value = attribute == 0 ? 1024 : 0; /* 0: most threads of a block */
  return 0;
}
int cuPointerGetAttribute(uint64_t *value, int attribute, uint64_t pointer) {
  *value = pointer;
  return 0;
}
int cuGetErrorString(int code, const char **text) { *text = "no such error"; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  static const struct { int attribute, value; } known[] = {
      {8, 49152}, {10, 32}, {12, 65536}, {16, 132}, {39, 2048}, {75, 9}, {76, 0}, {81, 233472},
      {82, 65536}, {97, 232448}};
  *value = 1;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].attribute == attribute) *value = known[i].value;
  return 0;
}

#define NOTHING(name) int name(void) { return 0; }
NOTHING(cuInit) NOTHING(cuDriverGetVersion) NOTHING(cuDeviceGetName) NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSetLimit) NOTHING(cuCtxGetLimit) NOTHING(cuFuncSetAttribute) NOTHING(cuFuncSetCacheConfig)
NOTHING(cuCtxPushCurrent) NOTHING(cuCtxPopCurrent) NOTHING(cuMemAllocAsync) NOTHING(cuMemFreeAsync)
NOTHING(cuTensorMapEncodeTiled) NOTHING(cuOccupancyMaxActiveClusters) NOTHING(cuStreamIsCapturing)
NOTHING(cuLaunchKernel) NOTHING(cuModuleUnload) NOTHING(cuCtxSynchronize) NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuCtxPopCurrent_v2) NOTHING(cuDevicePrimaryCtxRelease) NOTHING(cuLaunchCooperativeKernel)
