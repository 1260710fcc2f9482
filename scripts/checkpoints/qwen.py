"""A small dense model in the manner of Qwen3-Next and Qwen3.5 with random weights and its plain evaluation."""
import numpy as np

from arithmetic import Attention, Convolution, heads_norm, rms_norm, rotate, sigmoid, silu, softplus, unit
from rwkv import Draw

V, D, L, I = 47, 24, 4, 40
NK, NV, DK, DV = 2, 4, 6, 5
H, G, HD, TURNED, BASE = 4, 2, 8, 4, 1000.0
EPS = 1e-6
REP = NV // NK


def model(seed=31):
    """Tensors with the names of Qwen3.5; Qwen3-Next and GGUF are made of them."""
    d = Draw(seed)
    zero = lambda name, width: d.uniform(name, -0.3, 0.3, width)  # norms are 1 + w
    d.matrix("model.embed_tokens.weight", V, D, scale=0.5)
    for i in range(L):
        at = f"model.layers.{i}."
        zero(at + "input_layernorm.weight", D)
        zero(at + "post_attention_layernorm.weight", D)
        d.matrix(at + "mlp.gate_proj.weight", I, D)
        d.matrix(at + "mlp.up_proj.weight", I, D)
        d.matrix(at + "mlp.down_proj.weight", D, I)
        if (i + 1) % 4 == 0:
            a = at + "self_attn."
            d.matrix(a + "q_proj.weight", 2 * H * HD, D)
            d.matrix(a + "k_proj.weight", G * HD, D)
            d.matrix(a + "v_proj.weight", G * HD, D)
            d.matrix(a + "o_proj.weight", D, H * HD)
            zero(a + "q_norm.weight", HD)
            zero(a + "k_norm.weight", HD)
        else:
            a = at + "linear_attn."
            d.matrix(a + "in_proj_qkv.weight", 2 * NK * DK + NV * DV, D)
            d.matrix(a + "in_proj_z.weight", NV * DV, D)
            d.matrix(a + "in_proj_b.weight", NV, D)
            d.matrix(a + "in_proj_a.weight", NV, D)
            d.matrix(a + "conv1d.weight", 2 * NK * DK + NV * DV, 1, 4, scale=0.4)
            d.uniform(a + "A_log", -1, 1, NV)
            d.uniform(a + "dt_bias", -1, 1, NV)
            d.uniform(a + "norm.weight", 0.7, 1.3, DV)
            d.matrix(a + "out_proj.weight", D, NV * DV)
    zero("model.norm.weight", D)
    d.matrix("lm_head.weight", V, D)
    config = {"hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G, "head_dim": HD,
              "linear_num_key_heads": NK, "linear_num_value_heads": NV, "linear_key_head_dim": DK,
              "linear_value_head_dim": DV, "linear_conv_kernel_dim": 4, "rms_norm_eps": EPS, "vocab_size": V,
              "rope_parameters": {"rope_theta": BASE, "partial_rotary_factor": TURNED / HD},
              "layer_types": ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(L)]}

    def evaluate(tensors, tokens):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        memory = [{} for _ in range(L)]
        norm = lambda name, x: rms_norm(x, 1 + w[name], EPS)
        out = []
        for t, token in enumerate(tokens):
            x = w["model.embed_tokens.weight"][token]
            for i in range(L):
                at = f"model.layers.{i}."
                h = norm(at + "input_layernorm.weight", x)
                x = x + (full if (i + 1) % 4 == 0 else linear)(w, at, h, memory[i], t)
                h = norm(at + "post_attention_layernorm.weight", x)
                hidden = silu(w[at + "mlp.gate_proj.weight"] @ h) * (w[at + "mlp.up_proj.weight"] @ h)
                x = x + w[at + "mlp.down_proj.weight"] @ hidden
            out.append(w["lm_head.weight"] @ norm("model.norm.weight", x))
        return np.array(out)

    def linear(w, at, x, memory, t):
        a = at + "linear_attn."
        conv = memory.setdefault("conv", Convolution(w[a + "conv1d.weight"][:, 0]))
        y = silu(conv(w[a + "in_proj_qkv.weight"] @ x))
        q, k = unit(y[:NK * DK], NK).reshape(NK, DK), unit(y[NK * DK:2 * NK * DK], NK).reshape(NK, DK)
        v = y[2 * NK * DK:].reshape(NV, DV)
        beta = sigmoid(w[a + "in_proj_b.weight"] @ x)
        g = -np.exp(w[a + "A_log"]) * softplus(w[a + "in_proj_a.weight"] @ x + w[a + "dt_bias"])
        S = memory.setdefault("S", np.zeros((NV, DK, DV)))
        o = []
        for n in range(NV):
            key = k[n // REP]
            S[n] = np.exp(g[n]) * S[n]
            S[n] += np.outer(key, beta[n] * (v[n] - key @ S[n]))
            o.append(q[n // REP] @ S[n] / np.sqrt(DK))
        o = heads_norm(np.concatenate(o), NV, w[a + "norm.weight"], EPS) * silu(w[a + "in_proj_z.weight"] @ x)
        return w[a + "out_proj.weight"] @ o

    def full(w, at, x, memory, t):
        a = at + "self_attn."
        both = (w[a + "q_proj.weight"] @ x).reshape(H, 2 * HD)
        q, gate = both[:, :HD].reshape(-1), both[:, HD:].reshape(-1)
        k, v = w[a + "k_proj.weight"] @ x, w[a + "v_proj.weight"] @ x
        q = rotate(heads_norm(q, H, 1 + w[a + "q_norm.weight"], EPS), H, TURNED, BASE, t)
        k = rotate(heads_norm(k, G, 1 + w[a + "k_norm.weight"], EPS), G, TURNED, BASE, t)
        attend = memory.setdefault("attention", Attention(H, G))
        return w[a + "o_proj.weight"] @ (attend(q, k, v) * sigmoid(gate))
    return d.tensors, evaluate, {"model_type": "qwen3_5_text", **config}


def next_names(tensors, config):
    """Qwen3-Next: q, k, v, z in one matrix by key heads, b and a likewise."""
    t = {}
    for name, x in tensors.items():
        if "in_proj_" not in name:
            t[name] = x
    for i in range(L):
        a = f"model.layers.{i}.linear_attn."
        if a + "A_log" not in tensors:
            continue
        qkv, z = tensors[a + "in_proj_qkv.weight"], tensors[a + "in_proj_z.weight"]
        q, k, v = qkv[:NK * DK], qkv[NK * DK:2 * NK * DK], qkv[2 * NK * DK:]
        b, aa = tensors[a + "in_proj_b.weight"], tensors[a + "in_proj_a.weight"]
        rows, pairs = [], []
        for n in range(NK):
            rows += [q[n * DK:(n + 1) * DK], k[n * DK:(n + 1) * DK], v[n * REP * DV:(n + 1) * REP * DV],
                     z[n * REP * DV:(n + 1) * REP * DV]]
            pairs += [b[n * REP:(n + 1) * REP], aa[n * REP:(n + 1) * REP]]
        t[a + "in_proj_qkvz.weight"], t[a + "in_proj_ba.weight"] = np.concatenate(rows), np.concatenate(pairs)
    new = {k: v for k, v in config.items() if k not in ("layer_types", "rope_parameters")}
    new.update(model_type="qwen3_next", rope_theta=BASE, partial_rotary_factor=TURNED / HD, full_attention_interval=4)
    return new, t


def gguf(tensors, tiled):
    """GGUF: tiled is qwen35, whose value heads go r NK + n instead of n REP + r; else qwen3next."""
    arch = "qwen35" if tiled else "qwen3next"
    keys = {"general.architecture": arch, arch + ".block_count": L, arch + ".embedding_length": D,
            arch + ".attention.head_count": H, arch + ".attention.head_count_kv": G, arch + ".attention.key_length": HD,
            arch + ".attention.value_length": HD, arch + ".attention.layer_norm_rms_epsilon": EPS,
            arch + ".rope.dimension_count": TURNED, arch + ".rope.freq_base": BASE, arch + ".full_attention_interval": 4,
            arch + ".ssm.conv_kernel": 4, arch + ".ssm.state_size": DK, arch + ".ssm.group_count": NK,
            arch + ".ssm.time_step_rank": NV, arch + ".ssm.inner_size": NV * DV}
    order = [n * REP + r for r in range(REP) for n in range(NK)] if tiled else list(range(NV))
    heads = lambda x: np.concatenate([x[h * DV:(h + 1) * DV] for h in order])
    t = {"token_embd.weight": tensors["model.embed_tokens.weight"], "output.weight": tensors["lm_head.weight"],
         "output_norm.weight": 1 + tensors["model.norm.weight"]}
    for i in range(L):
        a, b = f"model.layers.{i}.", f"blk.{i}."
        t[b + "attn_norm.weight"] = 1 + tensors[a + "input_layernorm.weight"]
        t[b + "post_attention_norm.weight"] = 1 + tensors[a + "post_attention_layernorm.weight"]
        for part in ("gate", "up", "down"):
            t[b + f"ffn_{part}.weight"] = tensors[a + f"mlp.{part}_proj.weight"]
        if a + "self_attn.q_proj.weight" in tensors:
            s = a + "self_attn."
            for c, name in zip(("q", "k", "v", "output"), ("q_proj", "k_proj", "v_proj", "o_proj")):
                t[b + f"attn_{c}.weight"] = tensors[s + name + ".weight"]
            t[b + "attn_q_norm.weight"] = 1 + tensors[s + "q_norm.weight"]
            t[b + "attn_k_norm.weight"] = 1 + tensors[s + "k_norm.weight"]
            continue
        s = a + "linear_attn."
        keep = 2 * NK * DK
        qkv, conv = tensors[s + "in_proj_qkv.weight"], tensors[s + "conv1d.weight"][:, 0]
        t[b + "attn_qkv.weight"] = np.concatenate([qkv[:keep], heads(qkv[keep:])])
        t[b + "attn_gate.weight"] = heads(tensors[s + "in_proj_z.weight"])
        t[b + "ssm_conv1d.weight"] = np.concatenate([conv[:keep], heads(conv[keep:])])
        t[b + "ssm_dt.bias"] = tensors[s + "dt_bias"][order]
        t[b + "ssm_a"] = -np.exp(tensors[s + "A_log"][order].astype(np.float64)).astype(np.float32)
        t[b + "ssm_norm.weight"] = tensors[s + "norm.weight"]
        t[b + "ssm_out.weight"] = heads(tensors[s + "out_proj.weight"].T).T.copy()
        bb, aa = tensors[s + "in_proj_b.weight"], tensors[s + "in_proj_a.weight"]
        if tiled:
            t[b + "ssm_beta.weight"], t[b + "ssm_alpha.weight"] = bb[order], aa[order]
        else:
            t[b + "ssm_ba.weight"] = np.concatenate(
                [part[n * REP:(n + 1) * REP] for n in range(NK) for part in (bb, aa)])
    return keys, t
