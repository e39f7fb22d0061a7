/* A driver's management library with two GPUs, for tests: what pynvml asks of it, by NVML's own ABI.

   GPU 0 fills up: each look finds 1 GiB more, up to 6, then 2 again. GPU 1 draws no power that it could tell. */
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPUS = 2 };
static const char *UUIDS[GPUS] = {"GPU-00000000-aaaa-0000-0000-000000000000", "GPU-11111111-bbbb-0000-0000-000000000000"};
static int devices[GPUS] = {0, 1};
static const unsigned long long GIB = 1ull << 30;

int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
const char *nvmlErrorString(int code) { return "refused by the stand-in"; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **device) {
  if (index >= GPUS) return NOT_FOUND;
  *device = &devices[index];
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, int **device) { return NOT_FOUND; }
int nvmlDeviceGetUUID(int *device, char *uuid, unsigned length) { strncpy(uuid, UUIDS[*device], length); return SUCCESS; }
int nvmlDeviceGetIndex(int *device, unsigned *index) { *index = *device; return SUCCESS; }

int nvmlDeviceGetMemoryInfo(int *device, unsigned long long memory[3]) {
  static int looks = 0;
  unsigned long long used = GIB;
  if (*device == 0) { used = looks < 6 ? looks * GIB + GIB : 2 * GIB; looks++; }
  memory[0] = 80 * GIB; memory[1] = 80 * GIB - used; memory[2] = used;
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(int *device, unsigned rates[2]) { rates[0] = 75; rates[1] = 20; return SUCCESS; }

int nvmlDeviceGetPowerUsage(int *device, unsigned *milliwatts) {
  if (*device == 1) return NOT_SUPPORTED;
  *milliwatts = 512500;
  return SUCCESS;
}
