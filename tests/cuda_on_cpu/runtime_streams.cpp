// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Devices, streams, events and host functions.
#include <cstdio>

#include "tests/cuda_on_cpu/machine.hpp"

using namespace cuda_on_cpu;

namespace {

bool no_device(int device) {
  return device < 0 || device >= the_machine().set.devices;
}

// Waiting for a capturing stream ends the capture.
cudaError_t touch_captured(cudaStream_t s) {
  return s->in ? invalidate(*s->in, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

// An event that may be asked or waited for by the host.
cudaError_t check_event(cudaEvent_t event) {
  if (!the_machine().events.count(event)) return cudaErrorInvalidResourceHandle;
  return event->in ? cudaErrorCapturedEvent : cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", manners::harmless, [&](guard&) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = the_machine().set.devices;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return api("cudaGetDevice", manners::harmless, [&](guard&) {
    if (device == nullptr) return cudaErrorInvalidValue;
    if (no_device(this_thread().device)) return cudaErrorNoDevice;
    *device = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return api("cudaSetDevice", manners::harmless, [&](guard&) {
    if (no_device(device)) return cudaErrorInvalidDevice;
    this_thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api("cudaDeviceGetAttribute", manners::harmless, [&](guard&) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (no_device(device)) return cudaErrorInvalidDevice;
    switch (static_cast<int>(attribute)) {
      case cudaDevAttrMultiProcessorCount:
        *value = 132;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = 32;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 49152;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 232448;
        return cudaSuccess;
      case cudaDevAttrUnifiedAddressing:
        *value = 1;
        return cudaSuccess;
      case cudaDevAttrPageableMemoryAccess:
        *value = 0;
        return cudaSuccess;
      case cudaDevAttrMaxPitch:
        *value = 0x7fffffff;
        return cudaSuccess;
      case cudaDevAttrAsyncEngineCount:
        *value = 3;
        return cudaSuccess;
      case cudaDevAttrPciBusId:
        *value = device + 1;
        return cudaSuccess;
      case cudaDevAttrPciDeviceId:
        *value = 0;
        return cudaSuccess;
      case cudaDevAttrPciDomainId:
        *value = 0;
        return cudaSuccess;
      default:
        the_machine().note("an attribute of the device that this stand-in does not know");
        break;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return api("cudaGetDeviceProperties", manners::harmless, [&](guard&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    if (no_device(device)) return cudaErrorInvalidDevice;
    *out = {};
    std::snprintf(out->name, sizeof out->name, "a CPU");
    std::snprintf(out->uuid.bytes, sizeof out->uuid.bytes, "dev %d", device);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return api("cudaDeviceGetPCIBusId", manners::harmless, [&](guard&) {
    if (text == nullptr || bytes < 13) return cudaErrorInvalidValue;
    if (no_device(device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", static_cast<unsigned>(device + 1) & 0xffu);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", manners::harmless, [&](guard&) {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (no_device(device) || no_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer && the_machine().set.peer_access ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", manners::unsafe, [&](guard&) {
    if (flags != 0) return cudaErrorInvalidValue;
    const int device = this_thread().device;
    if (no_device(peer) || peer == device) return cudaErrorInvalidDevice;
    if (!the_machine().set.peer_access) return cudaErrorPeerAccessUnsupported;
    return the_machine().peers.insert({device, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", manners::unsafe, [&](guard& held) {
    std::vector<task_ptr> all;
    for (auto* s : the_machine().streams) {
      if (s->device != this_thread().device) continue;
      if (const auto e = touch_captured(s); e != cudaSuccess) return e;
      all.push_back(s->last);
    }
    for (const auto& t : all) finish(held, t);
    return the_machine().broken;
  });
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return api("cudaStreamCreateWithFlags", manners::harmless, [&](guard&) {
    if (out == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    if (the_machine().set.devices == 0) return cudaErrorNoDevice;
    *out = make_stream(this_thread().device, flags == cudaStreamDefault);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t handle) {  // its work goes on
  return api("cudaStreamDestroy", manners::harmless, [&](guard&) {
    if (!the_machine().streams.count(handle) || handle->closed) return cudaErrorInvalidResourceHandle;
    if (const auto e = touch_captured(handle); e != cudaSuccess) return e;
    handle->closed = true;
    handle->filled.notify_one();
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 12080
cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return api("cudaStreamGetDevice", manners::harmless, [&](guard&) {
    if (device == nullptr) return cudaErrorInvalidValue;
    cudaError_t e = cudaSuccess;
    if (auto* s = resolve(handle, e)) *device = s->device;
    return e;
  });
}
#endif

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t handle) {
  return api("cudaStreamSynchronize", manners::unsafe, [&](guard& held) {
    cudaError_t e = cudaSuccess;
    auto* s = resolve(handle, e);
    if (s != nullptr) e = touch_captured(s);
    if (e != cudaSuccess) return e;
    finish(held, s->last);
    return the_machine().broken;
  });
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t handle) {
  return api("cudaStreamQuery", manners::unsafe, [&](guard&) {
    cudaError_t e = cudaSuccess;
    auto* s = resolve(handle, e);
    if (s != nullptr) e = touch_captured(s);
    if (e != cudaSuccess || !s->last) return e;
    if (!s->last->done) return cudaErrorNotReady;
    s->last->finished.acquire();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return api("cudaStreamWaitEvent", manners::harmless, [&](guard&) {
    if (flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    if (!the_machine().events.count(event)) return cudaErrorInvalidResourceHandle;
    cudaError_t e = cudaSuccess;
    auto* s = resolve(handle, e);
    if (s == nullptr) return e;
    if (s->in || event->in) return join_or_refuse(s, event);
    if (event->last) enqueue(s, nullptr, {event->last});
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return api("cudaEventCreateWithFlags", manners::harmless, [&](guard&) {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (out == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
    *out = new CUevent_st{this_thread().device, {}, {}, {}};
    the_machine().events.insert(*out);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", manners::harmless, [&](guard&) {
    if (the_machine().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return api("cudaEventRecord", manners::harmless, [&](guard&) {
    if (!the_machine().events.count(event)) return cudaErrorInvalidResourceHandle;
    cudaError_t e = cudaSuccess;
    auto* s = resolve(handle, e);
    if (s == nullptr) return e;
    if (s->device != event->device) return cudaErrorInvalidResourceHandle;
    event->in = s->in;
    event->tail = s->tail;
    event->last = s->in ? nullptr : enqueue(s, nullptr, {});
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", manners::unsafe, [&](guard&) {
    const auto e = check_event(event);
    if (e != cudaSuccess || !event->last) return e;
    if (!event->last->done) return cudaErrorNotReady;
    event->last->finished.acquire();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", manners::unsafe, [&](guard& held) {
    const auto e = check_event(event);
    if (e != cudaSuccess) return e;
    finish(held, event->last);
    return the_machine().broken;
  });
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return api("cudaLaunchHostFunc", manners::harmless, [&](guard&) {
    cudaError_t e = cudaSuccess;
    auto* s = resolve(handle, e);
    if (s == nullptr || function == nullptr) return s == nullptr ? e : cudaErrorInvalidValue;
    return submit(s, {"a host function",
                      [=] {
                        this_thread().in_host_function = true;
                        function(data);
                        this_thread().in_host_function = false;
                      },
                      {}});
  });
}

cudaError_t CUDARTAPI cudaGetLastError() {
  guard held;
  ++the_machine().calls["cudaGetLastError"];
  const auto e = this_thread().last_error;
  this_thread().last_error = the_machine().broken;
  return e;
}

cudaError_t CUDARTAPI cudaPeekAtLastError() {
  guard held;
  ++the_machine().calls["cudaPeekAtLastError"];
  return this_thread().last_error;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
