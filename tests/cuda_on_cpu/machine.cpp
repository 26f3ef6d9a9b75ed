// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/machine.hpp"

#include <algorithm>

#if defined(__SANITIZE_THREAD__)
#define CUDA_ON_CPU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUDA_ON_CPU_TSAN 1
#endif
#endif

#ifdef CUDA_ON_CPU_TSAN
extern "C" {
void AnnotateIgnoreSyncBegin(const char*, int);
void AnnotateIgnoreSyncEnd(const char*, int);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif

namespace cuda_on_cpu {

#ifdef CUDA_ON_CPU_TSAN
namespace {
thread_local int unseen_depth = 0;
void hide() {
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}
void show() {
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
}  // namespace
unseen::unseen() {
  if (unseen_depth++ == 0) hide();
}
unseen::~unseen() {
  if (--unseen_depth == 0) show();
}
void edge::release() {
  if (unseen_depth > 0) show();
  __tsan_release(&mark_);
  if (unseen_depth > 0) hide();
}
void edge::acquire() {
  if (unseen_depth > 0) show();
  __tsan_acquire(&mark_);
  if (unseen_depth > 0) hide();
}
outside::outside(guard& held) : held_(held) {
  held_.lock.unlock();
  show();
}
outside::~outside() {
  hide();
  held_.lock.lock();
}
#else
outside::outside(guard& held) : held_(held) {
  held_.lock.unlock();
}
outside::~outside() {
  held_.lock.lock();
}
unseen::unseen() {}
unseen::~unseen() {}
void edge::release() {
  (void)mark_;
}
void edge::acquire() {}
#endif

machine& the_machine() {
  static machine& m = *new machine;  // never destroyed: threads of streams that nobody destroyed outlive main
  static const int join_the_others = std::atexit([] {
    guard held;
    const auto working = [](cudaStream_t s) { return s->closed; };
    m.changed.wait_for(held.lock, std::chrono::seconds(2),
                       [&] { return std::none_of(m.streams.begin(), m.streams.end(), working); });
    m.join_ended();
  });
  static_cast<void>(join_the_others);
  return m;
}

thread_state& this_thread() {
  thread_local thread_state t;
  return t;
}

guard::guard() : lock(the_machine().mutex) {}

void machine::join_ended() {
  for (std::thread& t : ended) t.join();
  ended.clear();
}

void machine::progress() {
  moved_last = std::chrono::steady_clock::now();
  changed.notify_all();
}

std::uint64_t dice::operator()() {  // splitmix64
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void nap(dice& next) {
  std::chrono::microseconds delay;
  {
    guard held;
    delay = the_machine().set.delay;
  }
  const auto drawn = next();
  if (delay.count() == 0 || drawn % 3 != 0) return;
  const auto longest = static_cast<std::uint64_t>(delay.count()) * (drawn % 48 == 0 ? 8 : 1);
  std::this_thread::sleep_for(std::chrono::microseconds(next() % (longest + 1)));
}

namespace {

bool intact(const job& j) {
  guard held;
  auto& m = the_machine();
  for (const auto& a : j.memory)
    if (a && a->freed) {
      m.note(j.name + " used memory that was freed before it had run");
      m.broken = cudaErrorIllegalAddress;
      return false;
    }
  return m.broken == cudaSuccess;  // a broken device does nothing any more
}

void run_stream(cudaStream_t s, dice next) {
  auto& m = the_machine();
  for (;;) {
    task* t = nullptr;
    {
      guard held;
      s->filled.wait(held.lock, [&] { return s->closed || !s->queue.empty(); });
      if (s->queue.empty()) break;
      t = s->queue.front().get();  // stays there, and alive, until it is done
    }
    nap(next);
    {
      guard held;
      t->issued.acquire();
      for (const auto& before : t->after) {
        m.changed.wait(held.lock, [&] { return before->done; });
        before->finished.acquire();
      }
    }
    if (t->what) perform(*t->what);
    if (next() % 4 == 0) nap(next);  // done, but nobody knows yet
    t->finished.release();
    guard held;
    t->done = true;
    t->after.clear();
    t->what = nullptr;
    s->queue.pop_front();
    m.progress();
  }
  guard held;
  forget_stream(s);
  m.streams.erase(s);
  m.ended.push_back(std::move(s->worker));
  delete s;
  m.progress();
}

}  // namespace

cudaStream_t make_stream(int device, bool blocking) {
  auto& m = the_machine();
  auto* s = new CUstream_st{++m.made, device, blocking};
  m.join_ended();
  m.streams.insert(s);
  s->worker = std::thread(run_stream, s, dice(m.set.seed * 1000003u + static_cast<unsigned>(s->name)));
  return s;
}

void perform(const job& j) {
  if (!intact(j)) return;
  if (j.work) j.work();
  intact(j);
}

void finish(guard& held, const task_ptr& t) {
  if (!t) return;
  const task_ptr keep = t;
  the_machine().changed.wait(held.lock, [&] { return keep->done; });
  keep->finished.acquire();
}

task_ptr enqueue(cudaStream_t s, job_ptr what, std::vector<task_ptr> after) {
  auto& m = the_machine();
  // The legacy stream waits for every blocking stream of its device, and they for it.
  const auto legacy = m.legacy.find(s->device);
  const bool is_legacy = legacy != m.legacy.end() && legacy->second == s;
  if (is_legacy) {
    for (auto* other : m.streams)
      if (other->device == s->device && other->blocking && other != s && other->last) after.push_back(other->last);
  } else if (s->blocking && legacy != m.legacy.end() && legacy->second->last) {
    after.push_back(legacy->second->last);
  }
  auto t = std::make_shared<task>();
  t->what = std::move(what);
  t->after = std::move(after);
  t->issued.release();
  s->queue.push_back(t);
  s->last = t;
  s->filled.notify_one();
  m.moved_last = std::chrono::steady_clock::now();
  return t;
}

cudaError_t submit(cudaStream_t s, job what, std::vector<task_ptr> after) {
  auto shared = std::make_shared<const job>(std::move(what));
  if (s->in) return add_node(s, std::move(shared));
  enqueue(s, std::move(shared), std::move(after));
  return cudaSuccess;
}

cudaError_t submit_across(const std::vector<cudaStream_t>& streams, CUevent_st& order, job what) {
  auto shared = std::make_shared<const job>(std::move(what));
  if (std::any_of(streams.begin(), streams.end(), [](auto* s) { return s->in != nullptr; }))
    return add_node_across(streams, order, std::move(shared));
  std::vector<task_ptr> after;
  if (order.last) after.push_back(order.last);
  for (auto* s : streams)
    if (s->last && s != streams[0]) after.push_back(s->last);
  order.last = enqueue(streams[0], std::move(shared), std::move(after));
  for (auto* s : streams)
    if (s != streams[0]) enqueue(s, nullptr, {order.last});
  return cudaSuccess;
}

cudaStream_t resolve(cudaStream_t handle, cudaError_t& e) {
  auto& m = the_machine();
  e = cudaSuccess;
  if (handle == cudaStreamPerThread) {
    m.note("the per-thread default stream is not part of this stand-in");
    e = cudaErrorNotSupported;
    return nullptr;
  }
  if (handle == nullptr || handle == cudaStreamLegacy) {
    const int device = this_thread().device;
    e = invalidate_blocking(device);
    if (e != cudaSuccess) return nullptr;
    auto& s = m.legacy[device];
    if (s == nullptr) s = make_stream(device, true);
    return s;
  }
  if (m.streams.count(handle) && !handle->closed) return handle;
  e = cudaErrorInvalidResourceHandle;
  return nullptr;
}

cudaError_t enter(const char* function, manners how) {
  auto& m = the_machine();
  ++m.calls[function];
  this_thread().calling = function;
  if (this_thread().in_host_function) {
    m.note(std::string(function) + " was called by a host function of a stream");
    return cudaErrorNotPermitted;
  }
  if (m.broken != cudaSuccess) return m.broken;
  return how == manners::unsafe ? refuse_unsafe() : cudaSuccess;
}

cudaError_t leave(cudaError_t e) {
  if (e != cudaSuccess) this_thread().last_error = e;
  return e;
}

}  // namespace cuda_on_cpu
