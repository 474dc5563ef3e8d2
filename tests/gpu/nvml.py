"""Reads NVML, and holds or breaks a GPU, without PyTorch; prints JSON.

    nvml.py gpus              what NVML reports of each GPU
    nvml.py events SECONDS    registers for the events of all GPUs, and waits for one
    nvml.py hold              has a CUDA context on GPU 0 until standard input ends
    nvml.py fault             a kernel that writes to a wrong address: the driver ends the context, and reports Xid 31

The kit runs it as a process of its own, because NVML can hang, also as another user and from standard input. It needs
only Python. (NVML API Reference Guide: numbers and structures.)
"""
import ctypes
import json
import os
import sys
import time

RECOVERY_ACTION = 230
XID = 8  # nvmlEventTypeXidCriticalError
TIMED_OUT = 10


class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("result", ctypes.c_int),
                ("value", ctypes.c_ulonglong)]


class Event(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def load():
    """The library and the handle of each GPU."""
    library = ctypes.CDLL(os.environ.get("MUSTER_NVML_LIBRARY") or "libnvidia-ml.so.1")
    result = library.nvmlInit_v2()
    if result:
        raise OSError(f"nvmlInit_v2: error {result}")
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    handles = []
    for i in range(count.value):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) == 0:
            handles.append(handle)
    return library, handles


def text_of(call, handle):
    text = ctypes.create_string_buffer(96)
    return text.value.decode() if call(handle, text, len(text)) == 0 else None


def describe(library, handle):
    pci, memory, n, processes = (ctypes.c_char * 68)(), (ctypes.c_ulonglong * 3)(), ctypes.c_uint(64), (Process * 64)()
    field = Field(id=RECOVERY_ACTION)
    result = library.nvmlDeviceGetFieldValues(handle, 1, ctypes.byref(field)) or field.result
    known = library.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    counted = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(n), processes) == 0
    library.nvmlDeviceGetPciInfo_v3(handle, pci)
    return {"bus_id": pci.raw[36:].split(b"\0")[0].decode().lower(),
            "name": text_of(library.nvmlDeviceGetName, handle), "uuid": text_of(library.nvmlDeviceGetUUID, handle),
            "memory": list(memory) if known else None,  # total, free, used
            "pids": [p.pid for p in processes[:n.value]] if counted else None,
            "recovery_action": {"result": result, "value": None if result else field.value & 0xffffffff}}


def gpus():
    began = time.monotonic()
    library, handles = load()
    loaded = time.monotonic()
    found = [describe(library, handle) for handle in handles]
    return {"gpus": found, "init_s": loaded - began, "read_s": time.monotonic() - loaded}


def events(seconds):
    """Reports what could be registered, then the first event and the time after which it came."""
    library, handles = load()
    watched, known = ctypes.c_void_p(), ctypes.c_ulonglong()
    answer = {"create": library.nvmlEventSetCreate(ctypes.byref(watched)), "supported": None, "register": None}
    for handle in handles if answer["create"] == 0 else []:
        answer["supported"] = None if library.nvmlDeviceGetSupportedEventTypes(handle, ctypes.byref(known)) else known.value
        answer["register"] = library.nvmlDeviceRegisterEvents(handle, ctypes.c_ulonglong(XID & known.value or XID), watched)
    print(json.dumps(answer), flush=True)
    event, began, result = Event(), time.time(), TIMED_OUT
    while result == TIMED_OUT and answer["register"] == 0 and time.time() < began + seconds:
        result = library.nvmlEventSetWait_v2(watched, ctypes.byref(event), 250)
    return {"wait": result, "at": time.time(), **({"type": event.type, "xid": event.data} if result == 0 else {})}


def hold():
    """A CUDA context; without CUDA the device file alone."""
    try:
        cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        result = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        answer = {"cuda": result}
    except OSError:
        devices = sorted(name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit())
        answer = {"cuda": None, "fd": os.open("/dev/" + (devices or ["nvidia0"])[0], os.O_RDONLY)}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()
    return {}


PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry fault()
{
    .reg .b32 %value;
    .reg .b64 %address;
    mov.u64 %address, 4096;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""


def fault():
    cuda, context, module, kernel = ctypes.CDLL("libcuda.so.1"), *(ctypes.c_void_p() for _ in range(3))
    result = (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context) or
              cuda.cuModuleLoadData(ctypes.byref(module), PTX) or
              cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"fault"))
    at = time.time()
    result = result or cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) or cuda.cuCtxSynchronize()
    return {"fault": result, "at": at}


if __name__ == "__main__":
    try:
        words = sys.argv[1:]
        print(json.dumps({"gpus": gpus, "events": lambda: events(float(words[1])), "hold": hold, "fault": fault}[words[0]]()))
    except (OSError, AttributeError) as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(1)
