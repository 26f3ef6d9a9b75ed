# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's scaled_dot_product_attention on one thread of the CPU beside our host kernel, fp32, the same shapes, in turns.

    python3 -m venv peers && peers/bin/pip install torch
    cmake --workflow --preset bench
    peers/bin/python bench/peers/torch_attention.py build/bench/bench/kernel_bench [--rounds N] [--tokens N…]

Both by the processor time of the thread, the best of all rounds; 4·pairs·D operations forward, 10·pairs·D backward."""
import argparse
import json
import subprocess
import time

import torch
import torch.nn.functional as F


def best_of(work, least):
    best, until = float("inf"), time.monotonic() + least
    while True:
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
        if time.monotonic() > until:
            return best


def theirs(tokens, dim, causal, least):
    q, k, v, dout = (torch.randn(1, 1, tokens, dim) for _ in range(4))
    with torch.no_grad():
        forward = best_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal), least)
    for x in (q, k, v):
        x.requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    # The backward graph runs on this very thread: there is no device to switch to.
    backward = best_of(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True), least)
    work = (tokens * (tokens + 1) / 2 if causal else tokens * tokens) * dim
    return {"forward": 4 * work / forward / 1e9, "backward": 10 * work / backward / 1e9}


def ours(program, tokens, dim, causal, least):
    name = f"fast/(forward|backward)/float/tokens:{tokens}/heads:1/dim:{dim}/causal:{int(causal)}"
    run = subprocess.run([program, f"--benchmark_filter={name}/", f"--benchmark_min_time={least}",
                          "--benchmark_format=json"], capture_output=True, text=True, check=True)
    return {b["name"].split("/")[1]: (b["GFLOP/s"], b["peak_GFLOP/s"]) for b in json.loads(run.stdout)["benchmarks"]}


options = argparse.ArgumentParser()
options.add_argument("program")
options.add_argument("--rounds", type=int, default=3)
options.add_argument("--seconds", type=float, default=0.3, help="at least, per measurement")
options.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384])
options = options.parse_args()
torch.set_num_threads(1)

print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, one thread; GFLOP/s")
print(f"{'':34}{'seqpar':>9}{'of peak':>9}{'PyTorch':>9}{'ratio':>7}")
for tokens in options.tokens:
    for dim in (64, 128):
        for causal in (False, True):
            us, peer, peak = {}, {}, 0
            for _ in range(options.rounds):
                for which, (rate, top) in ours(options.program, tokens, dim, causal, options.seconds).items():
                    us[which], peak = max(rate, us.get(which, 0)), max(peak, top)
                for which, rate in theirs(tokens, dim, causal, options.seconds).items():
                    peer[which] = max(rate, peer.get(which, 0))
            for which in ("forward", "backward"):
                shape = f"{tokens} tokens, D {dim}, {'causal' if causal else 'full'}, {which}"
                print(f"{shape:34.34}{us[which]:9.1f}{100 * us[which] / peak:8.1f}%{peer[which]:9.1f}"
                      f"{us[which] / peer[which]:7.2f}", flush=True)
