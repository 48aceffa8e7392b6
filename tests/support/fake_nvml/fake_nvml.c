/* A stand-in for libnvidia-ml.so.1 whose machine is described by a text file, re-read at every call.
 *
 * FAKE_NVML_STATE names the file. One record a line, fields separated by tabs:
 *
 *   system   init_error=18  driver=580.65.06  cuda=13000  hang_ms=0
 *   missing  function=nvmlDeviceGetGraphicsRunningProcesses_v3       answers like a symbol an old driver lacks
 *   gpu      uuid=GPU-…  name=…  total=…  reserved=…  used=…  cc=8.9  util=3  temp=41  power_mw=…  limit_mw=…  bus=…
 *            handle_error=15  error=15  memory_error=3  metric_error=3  mig=1  mig_places=7
 *   mig      gpu=0  place=0  uuid=MIG-…  name=…  total=…  reserved=…  used=…
 *   process  gpu=0  pid=123  used=…  kind=compute|graphics      used=none: the driver does not say
 *
 * Build with -DWITHOUT_MEMORY_V2 for a driver from before 510, which lacks that symbol altogether.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       FUNCTION_NOT_FOUND = 13 };
enum { LINES = 128, WIDTH = 1024, MIG_BASE = 1000 };

typedef struct { char line[LINES][WIDTH]; int count; } State;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;

static int initialised;

static void read_state(State *state) {
    state->count = 0;
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return;
    while (state->count < LINES && fgets(state->line[state->count], WIDTH, file)) {
        char *line = state->line[state->count];
        line[strcspn(line, "\n")] = 0;
        if (*line && *line != '#') state->count++;
    }
    fclose(file);
}

static int is(const char *line, const char *kind) {
    size_t length = strlen(kind);
    return !strncmp(line, kind, length) && (line[length] == '\t' || !line[length]);
}

static const char *nth(const State *state, const char *kind, int n) {
    for (int i = 0; i < state->count; i++)
        if (is(state->line[i], kind) && n-- == 0) return state->line[i];
    return NULL;
}

/* Copies the text of `key` in `line` to `out`; returns whether it was there. */
static int field(const char *line, const char *key, char *out, size_t size) {
    size_t length = strlen(key);
    for (const char *at = line ? strchr(line, '\t') : NULL; at; at = strchr(at, '\t')) {
        at++;
        if (strncmp(at, key, length) || at[length] != '=') continue;
        size_t end = strcspn(at + length + 1, "\t");
        if (end >= size) end = size - 1;
        memcpy(out, at + length + 1, end);
        out[end] = 0;
        return 1;
    }
    return 0;
}

static unsigned long long number(const char *line, const char *key, unsigned long long otherwise) {
    char text[64];
    return field(line, key, text, sizeof text) ? strtoull(text, NULL, 10) : otherwise;
}

/* What every call does first: hang when told to, and answer as an old driver for a function that is "missing". */
static int enter(State *state, const char *function) {
    read_state(state);
    const char *system = nth(state, "system", 0);
    usleep((useconds_t)number(system, "hang_ms", 0) * 1000);
    char name[128];
    for (int i = 0;; i++) {
        const char *missing = nth(state, "missing", i);
        if (!missing) break;
        if (field(missing, "function", name, sizeof name) && !strcmp(name, function)) return FUNCTION_NOT_FOUND;
    }
    return initialised ? OK : UNINITIALIZED;
}

static const char *record(const State *state, void *handle, int *is_mig) {
    intptr_t value = (intptr_t)handle - 1;
    *is_mig = value >= MIG_BASE;
    return *is_mig ? nth(state, "mig", (int)value - MIG_BASE) : nth(state, "gpu", (int)value);
}

#define ENTER(function) State state; int rc = enter(&state, function); if (rc) return rc
#define DEVICE(function) ENTER(function); int is_mig; const char *gpu = record(&state, handle, &is_mig); \
    if (!gpu) return INVALID_ARGUMENT; \
    if ((rc = (int)number(gpu, "error", 0))) return rc
#define METRIC(function) DEVICE(function); if (is_mig) return NOT_SUPPORTED; \
    if ((rc = (int)number(gpu, "metric_error", 0))) return rc

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    State state;
    read_state(&state);
    int error = (int)number(nth(&state, "system", 0), "init_error", 0);
    if (!error) initialised++;
    return error;
}

int nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return OK;
}

const char *nvmlErrorString(int code) { (void)code; return "fake error"; }

static int text_of(const char *line, const char *key, char *out, unsigned size) {
    return field(line, key, out, size) ? OK : NOT_SUPPORTED;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    ENTER("nvmlSystemGetDriverVersion");
    return text_of(nth(&state, "system", 0), "driver", out, size);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    ENTER("nvmlSystemGetNVMLVersion");
    return text_of(nth(&state, "system", 0), "driver", out, size);
}

static int cuda_version(int *out, const char *function) {
    ENTER(function);
    *out = (int)number(nth(&state, "system", 0), "cuda", 13000);
    return OK;
}
int nvmlSystemGetCudaDriverVersion(int *out) { return cuda_version(out, "nvmlSystemGetCudaDriverVersion"); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return cuda_version(out, "nvmlSystemGetCudaDriverVersion_v2"); }

int nvmlDeviceGetCount_v2(unsigned *out) {
    ENTER("nvmlDeviceGetCount_v2");
    for (*out = 0; nth(&state, "gpu", (int)*out);) ++*out;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    ENTER("nvmlDeviceGetHandleByIndex_v2");
    const char *gpu = nth(&state, "gpu", (int)index);
    if (!gpu) return INVALID_ARGUMENT;
    *out = (void *)(intptr_t)(index + 1);
    return (int)number(gpu, "handle_error", 0);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    ENTER("nvmlDeviceGetHandleByUUID");
    char text[128];
    const char *line;
    for (int i = 0; (line = nth(&state, "gpu", i)); i++)
        if (field(line, "uuid", text, sizeof text) && !strcmp(text, uuid)) return *out = (void *)(intptr_t)(i + 1), OK;
    for (int i = 0; (line = nth(&state, "mig", i)); i++)
        if (field(line, "uuid", text, sizeof text) && !strcmp(text, uuid))
            return *out = (void *)(intptr_t)(MIG_BASE + i + 1), OK;
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    DEVICE("nvmlDeviceGetName");
    return text_of(gpu, "name", out, size);
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
    DEVICE("nvmlDeviceGetUUID");
    return text_of(gpu, "uuid", out, size);
}

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *out) {
    METRIC("nvmlDeviceGetPciInfo_v3");
    memset(out, 0, sizeof *out);
    return text_of(gpu, "bus", out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *out) {
    DEVICE("nvmlDeviceGetMemoryInfo");
    memset(out, 0, sizeof *out);
    if ((rc = (int)number(gpu, "memory_error", 0))) return rc;
    unsigned long long reserved = number(gpu, "reserved", 0);
    out->total = number(gpu, "total", 0);
    out->used = number(gpu, "used", 0) + reserved;  /* the old call counts what the driver reserves as used */
    out->free = out->total - out->used;
    return OK;
}

#ifndef WITHOUT_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *out) {
    DEVICE("nvmlDeviceGetMemoryInfo_v2");
    if (out->version != 0x2000028) return INVALID_ARGUMENT;
    if ((rc = (int)number(gpu, "memory_error", 0))) return rc;
    out->total = number(gpu, "total", 0);
    out->reserved = number(gpu, "reserved", 0);
    out->used = number(gpu, "used", 0);
    out->free = out->total - out->reserved - out->used;
    return OK;
}
#endif

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *out) {
    METRIC("nvmlDeviceGetUtilizationRates");
    out->gpu = (unsigned)number(gpu, "util", 0);
    out->memory = 0;
    return OK;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out) {
    (void)sensor;
    METRIC("nvmlDeviceGetTemperature");
    *out = (unsigned)number(gpu, "temp", 40);
    return OK;
}

int nvmlDeviceGetTemperatureV(void *handle, Temperature *out) {
    METRIC("nvmlDeviceGetTemperatureV");
    out->temperature = (int)number(gpu, "temp", 40);
    return OK;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *out) {
    METRIC("nvmlDeviceGetPowerUsage");
    *out = (unsigned)number(gpu, "power_mw", 30000);
    return OK;
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *out) {
    METRIC("nvmlDeviceGetEnforcedPowerLimit");
    *out = (unsigned)number(gpu, "limit_mw", 300000);
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    DEVICE("nvmlDeviceGetCudaComputeCapability");
    char text[16];
    if (!field(gpu, "cc", text, sizeof text)) return NOT_SUPPORTED;
    return sscanf(text, "%d.%d", major, minor) == 2 ? OK : INVALID_ARGUMENT;
}

static int processes(void *handle, unsigned *count, Process *out, const char *function, const char *wanted) {
    DEVICE(function);
    if (is_mig) return NOT_SUPPORTED;
    unsigned index = (unsigned)((intptr_t)handle - 1), room = *count, found = 0;
    char kind[16], used[32];
    const char *line;
    for (int i = 0; (line = nth(&state, "process", i)); i++) {
        if (!field(line, "kind", kind, sizeof kind)) strcpy(kind, "compute");
        if (strcmp(kind, wanted) || number(line, "gpu", 0) != index) continue;
        if (found < room && out) {
            out[found].pid = (unsigned)number(line, "pid", 0);
            int unknown = field(line, "used", used, sizeof used) && !strcmp(used, "none");
            out[found].used = unknown ? ~0ULL : number(line, "used", 0);
            out[found].gpu_instance = out[found].compute_instance = ~0U;
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    return processes(handle, count, out, "nvmlDeviceGetComputeRunningProcesses_v3", "compute");
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    return processes(handle, count, out, "nvmlDeviceGetGraphicsRunningProcesses_v3", "graphics");
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    METRIC("nvmlDeviceGetMigMode");
    char text[8];
    if (!field(gpu, "mig", text, sizeof text)) return NOT_SUPPORTED;
    *current = *pending = (unsigned)atoi(text);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out) {
    METRIC("nvmlDeviceGetMaxMigDeviceCount");
    *out = (unsigned)number(gpu, "mig_places", 7);
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned place, void **out) {
    METRIC("nvmlDeviceGetMigDeviceHandleByIndex");
    const char *line;
    for (int i = 0; (line = nth(&state, "mig", i)); i++) {
        if (number(line, "gpu", 0) != (unsigned)((intptr_t)handle - 1) || number(line, "place", 0) != place) continue;
        *out = (void *)(intptr_t)(MIG_BASE + i + 1);
        return OK;
    }
    return NOT_FOUND;
}
