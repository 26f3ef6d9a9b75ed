// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Capture and graphs. What one stream captured runs in its order; each captured stream replays in a thread of its own,
// so that whatever the edges leave open happens in another order each time.
#include <algorithm>

#include "tests/cuda_on_cpu/machine.hpp"

struct CUgraphNode_st {
  cuda_on_cpu::job_ptr what;
  std::vector<cudaGraphNode_t> after;
  int index;
  int stream;  // name
};

namespace cuda_on_cpu {

struct graph_body {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each follows all of its `after`
};

struct capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  std::shared_ptr<graph_body> body;
  std::set<cudaStream_t> streams;
  bool under_way = true;
  bool invalid = false;
};

}  // namespace cuda_on_cpu

struct CUgraph_st {
  std::shared_ptr<cuda_on_cpu::graph_body> body;
};

struct CUgraphExec_st {
  std::shared_ptr<cuda_on_cpu::graph_body> body;
  cuda_on_cpu::task_ptr last;
  std::uint64_t seed;
};

namespace cuda_on_cpu {

namespace {

void add_to(std::vector<cudaGraphNode_t>& tail, const std::vector<cudaGraphNode_t>& more) {
  for (auto* n : more)
    if (std::find(tail.begin(), tail.end(), n) == tail.end()) tail.push_back(n);
}

// Events that were recorded in it may hold it for long; what it captured belongs to the graph, if there is one.
std::shared_ptr<graph_body> end(capture& c) {
  for (auto* s : c.streams) {
    s->in = nullptr;
    s->tail.clear();
  }
  c.streams.clear();
  c.under_way = false;
  return std::move(c.body);
}

bool all_joined(const capture& c) {
  std::vector<bool> seen(c.body->nodes.size());
  auto open = c.origin->tail;
  while (!open.empty()) {
    const auto* n = open.back();
    open.pop_back();
    const auto i = static_cast<std::size_t>(n->index);
    if (seen[i]) continue;
    seen[i] = true;
    open.insert(open.end(), n->after.begin(), n->after.end());
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

void replay(const graph_body& body, std::uint64_t seed) {
  struct state {
    bool done = false;
    edge finished;
  };
  std::vector<state> states(body.nodes.size());
  std::map<int, std::vector<const CUgraphNode_st*>> lanes;
  for (const auto& n : body.nodes) lanes[n->stream].push_back(n.get());
  auto run = [&](const std::vector<const CUgraphNode_st*>& lane, dice next) {
    auto& m = the_machine();
    for (const auto* n : lane) {
      nap(next);
      {
        guard held;
        for (auto* before : n->after) {
          auto& b = states[static_cast<std::size_t>(before->index)];
          m.changed.wait(held.lock, [&] { return b.done; });
          b.finished.acquire();
        }
      }
      perform(*n->what);
      auto& mine = states[static_cast<std::size_t>(n->index)];
      mine.finished.release();
      guard held;
      mine.done = true;
      m.progress();
    }
  };
  std::vector<std::thread> threads;
  for (const auto& [stream, lane] : lanes)
    threads.emplace_back(run, std::cref(lane), dice(seed + static_cast<unsigned>(stream)));
  for (auto& t : threads) t.join();
}

}  // namespace

cudaError_t add_node(cudaStream_t s, job_ptr what) {
  auto& c = *s->in;
  if (c.invalid) return cudaErrorStreamCaptureInvalidated;
  const int index = static_cast<int>(c.body->nodes.size());
  c.body->nodes.push_back(
      std::unique_ptr<CUgraphNode_st>(new CUgraphNode_st{std::move(what), s->tail, index, s->name}));
  s->tail = {c.body->nodes.back().get()};
  return cudaSuccess;
}

cudaError_t add_node_across(const std::vector<cudaStream_t>& streams, CUevent_st& order, job_ptr what) {
  auto* s = streams[0];
  for (auto* other : streams)
    if (other->in != s->in) return invalidate(*(s->in ? s->in : other->in), cudaErrorStreamCaptureIsolation);
  if (order.in == s->in) add_to(s->tail, order.tail);
  for (auto* other : streams) add_to(s->tail, other->tail);
  if (const auto e = add_node(s, std::move(what)); e != cudaSuccess) return e;
  for (auto* other : streams) other->tail = s->tail;
  order.in = s->in;
  order.tail = s->tail;
  return cudaSuccess;
}

cudaError_t invalidate(capture& c, cudaError_t why) {
  if (!c.invalid)
    the_machine().note(std::string(this_thread().calling) + " ended a capture: " + cudaGetErrorString(why));
  c.invalid = true;
  return why;
}

cudaError_t join_or_refuse(cudaStream_t s, cudaEvent_t event) {
  const auto c = event->in;
  if (s->in && s->in != c) {
    if (!c || !c->under_way) return invalidate(*s->in, cudaErrorStreamCaptureIsolation);
    invalidate(*s->in, cudaErrorStreamCaptureMerge);
    return invalidate(*c, cudaErrorStreamCaptureMerge);
  }
  if (!c->under_way) return cudaErrorCapturedEvent;
  if (c->invalid) return cudaErrorStreamCaptureInvalidated;
  const auto legacy = the_machine().legacy.find(s->device);
  if (legacy != the_machine().legacy.end() && legacy->second == s)
    return invalidate(*c, cudaErrorStreamCaptureImplicit);
  s->in = c;
  c->streams.insert(s);
  add_to(s->tail, event->tail);
  return cudaSuccess;
}

cudaError_t refuse_unsafe() {
  const auto mode = this_thread().mode;
  cudaError_t e = cudaSuccess;
  for (const auto& c : the_machine().captures) {
    const bool mine = c->thread == std::this_thread::get_id();
    const bool minds = mine ? c->mode != cudaStreamCaptureModeRelaxed && mode != cudaStreamCaptureModeRelaxed
                            : c->mode == cudaStreamCaptureModeGlobal && mode == cudaStreamCaptureModeGlobal;
    if (minds) e = invalidate(*c, cudaErrorStreamCaptureUnsupported);
  }
  return e;
}

cudaError_t invalidate_blocking(int device) {
  for (const auto& c : the_machine().captures)
    for (auto* s : c->streams)
      if (s->blocking && s->device == device) return invalidate(*c, cudaErrorStreamCaptureImplicit);
  return cudaSuccess;
}

void forget_stream(cudaStream_t s) {
  if (!s->in) return;
  const auto c = s->in;
  c->streams.erase(s);
  if (c->origin != s) return;
  end(*c);
  the_machine().captures.erase(c);
}

void forget_graphs() {
  auto& m = the_machine();
  for (const auto& c : m.captures) end(*c);
  m.captures.clear();
  for (auto* g : m.graphs) delete g;
  for (auto* g : m.graph_execs) delete g;
  m.graphs.clear();
  m.graph_execs.clear();
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", manners::harmless, [&](guard&) {
    auto& m = the_machine();
    if (s == nullptr || s == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
    if (!m.streams.count(s) || s->closed) return cudaErrorInvalidResourceHandle;
    if (s->in) return invalidate(*s->in, cudaErrorStreamCaptureUnsupported);
    const auto c = std::make_shared<capture>(capture{static_cast<unsigned long long>(++m.made),
                                                     mode,
                                                     std::this_thread::get_id(),
                                                     s,
                                                     std::make_shared<graph_body>(),
                                                     {s}});
    m.captures.insert(c);
    s->in = c;
    s->tail.clear();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* out) {
  return api("cudaStreamEndCapture", manners::harmless, [&](guard&) {
    auto& m = the_machine();
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = nullptr;
    if (!m.streams.count(s) || s->closed) return cudaErrorInvalidResourceHandle;
    const auto c = s->in;
    if (!c) return cudaErrorStreamCaptureUnmatched;
    if (c->origin != s) return invalidate(*c, cudaErrorStreamCaptureUnmatched);
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
      return invalidate(*c, cudaErrorStreamCaptureWrongThread);
    auto e = c->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    if (e == cudaSuccess && !all_joined(*c)) e = invalidate(*c, cudaErrorStreamCaptureUnjoined);
    auto body = end(*c);
    m.captures.erase(c);
    if (e != cudaSuccess) return e;
    *out = new CUgraph_st{std::move(body)};
    m.graphs.insert(*out);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* out) {
  return api("cudaStreamIsCapturing", manners::harmless, [&](guard&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = cudaStreamCaptureStatusNone;
    cudaError_t e = cudaSuccess;
    s = resolve(s, e);
    if (e == cudaSuccess && s->in)
      *out = s->in->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return e;
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id,
                                               cudaGraph_t* graph, const cudaGraphNode_t** after,
                                               const cudaGraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
#else
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id,
                                               cudaGraph_t* graph, const cudaGraphNode_t** after, size_t* count) {
#endif
  return api("cudaStreamGetCaptureInfo", manners::harmless, [&](guard&) {
    if (status == nullptr) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    cudaError_t e = cudaSuccess;
    s = resolve(s, e);
    if (e != cudaSuccess || !s->in) return e;
    *status = s->in->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    if (id != nullptr) *id = s->in->id;
    if (after != nullptr) *after = s->tail.data();
    if (count != nullptr) *count = s->tail.size();
    if (graph != nullptr) {
      the_machine().note("the graph of a capture under way is not part of this stand-in");
      return cudaErrorNotSupported;
    }
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", manners::harmless, [&](guard&) {
    if (mode == nullptr) return cudaErrorInvalidValue;
    std::swap(*mode, this_thread().mode);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return api("cudaGraphInstantiate", manners::harmless, [&](guard&) {
    auto& m = the_machine();
    if (out == nullptr || flags != 0 || !m.graphs.count(graph)) return cudaErrorInvalidValue;
    *out = new CUgraphExec_st{graph->body, {}, m.set.seed * 7919u + static_cast<unsigned>(++m.made)};
    m.graph_execs.insert(*out);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return api("cudaGraphLaunch", manners::harmless, [&](guard&) {
    auto& m = the_machine();
    if (!m.graph_execs.count(exec)) return cudaErrorInvalidValue;
    cudaError_t e = cudaSuccess;
    auto* s = resolve(handle, e);
    if (s == nullptr) return e;
    if (s->in) {
      m.note("a graph inside of a capture is not part of this stand-in");
      return cudaErrorNotSupported;
    }
    auto work = [body = exec->body, seed = exec->seed += 64] { replay(*body, seed); };
    std::vector<task_ptr> after;
    if (exec->last) after.push_back(exec->last);
    exec->last = enqueue(s, std::make_shared<const job>(job{"a graph", std::move(work), {}}), std::move(after));
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec) {  // a launch under way goes on
  return api("cudaGraphExecDestroy", manners::harmless, [&](guard&) {
    if (the_machine().graph_execs.erase(exec) == 0) return cudaErrorInvalidValue;
    delete exec;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", manners::harmless, [&](guard&) {
    if (the_machine().graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

}  // extern "C"
