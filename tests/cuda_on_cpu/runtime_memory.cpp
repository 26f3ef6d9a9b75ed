// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory and copies. Device and pinned memory is read and written when the stream gets there; pageable memory before
// the call returns.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_on_cpu/machine.hpp"

namespace cuda_on_cpu {

allocation_ptr locate(const void* pointer, std::size_t bytes, cudaError_t& e) {
  auto& m = the_machine();
  auto* at = static_cast<char*>(const_cast<void*>(pointer));
  auto next = m.memory.upper_bound(at);
  if (next == m.memory.begin()) return {};
  const auto& a = (--next)->second;
  if (at >= a->begin + a->bytes) return {};
  if (at + bytes > a->begin + a->bytes) e = cudaErrorInvalidValue;
  return a;
}

cudaError_t allocate(void** out, std::size_t bytes, allocation::kind what) {
  if (out == nullptr) return cudaErrorInvalidValue;
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  void* p = nullptr;
  if (bytes > std::size_t{1} << 40 || posix_memalign(&p, 256, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(p, 0xff, bytes);
  auto* begin = static_cast<char*>(p);
  the_machine().memory[begin] = std::make_shared<allocation>(begin, bytes, what, this_thread().device);
  *out = p;
  return cudaSuccess;
}

// Unlike the real cudaFree this waits for nothing: whoever relies on that wait is found.
cudaError_t release(void* p, bool on_device) {
  if (p == nullptr) return cudaSuccess;
  auto& m = the_machine();
  const auto at = m.memory.find(static_cast<char*>(p));
  if (at == m.memory.end() || at->second->on_device() != on_device) {
    m.note(std::string(this_thread().calling) + " of something that its allocation call did not give out");
    return cudaErrorInvalidValue;
  }
  at->second->freed = true;
  m.memory.erase(at);
  return cudaSuccess;
}

namespace {

constexpr int host = -1;
constexpr std::size_t max_pitch = 0x7fffffff;  // cudaDevAttrMaxPitch of every device so far

// Slices of rows of bytes. Pitches between rows; slices are so many rows apart.
struct box {
  char* to;
  const char* from;
  std::size_t width, height, depth;
  std::size_t to_pitch, from_pitch, to_slice, from_slice;  // bytes
};

std::size_t span(const box& b, std::size_t pitch, std::size_t slice) {
  return b.width * b.height * b.depth == 0 ? 0 : (b.depth - 1) * slice + (b.height - 1) * pitch + b.width;
}

void copy_box(const box& b) {
  for (std::size_t z = 0; z < b.depth; ++z)
    for (std::size_t y = 0; y < b.height; ++y)
      std::memcpy(b.to + z * b.to_slice + y * b.to_pitch, b.from + z * b.from_slice + y * b.from_pitch, b.width);
}

bool may_be_host(const allocation_ptr& a) {
  return !a || a->what != allocation::kind::device;
}
bool may_be_device(const allocation_ptr& a) {
  return a && a->on_device();
}

bool fits(cudaMemcpyKind kind, const allocation_ptr& from, const allocation_ptr& to) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return may_be_host(from) && may_be_host(to);
    case cudaMemcpyHostToDevice:
      return may_be_host(from) && may_be_device(to);
    case cudaMemcpyDeviceToHost:
      return may_be_device(from) && may_be_host(to);
    case cudaMemcpyDeviceToDevice:
      return may_be_device(from) && may_be_device(to);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

enum class shape { line, pitched };

cudaError_t copy(guard& held, const char* name, box b, cudaMemcpyKind kind, cudaStream_t handle, shape form,
                 bool sync = false) {
  auto& m = the_machine();
  cudaError_t e = cudaSuccess;
  auto* stream = resolve(handle, e);
  if (stream == nullptr) return e;
  if (b.width * b.height * b.depth == 0) return cudaSuccess;
  if ((b.height > 1 || b.depth > 1) && (b.width > b.to_pitch || b.width > b.from_pitch))
    return cudaErrorInvalidPitchValue;
  if (form == shape::pitched && std::max(b.to_pitch, b.from_pitch) > max_pitch) return cudaErrorInvalidPitchValue;
  const auto to = locate(b.to, span(b, b.to_pitch, b.to_slice), e);
  const auto from = locate(b.from, span(b, b.from_pitch, b.from_slice), e);
  if (e != cudaSuccess) return e;
  const bool to_device = may_be_device(to), from_device = may_be_device(from);
  if (!fits(kind, from, to)) return cudaErrorInvalidMemcpyDirection;

  job what{std::string(name) + " in stream " + std::to_string(stream->name), {}, {to, from}};
  std::shared_ptr<std::vector<char>> stage;
  if (!from && to_device && !stream->in) {  // pageable memory may change as soon as the call is over
    stage = std::make_shared<std::vector<char>>(b.width * b.height * b.depth);
    box in = b;
    in.to = stage->data();
    in.to_pitch = b.width;
    in.to_slice = b.width * b.height;
    {
      outside now(held);
      copy_box(in);
    }
    b.from = stage->data();
    b.from_pitch = b.width;
    b.from_slice = b.width * b.height;
  }
  const std::pair<int, int> link{from_device ? from->device : host, to_device ? to->device : host};
  what.work = [b, stage, link] {
    copy_box(b);
    guard counting;
    the_machine().links[link] += b.width * b.height * b.depth;
  };
  e = submit(stream, std::move(what));
  const bool waits = sync || (!to && from_device) || (!from_device && !to_device);
  if (e == cudaSuccess && waits && !stream->in) finish(held, stream->last);
  return e == cudaSuccess ? m.broken : e;
}

cudaError_t set_bytes(const char* name, box b, int value, cudaStream_t handle) {
  cudaError_t e = cudaSuccess;
  auto* stream = resolve(handle, e);
  if (stream == nullptr || b.width * b.height == 0) return e;
  if (b.height > 1 && (b.width > b.to_pitch || b.to_pitch > max_pitch)) return cudaErrorInvalidPitchValue;
  const auto to = locate(b.to, span(b, b.to_pitch, 0), e);
  if (e != cudaSuccess || !to) return cudaErrorInvalidValue;
  return submit(stream, {std::string(name) + " in stream " + std::to_string(stream->name),
                         [b, value] {
                           for (std::size_t y = 0; y < b.height; ++y)
                             std::memset(b.to + y * b.to_pitch, value, b.width);
                         },
                         {to}});
}

box line(void* to, const void* from, std::size_t bytes) {
  return {static_cast<char*>(to), static_cast<const char*>(from), bytes, 1, 1, bytes, bytes, bytes, bytes};
}

bool no_device(int device) {
  return device < 0 || device >= the_machine().set.devices;
}

}  // namespace
}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** out, size_t bytes) {
  return api("cudaMalloc", manners::unsafe, [&](guard&) { return allocate(out, bytes, allocation::kind::device); });
}

cudaError_t CUDARTAPI cudaMallocHost(void** out, size_t bytes) {
  return api("cudaMallocHost", manners::unsafe, [&](guard&) { return allocate(out, bytes, allocation::kind::pinned); });
}

cudaError_t CUDARTAPI cudaMallocManaged(void** out, size_t bytes, unsigned flags) {
  return api("cudaMallocManaged", manners::unsafe, [&](guard&) {
    return flags == cudaMemAttachGlobal ? allocate(out, bytes, allocation::kind::managed) : cudaErrorInvalidValue;
  });
}

cudaError_t CUDARTAPI cudaFree(void* p) {
  return api("cudaFree", manners::unsafe, [&](guard&) { return release(p, true); });
}

cudaError_t CUDARTAPI cudaFreeHost(void* p) {
  return api("cudaFreeHost", manners::unsafe, [&](guard&) { return release(p, false); });
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  return api("cudaPointerGetAttributes", manners::harmless, [&](guard&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = {};
    auto* at = const_cast<void*>(p);
    cudaError_t e = cudaSuccess;
    const auto a = locate(p, 0, e);
    using kind = allocation::kind;
    out->type = !a                        ? cudaMemoryTypeUnregistered
                : a->what == kind::device ? cudaMemoryTypeDevice
                : a->what == kind::pinned ? cudaMemoryTypeHost
                                          : cudaMemoryTypeManaged;
    out->device = a ? a->device : cudaInvalidDeviceId;
    out->devicePointer = a ? at : nullptr;
    out->hostPointer = may_be_host(a) ? at : nullptr;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
  return api("cudaMemcpyAsync", manners::harmless,
             [&](guard& held) { return copy(held, "cudaMemcpyAsync", line(to, from, bytes), kind, s, shape::line); });
}

cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", manners::unsafe, [&](guard& held) {
    return copy(held, "cudaMemcpy", line(to, from, bytes), kind, nullptr, shape::line, true);
  });
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                        size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  return api("cudaMemcpy2DAsync", manners::harmless, [&](guard& held) {
    const box b{static_cast<char*>(to), static_cast<const char*>(from), width, height, 1, to_pitch, from_pitch, 0, 0};
    return copy(held, "cudaMemcpy2DAsync", b, kind, s, shape::pitched);
  });
}

cudaError_t CUDARTAPI cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t s) {
  return api("cudaMemcpy3DAsync", manners::harmless, [&](guard& held) {
    if (p == nullptr || p->srcArray != nullptr || p->dstArray != nullptr) return cudaErrorInvalidValue;
    const auto start = [](const cudaPitchedPtr& at, const cudaPos& pos) {
      return static_cast<char*>(at.ptr) + (pos.z * at.ysize + pos.y) * at.pitch + pos.x;
    };
    const box b{start(p->dstPtr, p->dstPos),
                start(p->srcPtr, p->srcPos),
                p->extent.width,
                p->extent.height,
                p->extent.depth,
                p->dstPtr.pitch,
                p->srcPtr.pitch,
                p->dstPtr.pitch * p->dstPtr.ysize,
                p->srcPtr.pitch * p->srcPtr.ysize};
    return copy(held, "cudaMemcpy3DAsync", b, p->kind, s, shape::pitched);
  });
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                          cudaStream_t s) {
  return api("cudaMemcpyPeerAsync", manners::harmless, [&](guard& held) {
    if (no_device(to_device) || no_device(from_device)) return cudaErrorInvalidDevice;
    cudaError_t e = cudaSuccess;
    const auto a = locate(to, bytes, e), b = locate(from, bytes, e);
    if (bytes != 0 && (!a || !b || a->device != to_device || b->device != from_device)) return cudaErrorInvalidValue;
    return copy(held, "cudaMemcpyPeerAsync", line(to, from, bytes), cudaMemcpyDeviceToDevice, s, shape::line);
  });
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t s) {
  return api("cudaMemsetAsync", manners::harmless,
             [&](guard&) { return set_bytes("cudaMemsetAsync", line(to, nullptr, bytes), value, s); });
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                                        cudaStream_t s) {
  return api("cudaMemset2DAsync", manners::harmless, [&](guard&) {
    return set_bytes("cudaMemset2DAsync", {static_cast<char*>(to), nullptr, width, height, 1, pitch, 0, 0, 0}, value,
                     s);
  });
}

}  // extern "C"
