"""Small RWKV checkpoints with random weights and their plain evaluation: 4, 5.2, 6 and 7."""
import numpy as np

from arithmetic import group_norm, layer_norm, sigmoid, silu

V, D, L, N, F = 37, 24, 3, 8, 40
H = D // N


class Draw:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tensors = {}

    def matrix(self, name, *shape, scale=None):
        scale = scale or 1 / np.sqrt(shape[-1])
        self.tensors[name] = (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def uniform(self, name, low, high, *shape):
        self.tensors[name] = self.rng.uniform(low, high, shape).astype(np.float32)

    def norm(self, name, width, bias=True):
        self.uniform(name + ".weight", 0.7, 1.3, width)
        if bias:
            self.uniform(name + ".bias", -0.2, 0.2, width)


def skeleton(d):
    d.matrix("emb.weight", V, D, scale=0.5)
    d.norm("blocks.0.ln0", D)
    for i in range(L):
        d.norm(f"blocks.{i}.ln1", D)
        d.norm(f"blocks.{i}.ln2", D)
    d.norm("ln_out", D)
    d.matrix("head.weight", V, D)


def run(w, tokens, att, ffn):
    """w in double. att(i, h, previous h, memory), likewise ffn."""
    memory = [{} for _ in range(L)]
    before = [[np.zeros(D), np.zeros(D)] for _ in range(L)]
    out = []
    for token in tokens:
        ln = lambda name, x: layer_norm(x, w[name + ".weight"], w[name + ".bias"], 1e-5)
        x = ln("blocks.0.ln0", w["emb.weight"][token])
        shared = {}
        for i in range(L):
            h = ln(f"blocks.{i}.ln1", x)
            x = x + att(i, h, before[i][0], memory[i], shared)
            before[i][0] = h
            h = ln(f"blocks.{i}.ln2", x)
            x = x + ffn(i, h, before[i][1])
            before[i][1] = h
        out.append(w["head.weight"] @ ln("ln_out", x))
    return np.array(out)


def ffn_4(w, names=("time_mix_k", "time_mix_r"), towards_before=False):
    def ffn(i, h, p):
        at = f"blocks.{i}.ffn."
        def mix(name):
            m = w[at + name].reshape(-1)
            return h + (p - h) * m if towards_before else h * m + p * (1 - m)
        k = np.maximum(w[at + "key.weight"] @ mix(names[0]), 0) ** 2
        return sigmoid(w[at + "receptance.weight"] @ mix(names[1])) * (w[at + "value.weight"] @ k)
    return ffn


def rwkv_4(seed=4):
    d = Draw(seed)
    skeleton(d)
    for i in range(L):
        at = f"blocks.{i}.att."
        d.uniform(at + "time_decay", -3, 1, D)
        d.uniform(at + "time_first", -1, 1, D)
        for c in "kvr":
            d.uniform(at + f"time_mix_{c}", 0, 1, 1, 1, D)
        for name in ("key", "value", "receptance", "output"):
            d.matrix(at + name + ".weight", D, D)
        at = f"blocks.{i}.ffn."
        for c in "kr":
            d.uniform(at + f"time_mix_{c}", 0, 1, 1, 1, D)
        d.matrix(at + "key.weight", F, D)
        d.matrix(at + "receptance.weight", D, D)
        d.matrix(at + "value.weight", D, F)

    def evaluate(tensors, tokens):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        def att(i, h, p, memory, _):
            at = f"blocks.{i}.att."
            def project(c, name):
                m = w[at + f"time_mix_{c}"].reshape(-1)
                return w[at + name + ".weight"] @ (h * m + p * (1 - m))
            r, k, v = project("r", "receptance"), project("k", "key"), project("v", "value")
            num, den = memory.get("num", np.zeros(D)), memory.get("den", np.zeros(D))
            now = np.exp(w[at + "time_first"] + k)
            o = (num + now * v) / (den + now)
            decay = np.exp(-np.exp(w[at + "time_decay"]))
            memory["num"], memory["den"] = decay * num + np.exp(k) * v, decay * den + np.exp(k)
            return w[at + "output.weight"] @ (sigmoid(r) * o)
        return run(w, tokens, att, ffn_4(w))
    return d.tensors, evaluate


def hugging_face_4(tensors):
    """The names of Hugging Face's rwkv."""
    words = {"k": "key", "v": "value", "r": "receptance"}
    result = {}
    for name, x in tensors.items():
        name = name.replace("emb.weight", "rwkv.embeddings.weight").replace("ln_out", "rwkv.ln_out")
        name = name.replace("blocks.", "rwkv.blocks.").replace(".ln0", ".pre_ln")
        name = name.replace(".att.", ".attention.").replace(".ffn.", ".feed_forward.")
        if "time_mix_" in name:
            name = name[:-1] + words[name[-1]]
        result[name] = x
    return result


def heads_5(w, i, r, k, v, decay, gate, memory, eps, divisor=1):
    at = f"blocks.{i}.att."
    S = memory.setdefault("S", np.zeros((H, N, N)))
    u = w[at + "time_faaaa"]
    y = np.zeros((H, N))
    for h in range(H):
        rows = slice(h * N, (h + 1) * N)
        kv = np.outer(k[rows], v[rows])
        y[h] = r[rows] @ (S[h] + u[h][:, None] * kv)
        S[h] = decay[rows][:, None] * S[h] + kv
    o = group_norm(y.reshape(-1) / divisor, H, w[at + "ln_x.weight"], w[at + "ln_x.bias"], eps)
    return w[at + "output.weight"] @ (o * silu(gate))


def rwkv_5(seed=5, divisor=8):
    """`divisor`: of what goes into the group norm, whose eps is 1e-5: 8 where these models are trained, and 1 in some
    programs that evaluate them."""
    d = Draw(seed)
    skeleton(d)
    for i in range(L):
        at = f"blocks.{i}.att."
        d.uniform(at + "time_decay", -3, 1, H, N)
        d.uniform(at + "time_faaaa", -1, 1, H, N)
        for c in "kvrg":
            d.uniform(at + f"time_mix_{c}", 0, 1, 1, 1, D)
        for name in ("key", "value", "receptance", "gate", "output"):
            d.matrix(at + name + ".weight", D, D)
        d.norm(at + "ln_x", D)
        at = f"blocks.{i}.ffn."
        for c in "kr":
            d.uniform(at + f"time_mix_{c}", 0, 1, 1, 1, D)
        d.matrix(at + "key.weight", F, D)
        d.matrix(at + "receptance.weight", D, D)
        d.matrix(at + "value.weight", D, F)

    def evaluate(tensors, tokens):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        def att(i, h, p, memory, _):
            at = f"blocks.{i}.att."
            def project(c, name):
                m = w[at + f"time_mix_{c}"].reshape(-1)
                return w[at + name + ".weight"] @ (h * m + p * (1 - m))
            decay = np.exp(-np.exp(w[at + "time_decay"].reshape(-1)))
            return heads_5(w, i, project("r", "receptance"), project("k", "key"), project("v", "value"), decay,
                           project("g", "gate"), memory, 1e-5, divisor)
        return run(w, tokens, att, ffn_4(w))
    return d.tensors, evaluate


def rwkv_6(seed=6):
    R, Rd = 5, 6
    d = Draw(seed)
    skeleton(d)
    for i in range(L):
        at = f"blocks.{i}.att."
        for c in "xwkvrg":
            d.uniform(at + f"time_maa_{c}", 0, 1, 1, 1, D)
        d.matrix(at + "time_maa_w1", D, 5 * R, scale=0.2)
        d.matrix(at + "time_maa_w2", 5, R, D, scale=0.3)
        d.uniform(at + "time_decay", -3, 1, 1, 1, D)
        d.matrix(at + "time_decay_w1", D, Rd, scale=0.2)
        d.matrix(at + "time_decay_w2", Rd, D, scale=0.3)
        d.uniform(at + "time_faaaa", -1, 1, H, N)
        for name in ("key", "value", "receptance", "gate", "output"):
            d.matrix(at + name + ".weight", D, D)
        d.norm(at + "ln_x", D)
        at = f"blocks.{i}.ffn."
        for c in "kr":
            d.uniform(at + f"time_maa_{c}", 0, 1, 1, 1, D)
        d.matrix(at + "key.weight", F, D)
        d.matrix(at + "receptance.weight", D, D)
        d.matrix(at + "value.weight", D, F)

    def evaluate(tensors, tokens):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        def att(i, h, p, memory, _):
            at = f"blocks.{i}.att."
            maa = lambda c: w[at + f"time_maa_{c}"].reshape(-1)
            z = np.tanh((h + (p - h) * maa("x")) @ w[at + "time_maa_w1"]).reshape(5, R)
            x = {c: h + (p - h) * (maa(c) + z[j] @ w[at + "time_maa_w2"][j]) for j, c in enumerate("wkvrg")}
            raw = w[at + "time_decay"].reshape(-1) + np.tanh(x["w"] @ w[at + "time_decay_w1"]) @ w[at + "time_decay_w2"]
            project = lambda c, name: w[at + name + ".weight"] @ x[c]
            return heads_5(w, i, project("r", "receptance"), project("k", "key"), project("v", "value"),
                           np.exp(-np.exp(raw)), project("g", "gate"), memory, 64e-5)
        return run(w, tokens, att, ffn_4(w, ("time_maa_k", "time_maa_r"), True))
    return d.tensors, evaluate


def gguf_6(tensors, halve=0):
    """Names and layouts of GGUF. `halve`: the stream is halved every so many layers."""
    keys = {"general.architecture": "rwkv6", "rwkv6.block_count": L, "rwkv6.embedding_length": D,
            "rwkv6.feed_forward_length": F, "rwkv6.wkv.head_size": N, "rwkv6.rescale_every_n_layers": halve,
            "rwkv6.attention.head_count": 0, "rwkv6.attention.layer_norm_epsilon": 1e-5}
    t = {"token_embd.weight": tensors["emb.weight"], "output.weight": tensors["head.weight"]}
    for part in ("weight", "bias"):
        t["token_embd_norm." + part] = tensors["blocks.0.ln0." + part]
        t["output_norm." + part] = tensors["ln_out." + part]
    for i in range(L):
        a, b = f"blocks.{i}.", f"blk.{i}."
        scale = 2.0 ** -(i // halve) if halve else 1.0
        for part in ("weight", "bias"):
            t[b + "attn_norm." + part] = tensors[a + "ln1." + part]
            t[b + "attn_norm_2." + part] = tensors[a + "ln2." + part]
            t[b + "time_mix_ln." + part] = tensors[a + "att.ln_x." + part]
        for name in ("receptance", "key", "value", "gate", "output"):
            t[b + f"time_mix_{name}.weight"] = tensors[a + f"att.{name}.weight"]
        t[b + "time_mix_output.weight"] = t[b + "time_mix_output.weight"] * np.float32(scale)
        t[b + "time_mix_lerp_x.weight"] = tensors[a + "att.time_maa_x"].reshape(D)
        fused = np.stack([tensors[a + f"att.time_maa_{c}"].reshape(D) for c in "wkvrg"])
        t[b + "time_mix_lerp_fused.weight"] = fused.reshape(5, 1, 1, D)
        t[b + "time_mix_w1.weight"] = tensors[a + "att.time_maa_w1"].T.copy()
        t[b + "time_mix_w2.weight"] = tensors[a + "att.time_maa_w2"].transpose(0, 2, 1).copy()
        t[b + "time_mix_decay.weight"] = tensors[a + "att.time_decay"].reshape(D)
        t[b + "time_mix_decay_w1.weight"] = tensors[a + "att.time_decay_w1"].T.copy()
        t[b + "time_mix_decay_w2.weight"] = tensors[a + "att.time_decay_w2"].T.copy()
        t[b + "time_mix_first.weight"] = tensors[a + "att.time_faaaa"]
        for c in "kr":
            t[b + f"channel_mix_lerp_{c}.weight"] = tensors[a + f"ffn.time_maa_{c}"].reshape(D)
        for name in ("key", "receptance", "value"):
            t[b + f"channel_mix_{name}.weight"] = tensors[a + f"ffn.{name}.weight"]
        t[b + "channel_mix_value.weight"] = t[b + "channel_mix_value.weight"] * np.float32(scale)
    return keys, t


def rwkv_7(seed=7, root=False):
    R = {"w": 5, "a": 4, "v": 3, "g": 6}
    d = Draw(seed)
    skeleton(d)
    for i in range(L):
        at = f"blocks.{i}.att."
        for c in "rwkvag":
            d.uniform(at + f"x_{c}", 0, 1, 1, 1, D)
        for c in "wavg":
            if c == "v" and i == 0:
                continue
            if c != "g":
                d.uniform(at + c + "0", -1, 1, 1, 1, D)
            d.matrix(at + c + "1", D, R[c], scale=0.3)
            d.matrix(at + c + "2", R[c], D, scale=0.5)
        d.uniform(at + "k_k", 0.5, 1.2, 1, 1, D)
        d.uniform(at + "k_a", 0.5, 1.2, 1, 1, D)
        d.uniform(at + "r_k", -0.5, 0.5, H, N)
        for name in ("receptance", "key", "value", "output"):
            d.matrix(at + name + ".weight", D, D)
        d.norm(at + "ln_x", D)
        at = f"blocks.{i}.ffn."
        d.uniform(at + "x_k", 0, 1, 1, 1, D)
        d.matrix(at + "key.weight", F, D)
        d.matrix(at + "value.weight", D, F)

    def evaluate(tensors, tokens, eps=64e-5, inside=None):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        def att(i, h, p, memory, shared):
            at = f"blocks.{i}.att."
            flat = lambda name: w[at + name].reshape(-1)
            m = {c: h + (p - h) * flat(f"x_{c}") for c in "rwkvag"}
            r, k, v = (w[at + name + ".weight"] @ m[c] for c, name in zip("rkv", ("receptance", "key", "value")))
            decay = np.exp(-np.exp(-0.5) * sigmoid(flat("w0") + np.tanh(m["w"] @ w[at + "w1"]) @ w[at + "w2"]))
            a = sigmoid(flat("a0") + (m["a"] @ w[at + "a1"]) @ w[at + "a2"])
            g = sigmoid(m["g"] @ w[at + "g1"]) @ w[at + "g2"]
            if i == 0:
                shared["v"] = v
            else:
                v = v + (shared["v"] - v) * sigmoid(flat("v0") + (m["v"] @ w[at + "v1"]) @ w[at + "v2"])
            kk = (k * flat("k_k")).reshape(H, N)
            length = np.sqrt((kk * kk).sum(1) + (inside or 0))
            kk = kk / np.maximum(length, 1e-12)[:, None]
            k = k * (1 + (a - 1) * flat("k_a"))
            S = memory.setdefault("S", np.zeros((H, N, N)))  # [value, key]
            y, bonus = np.zeros((H, N)), np.zeros((H, N))
            for n in range(H):
                c = slice(n * N, (n + 1) * N)
                S[n] = S[n] * decay[c] - np.outer(S[n] @ kk[n], kk[n] * a[c]) + np.outer(v[c], k[c])
                y[n] = S[n] @ r[c]
                bonus[n] = (r[c] * k[c] * w[at + "r_k"][n]).sum() * v[c]
            y = group_norm(y.reshape(-1), H, w[at + "ln_x.weight"], w[at + "ln_x.bias"], eps) + bonus.reshape(-1)
            return w[at + "output.weight"] @ (y * g)
        def ffn(i, h, p):
            at = f"blocks.{i}.ffn."
            x = h + (p - h) * w[at + "x_k"].reshape(-1)
            return w[at + "value.weight"] @ np.maximum(w[at + "key.weight"] @ x, 0) ** 2
        return run(w, tokens, att, ffn)
    return d.tensors, evaluate


def fla_7(tensors):
    """Names and layouts of flash-linear-attention; its eps is head_dim times 1e-5."""
    t = {"model.embeddings.weight": tensors["emb.weight"], "lm_head.weight": tensors["head.weight"]}
    for part in ("weight", "bias"):
        t["model.layers.0.pre_norm." + part] = tensors["blocks.0.ln0." + part]
        t["model.norm." + part] = tensors["ln_out." + part]
    for i in range(L):
        a, b = f"blocks.{i}.", f"model.layers.{i}."
        for part in ("weight", "bias"):
            t[b + "attn_norm." + part] = tensors[a + "ln1." + part]
            t[b + "ffn_norm." + part] = tensors[a + "ln2." + part]
            t[b + "attn.g_norm." + part] = tensors[a + "att.ln_x." + part]
        for c in "rwkvag":
            t[b + f"attn.x_{c}"] = tensors[a + f"att.x_{c}"]
        for c in "wavg":
            if a + f"att.{c}1" not in tensors:
                continue
            t[b + f"attn.{c}_lora.lora.0.weight"] = tensors[a + f"att.{c}1"].T.copy()
            t[b + f"attn.{c}_lora.lora.2.weight"] = tensors[a + f"att.{c}2"].T.copy()
            if c != "g":
                t[b + f"attn.{c}_lora.lora.2.bias"] = tensors[a + f"att.{c}0"].reshape(D)
        for name in ("k_k", "k_a"):
            t[b + "attn." + name] = tensors[a + "att." + name].reshape(D)
        t[b + "attn.r_k"] = tensors[a + "att.r_k"]
        for c, name in zip("rkvo", ("receptance", "key", "value", "output")):
            t[b + f"attn.{c}_proj.weight"] = tensors[a + f"att.{name}.weight"]
        t[b + "ffn.x_k"] = tensors[a + "ffn.x_k"].reshape(D)
        t[b + "ffn.key.weight"] = tensors[a + "ffn.key.weight"]
        t[b + "ffn.value.weight"] = tensors[a + "ffn.value.weight"]
    config = {"model_type": "rwkv7", "hidden_size": D, "num_hidden_layers": L, "head_dim": N, "norm_eps": 1e-5,
              "hidden_act": "sqrelu", "vocab_size": V, "fuse_norm": True}
    return config, t


def gguf_7(tensors):
    keys = {"general.architecture": "rwkv7", "rwkv7.block_count": L, "rwkv7.embedding_length": D,
            "rwkv7.feed_forward_length": F, "rwkv7.wkv.head_size": N, "rwkv7.attention.layer_norm_epsilon": 1e-5}
    t = {"token_embd.weight": tensors["emb.weight"], "output.weight": tensors["head.weight"]}
    for part in ("weight", "bias"):
        t["token_embd_norm." + part] = tensors["blocks.0.ln0." + part]
        t["output_norm." + part] = tensors["ln_out." + part]
    for i in range(L):
        a, b = f"blocks.{i}.", f"blk.{i}."
        for part in ("weight", "bias"):
            t[b + "attn_norm." + part] = tensors[a + "ln1." + part]
            t[b + "attn_norm_2." + part] = tensors[a + "ln2." + part]
            t[b + "time_mix_ln." + part] = tensors[a + "att.ln_x." + part]
        t[b + "time_mix_lerp_fused.weight"] = np.stack(
            [tensors[a + f"att.x_{c}"].reshape(D) for c in "rwkvag"]).reshape(6, 1, 1, D)
        for c in "wavg":
            source = "a" if c == "v" and i == 0 else c  # the first block has copies that are not used
            for j in "012":
                if c == "g" and j == "0":
                    continue
                x = tensors[a + f"att.{source}{j}"]
                t[b + f"time_mix_{c}{j}.weight"] = x.reshape(D) if j == "0" else x.T.copy()
        for name in ("k_k", "k_a", "r_k"):
            t[b + f"time_mix_{name}.weight"] = tensors[a + "att." + name].reshape(D)
        for name in ("receptance", "key", "value", "output"):
            t[b + f"time_mix_{name}.weight"] = tensors[a + f"att.{name}.weight"]
        t[b + "channel_mix_lerp_k.weight"] = tensors[a + "ffn.x_k"].reshape(D)
        t[b + "channel_mix_key.weight"] = tensors[a + "ffn.key.weight"]
        t[b + "channel_mix_value.weight"] = tensors[a + "ffn.value.weight"]
    return keys, t
