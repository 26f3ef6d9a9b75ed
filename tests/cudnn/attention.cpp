// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuDNN's attention on rectangles against the dense definition, and its speed. Without a GPU it says so and has nothing
// to complain of.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include <seqpar/cuda/cudnn.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <tests/support/dense.hpp>
#include <tests/support/recipe.hpp>
#include <tests/support/tolerance.hpp>

namespace {

using namespace seqpar;
using namespace seqpar::test;
constexpr std::int32_t open_end = rectangle::open;

struct freed {
  void operator()(void* p) const { cudaFree(p); }
};
template <class T>
using on_device = std::unique_ptr<T, freed>;

/// Memory that host and device see, full of NaN.
template <class T>
on_device<T> array(index_t count) {
  void* p = nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (cudaMallocManaged(&p, bytes, cudaMemAttachGlobal) != cudaSuccess) return nullptr;
  std::memset(p, 0xff, bytes);
  return on_device<T>(static_cast<T*>(p));
}
template <class T>
on_device<T> array(const std::vector<T>& values) {
  on_device<T> p = array<T>(static_cast<index_t>(values.size()));
  if (p) std::copy(values.begin(), values.end(), p.get());
  return p;
}

struct problem {
  const char* name;
  dense_shape n;
  std::int32_t left, right;
  bool may_refuse;
};

/// How a problem ended.
enum class outcome { right, wrong, refused };

/// A call given to the stream as a captured graph.
template <class T>
status replay(const cuda::cudnn_sdpa& sdpa, const cuda::sdpa_call<T>& call, const cuda::on_stream& exec) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const auto said = [](cudaError_t e) { return cuda::status_of(e, "test: capturing failed"); };
  if (status s = said(cudaStreamBeginCapture(exec.compute, cudaStreamCaptureModeThreadLocal)); !s.ok()) return s;
  status s = sdpa.run(call, exec);
  if (const status end = said(cudaStreamEndCapture(exec.compute, &graph)); s.ok()) s = end;
  if (s.ok()) s = said(cudaGraphInstantiate(&executable, graph, 0));
  if (s.ok()) s = said(cudaGraphLaunch(executable, exec.compute));
  if (s.ok()) s = said(cudaStreamSynchronize(exec.compute));
  if (executable) cudaGraphExecDestroy(executable);
  if (graph) cudaGraphDestroy(graph);
  return s;
}

template <class T>
outcome check(cuda::cudnn_sdpa& sdpa, const problem& p, const cuda::on_stream& exec) {
  const dense_shape& n = p.n;
  const auto q = filled<T>(tag::q, n.q_size()), k = filled<T>(tag::k, n.k_size()), v = filled<T>(tag::v, n.v_size());
  const auto dq = array(q), dk = array(k), dv = array(v), out = array<T>(n.out_size());
  const auto lse = array<float>(n.lse_size());
  const auto workspace = array<std::byte>(cuda::cudnn_sdpa::workspace_bytes);
  if (!dq || !dk || !dv || !out || !lse || !workspace) return std::printf("no memory\n"), outcome::wrong;
  const cuda::sdpa_call<T> call{dense_view<const T>(dq.get(), {n.batch, n.q_tokens, n.heads, n.qk_dim}),
                                dense_view<const T>(dk.get(), {n.batch, n.k_tokens, n.kv_heads, n.qk_dim}),
                                dense_view<const T>(dv.get(), {n.batch, n.k_tokens, n.kv_heads, n.v_dim}),
                                dense_view(out.get(), {n.batch, n.q_tokens, n.heads, n.v_dim}),
                                lse.get(),
                                1 / std::sqrt(static_cast<float>(n.qk_dim)),
                                p.left,
                                p.right,
                                {workspace.get(), cuda::cudnn_sdpa::workspace_bytes}};
  if (sdpa.ready(call, exec)) return std::printf("ready for what it never saw\n"), outcome::wrong;
  sdpa.prepare(call, exec);
  if (!sdpa.ready(call, exec)) return outcome::refused;
  std::vector<T> first;
  for (int time = 0; time < 2; ++time) {
    const status said = time == 0 ? replay(sdpa, call, exec) : sdpa.run(call, exec);  // the first run is captured
    if (!said.ok() || cudaStreamSynchronize(exec.compute) != cudaSuccess)
      return std::printf("%s\n", said.message().c_str()), outcome::wrong;
    const std::vector<T> now(out.get(), out.get() + n.out_size());
    if (time > 0 && std::memcmp(now.data(), first.data(), now.size() * sizeof(T)) != 0)
      return std::printf("two runs differ\n"), outcome::wrong;
    first = now;
  }
  const dense_result want =
      dense_attention(n, {static_cast<double>(call.scale)}, q, k, v, std::vector<T>(), {}, [&](index_t i, index_t j) {
        return (p.left == open_end || i - j <= p.left) && (p.right == open_end || j - i <= p.right);
      });
  verdict worst;  // out is rounded once; P, rounded to T, has weights that sum to 1, and |v| ≤ 1
  for (std::size_t i = 0; i < first.size(); ++i)
    worst.see(static_cast<index_t>(i), static_cast<double>(first[i]), want.out[i],
              bound<T>(want.out[i], want.out_magnitude[i]) + roundoff<T> + smallest<T>);
  const verdict of_lse = compare(std::vector<float>(lse.get(), lse.get() + n.lse_size()), want.lse, want.lse_magnitude);
  if (worst && of_lse) return outcome::right;
  std::printf("out: ratio %g (element %lld: got %g, want %g); lse: ratio %g\n", worst.ratio,
              static_cast<long long>(worst.index), worst.got, worst.want, of_lse.ratio);
  return outcome::wrong;
}

/// Forward only, 4·q·k·dim operations a head, half of them where causal.
void time_of(cuda::cudnn_sdpa& sdpa, index_t tokens, std::int32_t right, const cuda::on_stream& exec) {
  const index_t heads = 16, dim = 128, size = tokens * heads * dim;
  const auto q = array(filled<bfloat16>(tag::q, size)), out = array<bfloat16>(size);
  const auto lse = array<float>(tokens * heads);
  const auto workspace = array<std::byte>(cuda::cudnn_sdpa::workspace_bytes);
  const rows_view<const bfloat16> rows = dense_view<const bfloat16>(q.get(), {1, tokens, heads, dim});
  const cuda::sdpa_call<bfloat16> call{
      rows,   rows,     rows,  dense_view(out.get(), {1, tokens, heads, dim}),      lse.get(),
      0.088f, open_end, right, {workspace.get(), cuda::cudnn_sdpa::workspace_bytes}};
  sdpa.prepare(call, exec);
  if (!sdpa.ready(call, exec)) return;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> ms(12);
  for (float& m : ms) {
    cudaEventRecord(begin, exec.compute);
    (void)sdpa.run(call, exec);
    cudaEventRecord(end, exec.compute);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&m, begin, end);
  }
  std::sort(ms.begin(), ms.end());
  const double work = 4.0 * static_cast<double>(size) * static_cast<double>(tokens) / (right == 0 ? 2 : 1);
  std::printf("cuDNN forward, %s, %lld tokens, 16 heads, D = 128: %.3f ms, %.0f TFLOP/s\n",
              right == 0 ? "causal" : "full", static_cast<long long>(tokens), static_cast<double>(ms[6]),
              work / static_cast<double>(ms[6]) / 1e9);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

/// The whole kernel, compiled; its merging runs in tests/cuda_on_cpu.
struct no_launcher : cuda::on_stream {
  template <class Body>
  cudaError_t launch(index_t, const typename Body::params&) const {
    return cudaErrorNotSupported;
  }
};
using kernel = cuda::cudnn_attention<host_reference<float>>;
static_assert(block_kernel<kernel>);
bool without_rectangles_it_is_the_fallbacks() {
  const kv_segment<bfloat16> segment{};
  forward_call<bfloat16, bfloat16> call{};
  call.segments = {&segment, 1};
  const std::vector<rectangle>* none = nullptr;
  return !kernel{}.forward_by(
      call, [&](std::size_t) { return none; }, no_launcher{});
}

/// Each shape is asked once, by prepare alone; plans move along with their owner, and a copy has none. Where there is
/// no device, all are refused.
bool asks_once_and_keeps_the_answer() {
  const auto rows = dense_view<const bfloat16>(nullptr, {1, 64, 2, 64});
  cuda::sdpa_call<bfloat16> call{rows,     rows, rows, dense_view<bfloat16>(nullptr, rows.shape), nullptr, 1,
                                 open_end, 0,    {}};
  cuda::cudnn_sdpa sdpa;
  const bool ready = sdpa.ready(call, cuda::on_stream{});
  for (const std::int32_t right : {0, 0, 3, 0}) {
    call.right = right;
    sdpa.prepare(call, cuda::on_stream{});
  }
  const cuda::cudnn_sdpa copy = sdpa, moved = std::move(sdpa);
  return !ready && moved.asked() == 2 && sdpa.asked() == 0 && copy.asked() == 0;
}

}  // namespace

int main() {
  if (!without_rectangles_it_is_the_fallbacks()) return std::printf("rectangles where there are none\n"), 1;
  if (!asks_once_and_keeps_the_answer()) return std::printf("cuDNN is not asked once for each shape\n"), 1;
  int devices = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&devices); e != cudaSuccess || devices == 0) {
    std::printf("cuDNN's attention needs a GPU, and there is none here (%s); nothing was checked.\n",
                cudaGetErrorString(e));
    return 0;
  }
  cuda::on_stream exec;
  if (cudaStreamCreate(&exec.compute) != cudaSuccess) return std::printf("no stream\n"), 1;
  exec.exchange = exec.compute;
  const problem problems[] = {{"full", {2, 200, 328, 4, 2, 64, 64}, open_end, open_end, false},
                              {"full, D = 128", {1, 256, 512, 4, 4, 128, 128}, open_end, open_end, false},
                              {"causal", {2, 256, 256, 4, 1, 128, 128}, open_end, 0, false},
                              {"causal, ragged", {1, 77, 77, 2, 2, 64, 64}, open_end, 0, false},
                              {"causal, keys before", {1, 128, 300, 4, 2, 64, 64}, open_end, 172, true},
                              {"causal, queries behind", {1, 300, 128, 4, 2, 64, 64}, open_end, 0, true},
                              {"window", {1, 512, 512, 4, 2, 64, 64}, 100, 0, true},
                              {"window, both ways", {1, 300, 300, 2, 2, 128, 128}, 64, 33, true},
                              {"left only", {1, 200, 300, 2, 2, 64, 64}, 150, open_end, true}};
  int wrong = 0;
  cuda::cudnn_sdpa sdpa;
  for (const problem& p : problems)
    for (const bool b : {true, false}) {
      const outcome o = b ? check<bfloat16>(sdpa, p, exec) : check<float16>(sdpa, p, exec);
      std::printf("%-24s %s: %s%s\n", p.name, b ? "bf16" : "fp16",
                  o == outcome::right   ? "right"
                  : o == outcome::wrong ? "WRONG"
                                        : "refused, ",
                  o == outcome::refused ? sdpa.refused().c_str() : "");
      wrong += o == outcome::wrong || (o == outcome::refused && !p.may_refuse);
    }
  for (const index_t tokens : {4096, 16384})
    for (const std::int32_t right : {open_end, 0}) time_of(sdpa, tokens, right, exec);
  cudaStreamDestroy(exec.compute);
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
