"""Small Mamba and Mamba-2 checkpoints with random weights and their plain evaluation."""
import numpy as np

from arithmetic import Convolution, rms_norm, silu, softplus
from rwkv import Draw

V, D, L = 41, 20, 2


def evaluate_with(mixer):
    def evaluate(tensors, tokens, **options):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        memory = [{} for _ in range(L)]
        out = []
        for token in tokens:
            x = w["backbone.embedding.weight"][token]
            for i in range(L):
                at = f"backbone.layers.{i}."
                x = x + mixer(w, at + "mixer.", rms_norm(x, w[at + "norm.weight"], 1e-5), memory[i], **options)
            head = w.get("lm_head.weight", w["backbone.embedding.weight"])
            out.append(head @ rms_norm(x, w["backbone.norm_f.weight"], 1e-5))
        return np.array(out)
    return evaluate


def mamba_1(seed=11, tied=True):
    di, N, R = 2 * D, 5, 3
    d = Draw(seed)
    d.matrix("backbone.embedding.weight", V, D, scale=0.5)
    for i in range(L):
        d.norm(f"backbone.layers.{i}.norm", D, bias=False)
        at = f"backbone.layers.{i}.mixer."
        d.matrix(at + "in_proj.weight", 2 * di, D)
        d.matrix(at + "conv1d.weight", di, 1, 4, scale=0.4)
        d.uniform(at + "conv1d.bias", -0.3, 0.3, di)
        d.matrix(at + "x_proj.weight", R + 2 * N, di)
        d.matrix(at + "dt_proj.weight", di, R)
        d.uniform(at + "dt_proj.bias", -2, 0, di)
        d.uniform(at + "A_log", -1, 2, di, N)
        d.uniform(at + "D", 0.5, 1.5, di)
        d.matrix(at + "out_proj.weight", D, di)
    d.norm("backbone.norm_f", D, bias=False)
    if not tied:
        d.matrix("lm_head.weight", V, D)

    def mixer(w, at, x, memory):
        both = w[at + "in_proj.weight"] @ x
        u, z = both[:di], both[di:]
        conv = memory.setdefault("conv", Convolution(w[at + "conv1d.weight"][:, 0], w[at + "conv1d.bias"]))
        u = silu(conv(u))
        p = w[at + "x_proj.weight"] @ u
        dt = softplus(w[at + "dt_proj.weight"] @ p[:R] + w[at + "dt_proj.bias"])
        B, C = p[R:R + N], p[R + N:]
        h = memory.setdefault("h", np.zeros((di, N)))
        h[:] = np.exp(dt[:, None] * -np.exp(w[at + "A_log"])) * h + (dt * u)[:, None] * B
        return w[at + "out_proj.weight"] @ ((h @ C + w[at + "D"] * u) * silu(z))
    return d.tensors, evaluate_with(mixer)


def hugging_face(tensors):
    return {name.replace("backbone.embedding.", "backbone.embeddings."): x for name, x in tensors.items()}


def gguf_1(tensors):
    keys = {"general.architecture": "mamba", "mamba.block_count": L, "mamba.embedding_length": D,
            "mamba.ssm.conv_kernel": 4, "mamba.ssm.inner_size": 2 * D, "mamba.ssm.state_size": 5,
            "mamba.ssm.time_step_rank": 3, "mamba.ssm.dt_b_c_rms": False,
            "mamba.attention.layer_norm_rms_epsilon": 1e-5}
    t = {"token_embd.weight": tensors["backbone.embedding.weight"], "output_norm.weight": tensors["backbone.norm_f.weight"]}
    for i in range(L):
        a, b = f"backbone.layers.{i}.", f"blk.{i}."
        t[b + "attn_norm.weight"] = tensors[a + "norm.weight"]
        m = a + "mixer."
        t[b + "ssm_in.weight"] = tensors[m + "in_proj.weight"]
        t[b + "ssm_conv1d.weight"] = tensors[m + "conv1d.weight"][:, 0].copy()
        t[b + "ssm_conv1d.bias"] = tensors[m + "conv1d.bias"]
        t[b + "ssm_x.weight"] = tensors[m + "x_proj.weight"]
        t[b + "ssm_dt.weight"] = tensors[m + "dt_proj.weight"]
        t[b + "ssm_dt.bias"] = tensors[m + "dt_proj.bias"]
        t[b + "ssm_a"] = -np.exp(tensors[m + "A_log"].astype(np.float64)).astype(np.float32)
        t[b + "ssm_d"] = tensors[m + "D"]
        t[b + "ssm_out.weight"] = tensors[m + "out_proj.weight"]
    return keys, t


def mamba_2(seed=12, groups=2):
    P, H, N = 5, 8, 6
    di, G = P * H, groups
    conv = di + 2 * G * N
    d = Draw(seed)
    d.matrix("backbone.embedding.weight", V, D, scale=0.5)
    for i in range(L):
        d.norm(f"backbone.layers.{i}.norm", D, bias=False)
        at = f"backbone.layers.{i}.mixer."
        d.matrix(at + "in_proj.weight", di + conv + H, D)
        d.matrix(at + "conv1d.weight", conv, 1, 4, scale=0.4)
        d.uniform(at + "conv1d.bias", -0.3, 0.3, conv)
        d.uniform(at + "dt_bias", -2, 0, H)
        d.uniform(at + "A_log", -1, 2, H)
        d.uniform(at + "D", 0.5, 1.5, H)
        d.norm(at + "norm", di, bias=False)
        d.matrix(at + "out_proj.weight", D, di)
    d.norm("backbone.norm_f", D, bias=False)
    d.matrix("lm_head.weight", V, D)

    def mixer(w, at, x, memory, norm_groups=G):
        all_ = w[at + "in_proj.weight"] @ x
        z, xbc, dt = all_[:di], all_[di:di + conv], softplus(all_[di + conv:] + w[at + "dt_bias"])
        convolve = memory.setdefault("conv", Convolution(w[at + "conv1d.weight"][:, 0], w[at + "conv1d.bias"]))
        xbc = silu(convolve(xbc))
        u = xbc[:di].reshape(H, P)
        B, C = xbc[di:di + G * N].reshape(G, N), xbc[di + G * N:].reshape(G, N)
        S = memory.setdefault("S", np.zeros((H, P, N)))
        y = np.zeros((H, P))
        for h in range(H):
            g = h // (H // G)
            S[h] = np.exp(-dt[h] * np.exp(w[at + "A_log"][h])) * S[h] + dt[h] * np.outer(u[h], B[g])
            y[h] = S[h] @ C[g] + w[at + "D"][h] * u[h]
        gated = (y.reshape(-1) * silu(z)).reshape(norm_groups, -1)
        normed = gated / np.sqrt((gated ** 2).mean(1, keepdims=True) + 1e-5)
        return w[at + "out_proj.weight"] @ (normed.reshape(-1) * w[at + "norm.weight"])
    config = {"model_type": "mamba2", "hidden_size": D, "num_heads": H, "head_dim": P, "state_size": N, "n_groups": G,
              "num_hidden_layers": L, "vocab_size": V, "norm_eps": 1e-5}
    return d.tensors, evaluate_with(mixer), config


def gguf_2(tensors, groups):
    keys = {"general.architecture": "mamba2", "mamba2.block_count": L, "mamba2.embedding_length": D,
            "mamba2.ssm.conv_kernel": 4, "mamba2.ssm.inner_size": 40, "mamba2.ssm.state_size": 6,
            "mamba2.ssm.time_step_rank": 8, "mamba2.ssm.group_count": groups,
            "mamba2.attention.layer_norm_rms_epsilon": 1e-5}
    t = {"token_embd.weight": tensors["backbone.embedding.weight"], "output_norm.weight": tensors["backbone.norm_f.weight"],
         "output.weight": tensors["lm_head.weight"]}
    for i in range(L):
        a, b = f"backbone.layers.{i}.", f"blk.{i}."
        t[b + "attn_norm.weight"] = tensors[a + "norm.weight"]
        m = a + "mixer."
        t[b + "ssm_in.weight"] = tensors[m + "in_proj.weight"]
        t[b + "ssm_conv1d.weight"] = tensors[m + "conv1d.weight"][:, 0].copy()
        t[b + "ssm_conv1d.bias"] = tensors[m + "conv1d.bias"]
        t[b + "ssm_dt.bias"] = tensors[m + "dt_bias"]
        t[b + "ssm_a"] = -np.exp(tensors[m + "A_log"].astype(np.float64)).astype(np.float32).reshape(-1, 1)
        t[b + "ssm_d"] = tensors[m + "D"].reshape(-1, 1)
        t[b + "ssm_norm.weight"] = tensors[m + "norm.weight"].reshape(groups, -1)
        t[b + "ssm_out.weight"] = tensors[m + "out_proj.weight"]
    return keys, t
