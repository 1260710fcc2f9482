"""Small checkpoints of flash-linear-attention's models with random weights and their plain evaluation."""
import numpy as np

from arithmetic import Attention, Convolution, heads_norm, rms_norm, rotate, sigmoid, silu, softplus, unit
from rwkv import Draw

V, D, L, I = 43, 24, 3, 40
EPS = 1e-6


class Model(Draw):
    """Draws tensors; `mixers[i](w, at, x, memory, t)` are the attentions of its layers."""

    def __init__(self, seed, config):
        super().__init__(seed)
        self.config = {"hidden_size": D, "num_hidden_layers": L, "intermediate_size": I, "vocab_size": V,
                       "norm_eps": EPS, **config}
        self.mixers = []
        self.matrix("model.embeddings.weight", V, D, scale=0.5)
        for i in range(L):
            at = f"model.layers.{i}."
            self.norm(at + "attn_norm", D, bias=False)
            self.norm(at + "mlp_norm", D, bias=False)
            self.matrix(at + "mlp.gate_proj.weight", I, D)
            self.matrix(at + "mlp.up_proj.weight", I, D)
            self.matrix(at + "mlp.down_proj.weight", D, I)
        self.norm("model.norm", D, bias=False)
        self.matrix("lm_head.weight", V, D)

    def at(self, i):
        return f"model.layers.{i}.attn."

    def linear(self, i, name, out, into=D, bias=False):
        self.matrix(self.at(i) + name + ".weight", out, into)
        if bias:
            self.uniform(self.at(i) + name + ".bias", -0.5, 0.5, out)

    def conv(self, i, name, width):
        self.matrix(self.at(i) + name + ".weight", width, 1, 4, scale=0.4)

    def evaluate(self, tensors, tokens):
        w = {k: v.astype(np.float64) for k, v in tensors.items()}
        memory = [{} for _ in range(L)]
        out = []
        for t, token in enumerate(tokens):
            x = w["model.embeddings.weight"][token]
            for i in range(L):
                at = f"model.layers.{i}."
                h = rms_norm(x, w[at + "attn_norm.weight"], EPS)
                x = x + self.mixers[i](w, at + "attn.", h, memory[i], t)
                h = rms_norm(x, w[at + "mlp_norm.weight"], EPS)
                hidden = silu(w[at + "mlp.gate_proj.weight"] @ h) * (w[at + "mlp.up_proj.weight"] @ h)
                x = x + w[at + "mlp.down_proj.weight"] @ hidden
            out.append(w.get("lm_head.weight", w["model.embeddings.weight"]) @ rms_norm(x, w["model.norm.weight"], EPS))
        return np.array(out)


def convolved(w, at, name, memory, x):
    key = at + name + ".weight"
    return memory.setdefault(name, Convolution(w[key][:, 0]))(x)


def gated_norm(o, heads, weight, gate, act=silu):
    return heads_norm(o, heads, weight, EPS) * act(gate)


def recurrence(memory, H, K, V_, update):
    """S [K, V] of every head through update(h, S)."""
    S = memory.setdefault("S", np.zeros((H, K, V_)))
    for h in range(H):
        S[h] = update(h, S[h])
    return S


def gla(seed=21):
    H, kv, K, VV, R = 4, 2, 3, 6, 16
    m = Model(seed, {"model_type": "gla", "num_heads": H, "num_kv_heads": kv, "expand_k": 0.5, "expand_v": 1})
    for i in range(L):
        m.linear(i, "q_proj", H * K)
        m.linear(i, "k_proj", kv * K)
        m.linear(i, "v_proj", kv * VV)
        m.linear(i, "g_proj", H * VV)
        m.linear(i, "gk_proj.0", R)
        m.linear(i, "gk_proj.1", kv * K, R, bias=True)
        m.norm(m.at(i) + "g_norm_swish_gate", VV, bias=False)
        m.linear(i, "o_proj", D, H * VV)

    def mixer(w, at, x, memory, t):
        q, k, v = ((w[at + c + "_proj.weight"] @ x) for c in "qkv")
        raw = w[at + "gk_proj.1.weight"] @ (w[at + "gk_proj.0.weight"] @ x) + w[at + "gk_proj.1.bias"]
        alpha = np.exp(np.log(sigmoid(raw)) / 16).reshape(kv, K)
        q, k, v = q.reshape(H, K), k.reshape(kv, K), v.reshape(kv, VV)
        S = recurrence(memory, H, K, VV, lambda h, S: alpha[h // 2][:, None] * S + np.outer(k[h // 2], v[h // 2]))
        o = np.concatenate([q[h] @ S[h] for h in range(H)]) / np.sqrt(K)
        return w[at + "o_proj.weight"] @ gated_norm(o, H, w[at + "g_norm_swish_gate.weight"], w[at + "g_proj.weight"] @ x)
    m.mixers = [mixer] * L
    return m


def retnet(seed=22):
    H, K, VV = 3, 8, 5
    m = Model(seed, {"model_type": "retnet", "num_heads": H})
    for i in range(L):
        for c, width in zip("qkvg", (H * K, H * K, H * VV, H * VV)):
            m.linear(i, c + "_proj", width)
        m.norm(m.at(i) + "g_norm_swish_gate", VV, bias=False)
        m.linear(i, "o_proj", D, H * VV)

    def mixer(w, at, x, memory, t):
        q, k, v, g = ((w[at + c + "_proj.weight"] @ x) for c in "qkvg")
        q, k = (rotate(y, H, K, 10000.0, t).reshape(H, K) for y in (q, k))
        v = v.reshape(H, VV)
        S = recurrence(memory, H, K, VV, lambda h, S: (1 - 2.0 ** (-5 - h)) * S + np.outer(k[h], v[h]))
        o = np.concatenate([q[h] @ S[h] for h in range(H)]) / np.sqrt(K)
        return w[at + "o_proj.weight"] @ gated_norm(o, H, w[at + "g_norm_swish_gate.weight"], g)
    m.mixers = [mixer] * L
    return m


def delta_step(S, k, v, beta):
    return S + np.outer(k, beta * (v - k @ S))


def delta_net(seed=23, negative=True, gate=False, activation="silu"):
    H, K, VV = 3, 6, 8
    m = Model(seed, {"model_type": "delta_net", "num_heads": H, "allow_neg_eigval": negative, "use_gate": gate,
                     "qk_activation": activation})
    for i in range(L):
        for c, width in zip("qkv", (H * K, H * K, H * VV)):
            m.linear(i, c + "_proj", width)
            m.conv(i, c + "_conv1d", width)
        m.linear(i, "b_proj", H)
        if gate:
            m.linear(i, "g_proj", H * VV)
        m.norm(m.at(i) + "o_norm", VV, bias=False)
        m.linear(i, "o_proj", D, H * VV)

    def mixer(w, at, x, memory, t):
        q, k, v = (convolved(w, at, c + "_conv1d", memory, w[at + c + "_proj.weight"] @ x) for c in "qkv")
        act = {"silu": silu, "elu": lambda y: np.where(y > 0, y + 1, np.exp(np.minimum(y, 0)))}[activation]
        q, k, v = unit(act(q), H).reshape(H, K), unit(act(k), H).reshape(H, K), silu(v).reshape(H, VV)
        beta = sigmoid(w[at + "b_proj.weight"] @ x) * (2 if negative else 1)
        S = recurrence(memory, H, K, VV, lambda h, S: delta_step(S, k[h], v[h], beta[h]))
        o = np.concatenate([q[h] @ S[h] for h in range(H)]) / np.sqrt(K)
        if gate:
            o = gated_norm(o, H, w[at + "o_norm.weight"], w[at + "g_proj.weight"] @ x)
        else:
            o = heads_norm(o, H, w[at + "o_norm.weight"], EPS)
        return w[at + "o_proj.weight"] @ o
    m.mixers = [mixer] * L
    return m


def gated_deltanet(seed=24, hybrid=False):
    H, HV, K, VV = 2, 4, 6, 5
    m = Model(seed, {"model_type": "gated_deltanet", "num_heads": H, "num_v_heads": HV, "head_dim": K, "use_gate": True})
    A, G, hd = 4, 2, 6
    if hybrid:
        m.config["attn"] = {"layers": [1], "num_heads": A, "num_kv_heads": G, "window_size": 3, "rope_theta": 500.0}
    for i in range(L):
        if hybrid and i == 1:
            for c, width in zip("qkv", (A * hd, G * hd, G * hd)):
                m.linear(i, c + "_proj", width)
            m.linear(i, "o_proj", D, A * hd)
            continue
        for c, width in zip("qkv", (H * K, H * K, HV * VV)):
            m.linear(i, c + "_proj", width)
            m.conv(i, c + "_conv1d", width)
        m.linear(i, "a_proj", HV)
        m.linear(i, "b_proj", HV)
        m.uniform(m.at(i) + "A_log", -1, 1, HV)
        m.uniform(m.at(i) + "dt_bias", -1, 1, HV)
        m.linear(i, "g_proj", HV * VV)
        m.norm(m.at(i) + "o_norm", VV, bias=False)
        m.linear(i, "o_proj", D, HV * VV)

    def mixer(w, at, x, memory, t):
        q, k, v = (silu(convolved(w, at, c + "_conv1d", memory, w[at + c + "_proj.weight"] @ x)) for c in "qkv")
        q, k, v = unit(q, H).reshape(H, K), unit(k, H).reshape(H, K), v.reshape(HV, VV)
        g = -np.exp(w[at + "A_log"]) * softplus(w[at + "a_proj.weight"] @ x + w[at + "dt_bias"])
        beta = sigmoid(w[at + "b_proj.weight"] @ x)
        r = HV // H
        S = recurrence(memory, HV, K, VV, lambda h, S: delta_step(np.exp(g[h]) * S, k[h // r], v[h], beta[h]))
        o = np.concatenate([q[h // r] @ S[h] for h in range(HV)]) / np.sqrt(K)
        return w[at + "o_proj.weight"] @ gated_norm(o, HV, w[at + "o_norm.weight"], w[at + "g_proj.weight"] @ x)

    def attention(w, at, x, memory, t):
        q, k, v = (w[at + c + "_proj.weight"] @ x for c in "qkv")
        attend = memory.setdefault("attention", Attention(A, G, 3))
        return w[at + "o_proj.weight"] @ attend(rotate(q, A, hd, 500.0, t), rotate(k, G, hd, 500.0, t), v)
    m.mixers = [attention if hybrid and i == 1 else mixer for i in range(L)]
    return m


def gated_deltaproduct(seed=25, n=2, forget=True):
    H, K, VV = 2, 6, 5
    m = Model(seed, {"model_type": "gated_deltaproduct", "num_heads": H, "head_dim": K, "num_householder": n,
                     "use_forget_gate": forget, "allow_neg_eigval": True})
    for i in range(L):
        for c, width in zip("qkv", (H * K, n * H * K, n * H * VV)):
            m.linear(i, c + "_proj", width)
            m.conv(i, c + "_conv1d", width)
        m.linear(i, "b_proj", n * H)
        if forget:
            m.linear(i, "a_proj", H)
            m.uniform(m.at(i) + "A_log", -1, 1, H)
            m.uniform(m.at(i) + "dt_bias", -1, 1, H)
        m.linear(i, "g_proj", H * VV)
        m.norm(m.at(i) + "o_norm", VV, bias=False)
        m.linear(i, "o_proj", D, H * VV)

    def mixer(w, at, x, memory, t):
        q, k, v = (silu(convolved(w, at, c + "_conv1d", memory, w[at + c + "_proj.weight"] @ x)) for c in "qkv")
        q, k, v = unit(q, H).reshape(H, K), unit(k, n * H).reshape(n, H, K), v.reshape(n, H, VV)
        g = -np.exp(w[at + "A_log"]) * softplus(w[at + "a_proj.weight"] @ x + w[at + "dt_bias"]) if forget else np.zeros(H)
        beta = 2 * sigmoid(w[at + "b_proj.weight"] @ x).reshape(n, H)

        def update(h, S):
            S = np.exp(g[h]) * S
            for j in range(n):
                S = delta_step(S, k[j, h], v[j, h], beta[j, h])
            return S
        S = recurrence(memory, H, K, VV, update)
        o = np.concatenate([q[h] @ S[h] for h in range(H)]) / np.sqrt(K)
        return w[at + "o_proj.weight"] @ gated_norm(o, H, w[at + "o_norm.weight"], w[at + "g_proj.weight"] @ x)
    m.mixers = [mixer] * L
    return m


def hgrn2(seed=26):
    K = 8
    H = D // K
    m = Model(seed, {"model_type": "hgrn2", "expand_ratio": K, "use_lower_bound": True})
    m.matrix("model.lower_bounds", L, D, scale=1.0)
    for i in range(L):
        for c in "qfi":
            m.linear(i, c + "_proj", D)
        m.norm(m.at(i) + "g_norm", D, bias=False)
        m.linear(i, "o_proj", D)

    def mixer_of(i):
        def mixer(w, at, x, memory, t):
            q, f, v = (w[at + c + "_proj.weight"] @ x for c in "qfi")
            p = np.exp(w["model.lower_bounds"])
            p = (p / p.sum(0)).cumsum(0)
            bound = p[i] - p[0]
            f = (bound + (1 - bound) * sigmoid(f)).reshape(H, K)
            q, v = silu(q).reshape(H, K), v.reshape(H, K)
            S = recurrence(memory, H, K, K, lambda h, S: f[h][:, None] * S + np.outer(1 - f[h], v[h]))
            o = np.concatenate([q[h] @ S[h] for h in range(H)]) / np.sqrt(K)
            return w[at + "o_proj.weight"] @ rms_norm(o, w[at + "g_norm.weight"], 1e-5)
        return mixer
    m.mixers = [mixer_of(i) for i in range(L)]
    return m


def kda(seed=27, lower_bound=None):
    H, K, VV = 3, 6, 5
    m = Model(seed, {"model_type": "kda", "num_heads": H, "head_dim": K})
    if lower_bound is not None:
        m.config["lower_bound"] = lower_bound
    for i in range(L):
        for c, width in zip("qkv", (H * K, H * K, H * VV)):
            m.linear(i, c + "_proj", width)
            m.conv(i, c + "_conv1d", width)
        m.linear(i, "f_proj.0", VV)
        m.linear(i, "f_proj.1", H * K, VV)
        m.uniform(m.at(i) + "A_log", -1, 1, H)
        m.uniform(m.at(i) + "dt_bias", -1, 1, H * K)
        m.linear(i, "b_proj", H)
        m.linear(i, "g_proj.0", VV)
        m.linear(i, "g_proj.1", H * VV, VV, bias=True)
        m.norm(m.at(i) + "o_norm", VV, bias=False)
        m.linear(i, "o_proj", D, H * VV)

    def mixer(w, at, x, memory, t):
        q, k, v = (silu(convolved(w, at, c + "_conv1d", memory, w[at + c + "_proj.weight"] @ x)) for c in "qkv")
        q, k, v = unit(q, H).reshape(H, K), unit(k, H).reshape(H, K), v.reshape(H, VV)
        f = (w[at + "f_proj.1.weight"] @ (w[at + "f_proj.0.weight"] @ x) + w[at + "dt_bias"]).reshape(H, K)
        rate = np.exp(w[at + "A_log"])[:, None]
        g = -rate * softplus(f) if lower_bound is None else lower_bound * sigmoid(rate * f)
        beta = sigmoid(w[at + "b_proj.weight"] @ x)
        S = recurrence(memory, H, K, VV, lambda h, S: delta_step(np.exp(g[h])[:, None] * S, k[h], v[h], beta[h]))
        o = np.concatenate([q[h] @ S[h] for h in range(H)]) / np.sqrt(K)
        gate = w[at + "g_proj.1.weight"] @ (w[at + "g_proj.0.weight"] @ x) + w[at + "g_proj.1.bias"]
        return w[at + "o_proj.weight"] @ gated_norm(o, H, w[at + "o_norm.weight"], gate, sigmoid)
    m.mixers = [mixer] * L
    return m


def mesa_net(seed=28):
    H, K = 3, 6
    m = Model(seed, {"model_type": "mesa_net", "num_heads": H, "head_dim": K, "lambda_lower_bound": 0.25})
    for i in range(L):
        for c in "qkv":
            m.linear(i, c + "_proj", H * K)
        m.conv(i, "q_conv1d", H * K)
        m.conv(i, "k_conv1d", H * K)
        m.linear(i, "a_proj", H, bias=True)
        m.linear(i, "b_proj", H, bias=True)
        m.uniform(m.at(i) + "lambda_params", -1, 1, H * K)
        m.norm(m.at(i) + "o_norm", K, bias=False)
        m.linear(i, "o_proj", D, H * K)

    def mixer(w, at, x, memory, t):
        q, k = (silu(convolved(w, at, c + "_conv1d", memory, w[at + c + "_proj.weight"] @ x)) for c in "qk")
        q, k = unit(q, H).reshape(H, K), unit(k, H).reshape(H, K)
        v = (w[at + "v_proj.weight"] @ x).reshape(H, K)
        forget = sigmoid(w[at + "a_proj.weight"] @ x + w[at + "a_proj.bias"])
        beta = sigmoid(w[at + "b_proj.weight"] @ x + w[at + "b_proj.bias"])
        ridge = (softplus(w[at + "lambda_params"]) + 0.25).reshape(H, K)
        H1 = memory.setdefault("H1", np.zeros((H, K, K)))
        H2 = memory.setdefault("H2", np.zeros((H, K, K)))
        o = []
        for h in range(H):
            H1[h] = forget[h] * H1[h] + beta[h] * np.outer(k[h], k[h])
            H2[h] = forget[h] * H2[h] + beta[h] * np.outer(k[h], v[h])
            o.append(H2[h].T @ np.linalg.solve(H1[h] + np.diag(ridge[h]), q[h]))
        return w[at + "o_proj.weight"] @ heads_norm(np.concatenate(o), H, w[at + "o_norm.weight"], EPS)
    m.mixers = [mixer] * L
    return m


def linear_attn(seed=29, feature_map="elementwise_product", normed=False):
    H, K, VV = 3, 4, 6
    m = Model(seed, {"model_type": "linear_attn", "num_heads": H, "feature_map": feature_map, "norm_feature_map": normed})
    layers = {"elementwise_product": ("layer1", "layer2"), "hedgehog": ("layer",), "elu": ()}[feature_map]
    for i in range(L):
        for c, width in zip("qkv", (H * K, H * K, H * VV)):
            m.linear(i, c + "_proj", width)
        for c in "qk":
            for name in layers:
                m.linear(i, f"feature_map_{c}.{name}", K, K, bias=True)
        m.norm(m.at(i) + "norm", VV, bias=False)
        m.linear(i, "o_proj", D, H * VV)

    def features(w, at, c, y):
        def layer(name, z):
            return w[at + f"feature_map_{c}.{name}.weight"] @ z + w[at + f"feature_map_{c}.{name}.bias"]
        rows = []
        for z in y.reshape(H, K):
            if feature_map == "elementwise_product":
                rows.append(layer("layer1", z) * layer("layer2", z))
            elif feature_map == "hedgehog":
                u = layer("layer", z)
                e = np.exp(np.concatenate([2 * u, -2 * u]))
                rows.append(e / e.sum())
            else:
                rows.append(np.where(z > 0, z + 1, np.exp(np.minimum(z, 0))))
        return np.array(rows)

    def mixer(w, at, x, memory, t):
        q = features(w, at, "q", w[at + "q_proj.weight"] @ x)
        k = features(w, at, "k", w[at + "k_proj.weight"] @ x)
        v = (w[at + "v_proj.weight"] @ x).reshape(H, VV)
        F = q.shape[1]
        q = q / np.sqrt(F)
        S = recurrence(memory, H, F, VV, lambda h, S: S + np.outer(k[h], v[h]))
        total = memory.setdefault("keys", np.zeros((H, F)))
        total += k
        o = [q[h] @ S[h] / (q[h] @ total[h] + 1e-10 if normed else 1) for h in range(H)]
        return w[at + "o_proj.weight"] @ heads_norm(np.concatenate(o), H, w[at + "norm.weight"], EPS)
    m.mixers = [mixer] * L
    return m


def transformer(seed=30):
    H, G, K = 4, 2, 6
    m = Model(seed, {"model_type": "transformer", "num_heads": H, "num_kv_heads": G, "qk_norm": True, "qkv_bias": True})
    for i in range(L):
        for c, width in zip("qkv", (H * K, G * K, G * K)):
            m.linear(i, c + "_proj", width, bias=True)
        m.norm(m.at(i) + "q_norm", K, bias=False)
        m.norm(m.at(i) + "k_norm", K, bias=False)
        m.linear(i, "o_proj", D, H * K)

    def mixer(w, at, x, memory, t):
        q, k, v = (w[at + c + "_proj.weight"] @ x + w[at + c + "_proj.bias"] for c in "qkv")
        q = heads_norm(q, H, w[at + "q_norm.weight"], 1e-5)
        k = heads_norm(k, G, w[at + "k_norm.weight"], 1e-5)
        attend = memory.setdefault("attention", Attention(H, G))
        return w[at + "o_proj.weight"] @ attend(rotate(q, H, K, 10000.0, t), rotate(k, G, K, 10000.0, t), v)
    m.mixers = [mixer] * L
    return m
