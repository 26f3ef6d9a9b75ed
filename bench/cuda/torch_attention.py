# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PyTorch reaches on the shapes of attend_bench: scaled_dot_product_attention, flash and cuDNN, and FlexAttention.
scripts/gpu-check runs it where PyTorch is installed; it checks nothing. The first argument is the time that it may take."""
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WIDTH, BLOCK = 2048, 512
limit = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 60)


def document_bounds(n):
    bounds, part = [0], n // 4
    while bounds[-1] < n:
        bounds.append(min(bounds[-1] + part + part // 7 % 13, n))
        part = max(part * 2 // 3, n // 64)
    return bounds


def median(work):
    times = []
    for turn in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        if turn > 1:
            times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2] / 1000


def show(name, mask, dim, n, pairs, attend):
    q, k, v, dout = (torch.randn(1, WIDTH // dim, n, dim, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    try:
        forward = median(lambda: attend(q, k, v))
        out = attend(q, k, v)
        backward = median(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    except Exception as e:  # a backend that does not take this
        print(f"{name:10} {mask:16} {dim:4} {n:7}  not here: {str(e).splitlines()[0][:60]}", flush=True)
        return
    print(
        f"{name:10} {mask:16} {dim:4} {n:7} {1e3 * forward:9.3f} ms {4e-12 * pairs * WIDTH / forward:8.1f}"
        f" {1e3 * backward:9.3f} ms {1e-11 * pairs * WIDTH / backward:8.1f}",
        flush=True,
    )


def sdpa(backend, causal):
    def attend(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


def flex(allows, n):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    blocks = create_block_mask(lambda b, h, q, k: allows(q, k), None, None, n, n, _compile=True)
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=blocks)


def masks(n):
    clean, bounds = n // 2, document_bounds(n)
    document = torch.zeros(n, dtype=torch.int32, device="cuda")
    document[torch.tensor(bounds[1:-1], device="cuda", dtype=torch.long)] = 1
    document = document.cumsum(0).int()

    def teacher(q, k):
        qb, kb = (q % clean) // BLOCK, (k % clean) // BLOCK
        by_clean = torch.where(q < clean, kb <= qb, kb < qb)
        return torch.where(k < clean, by_clean, (q >= clean) & (kb == qb))

    blocks = clean // BLOCK
    teacher_pairs = BLOCK * BLOCK * (blocks * (blocks + 1) // 2 + blocks * (blocks - 1) // 2 + blocks)
    lengths = [b - a for a, b in zip(bounds, bounds[1:])]
    return [
        ("teacher forcing", teacher, teacher_pairs),
        ("causal documents", lambda q, k: (document[q] == document[k]) & (k <= q), sum(x * (x + 1) // 2 for x in lengths)),
    ]


print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}: TFLOP/s forward and backward")
for n in (4096, 16384):
    for dim in (64, 128):
        for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
            if time.monotonic() < limit:
                show(name, "full", dim, n, n * n, sdpa(backend, False))
                show(name, "causal", dim, n, n * (n + 1) / 2, sdpa(backend, True))
for n in (4096, 16384):
    for mask, allows, pairs in masks(n):
        if time.monotonic() < limit:
            try:
                show("flex", mask, 128, n, pairs, flex(allows, n))
            except Exception as e:
                print(f"flex       {mask}: not here: {str(e).splitlines()[0][:60]}")
