#!/usr/bin/env python3
"""A Mamba-2 of random numbers with the sizes of mamba2-370m, as a GGUF that ttr and llama.cpp read.

usage: write_mamba_2.py OUT.gguf [F32 | F16 | BF16 | Q8_0] [--small]
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../scripts/checkpoints"))
from files import write_gguf  # noqa: E402


def main():
    path, kind = sys.argv[1], (sys.argv[2:] + ["F32"])[0]
    small = "--small" in sys.argv
    D, L, V, N = (64, 2, 256, 32) if small else (1024, 48, 50288, 128)
    inner, head = 2 * D, 32 if small else 64
    H, conv = inner // head, inner + 2 * N
    random = np.random.default_rng(1)
    keys = {"general.architecture": "mamba2", "mamba2.block_count": L, "mamba2.embedding_length": D,
            "mamba2.context_length": 1 << 20, "mamba2.vocab_size": V, "mamba2.feed_forward_length": 0,
            "mamba2.attention.head_count": 0, "mamba2.ssm.conv_kernel": 4, "mamba2.ssm.inner_size": inner,
            "mamba2.ssm.state_size": N, "mamba2.ssm.time_step_rank": H, "mamba2.ssm.group_count": 1,
            "mamba2.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "no_vocab"}
    types, tensors = {}, {}

    def matrix(name, out, columns):
        tensors[name] = random.standard_normal((out, columns), dtype=np.float32) / np.float32(columns) ** 0.5
        types[name] = kind

    def numbers(name, shape, scale, mean=0.0):
        tensors[name] = (mean + scale * random.standard_normal(shape)).astype(np.float32)

    matrix("token_embd.weight", V, D)
    numbers("output_norm.weight", (D,), 0.05, 1)
    for i in range(L):
        b = f"blk.{i}."
        numbers(b + "attn_norm.weight", (D,), 0.05, 1)
        matrix(b + "ssm_in.weight", inner + conv + H, D)
        numbers(b + "ssm_conv1d.weight", (conv, 4), 0.5)
        numbers(b + "ssm_conv1d.bias", (conv,), 0.1)
        numbers(b + "ssm_dt.bias", (H,), 0.5, -3)
        tensors[b + "ssm_a"] = -np.exp(random.standard_normal((H, 1)) * 0.5 + 1).astype(np.float32)
        numbers(b + "ssm_d", (H, 1), 0.1, 1)
        numbers(b + "ssm_norm.weight", (1, inner), 0.05, 1)
        matrix(b + "ssm_out.weight", D, inner)
    write_gguf(path, keys, tensors, types)


main()
