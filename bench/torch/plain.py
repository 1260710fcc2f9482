"""Sequence layers in plain PyTorch, in chunks where the layer has them: what people run without kernels of their own.

Shapes are [B, T, H, D], gates natural logarithms. Everything is batched over batch, heads and chunks; only the state goes
through a loop, chunk after chunk. bench/torch/ops.py measures ttr.torch against these, and checks that both agree.
"""

import torch
import torch.nn.functional as F


def _chunks(t, size):
    """[B, T, H, ...] -> [B, H, T / size, size, ...]."""
    t = t.transpose(1, 2)
    return t.reshape(*t.shape[:2], t.shape[2] // size, size, *t.shape[3:])


def _whole(t):
    """[B, H, N, C, D] -> [B, T, H, D]."""
    return t.flatten(2, 3).transpose(1, 2)


def simple_gla(q, k, v, g, scale=None, size=64):
    """S <- exp(g) S + k v', o = S'q, with a gate per head (also linear attention, RetNet, Mamba-2)."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, g = _chunks(q, size) * scale, _chunks(k, size), _chunks(v, size), _chunks(g, size).cumsum(-1)
    inside = (g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().tril()
    o = (q @ k.transpose(-1, -2) * inside) @ v
    writes = (k * (g[..., -1:] - g).exp().unsqueeze(-1)).transpose(-1, -2) @ v
    S, before = torch.zeros_like(writes[:, :, 0]), []
    for n in range(q.shape[2]):
        before.append(S)
        S = S * g[:, :, n, -1, None, None].exp() + writes[:, :, n]
    return _whole(o + (q * g.exp().unsqueeze(-1)) @ torch.stack(before, 2))


def gla(q, k, v, g, scale=None, size=16, bonus=None):
    """S <- diag(exp(g)) S + k v', with a gate per key channel; `bonus` is RWKV-6's read before the write."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, g = _chunks(q, size) * scale, _chunks(k, size), _chunks(v, size), _chunks(g, size).cumsum(-2)
    seen = g if bonus is None else F.pad(g, (0, 0, 1, 0))[..., :-1, :]
    weights = (q * seen.exp()) @ (k * (-g).exp()).transpose(-1, -2)
    o = weights.tril(0 if bonus is None else -1) @ v
    if bonus is not None:
        o = o + (q * k * bonus[:, None, None]).sum(-1, keepdim=True) * v
    writes = (k * (g[..., -1:, :] - g).exp()).transpose(-1, -2) @ v
    S, before = torch.zeros_like(writes[:, :, 0]), []
    for n in range(q.shape[2]):
        before.append(S)
        S = S * g[:, :, n, -1, :, None].exp() + writes[:, :, n]
    return _whole(o + (q * seen.exp()) @ torch.stack(before, 2))


def _by_solve(system, both):
    return torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)


def _by_rows(system, both):
    """The inverse of the triangle row after row, as modelling files without kernels do it, then a product."""
    size = system.shape[-1]
    inverse = torch.eye(size, dtype=system.dtype) - system
    for i in range(1, size):
        row, above = inverse[..., i, :i].clone(), inverse[..., :i, :i].clone()
        inverse[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
    return (inverse + torch.eye(size, dtype=system.dtype)) @ both


def gated_delta_rule(q, k, v, g, beta, scale=None, size=64, solve=_by_solve):
    """S <- exp(g) S, S <- S + beta k (v - S'k)', in the WY form of chunks; one gate per head."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, g, beta = (_chunks(t, size) for t in (q, k, v, g, beta))
    q, g, beta = q * scale, g.cumsum(-1), beta.unsqueeze(-1)
    inside = (g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().tril()
    system = torch.eye(size, dtype=q.dtype) + (k * beta @ k.transpose(-1, -2) * inside).tril(-1)
    both = torch.cat([v * beta, k * beta * g.exp().unsqueeze(-1)], -1)
    u, w = solve(system, both).split([v.shape[-1], k.shape[-1]], -1)
    weights, queries = q @ k.transpose(-1, -2) * inside, q * g.exp().unsqueeze(-1)
    keys = (k * (g[..., -1:] - g).exp().unsqueeze(-1)).transpose(-1, -2)
    S, rows = torch.zeros(*q.shape[:2], k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for n in range(q.shape[2]):
        new = u[:, :, n] - w[:, :, n] @ S
        rows.append(queries[:, :, n] @ S + weights[:, :, n] @ new)
        S = S * g[:, :, n, -1, None, None].exp() + keys[:, :, n] @ new
    return _whole(torch.stack(rows, 2))


def gated_delta_rule_by_rows(q, k, v, g, beta):
    return gated_delta_rule(q, k, v, g, beta, solve=_by_rows)


def kda(q, k, v, g, beta, scale=None, size=16):
    """The same with a gate per key channel."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, g, beta = (_chunks(t, size) for t in (q, k, v, g, beta))
    q, g, beta = q * scale, g.cumsum(-2), beta.unsqueeze(-1)
    faded, grown = k * g.exp(), (k * (-g).exp()).transpose(-1, -2)
    system = torch.eye(size, dtype=q.dtype) + (faded * beta @ grown).tril(-1)
    both = torch.cat([v * beta, faded * beta], -1)
    u, w = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True).split([v.shape[-1], k.shape[-1]], -1)
    queries = q * g.exp()
    weights = (queries @ grown).tril()
    keys = (k * (g[..., -1:, :] - g).exp()).transpose(-1, -2)
    S, rows = torch.zeros(*q.shape[:2], k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for n in range(q.shape[2]):
        new = u[:, :, n] - w[:, :, n] @ S
        rows.append(queries[:, :, n] @ S + weights[:, :, n] @ new)
        S = S * g[:, :, n, -1, :, None].exp() + keys[:, :, n] @ new
    return _whole(torch.stack(rows, 2))


def recurrent_gated_delta_rule(q, k, v, g, beta, S):
    """Token after token, from a state: what a model decodes with."""
    rows = []
    for t in range(q.shape[1]):
        S = S * g[:, t].exp()[..., None, None]
        u = beta[:, t].unsqueeze(-1) * (v[:, t] - (S * k[:, t].unsqueeze(-1)).sum(-2))
        S = S + k[:, t].unsqueeze(-1) * u.unsqueeze(-2)
        rows.append((S * q[:, t].unsqueeze(-1)).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(rows, 1), S


def dplr(q, k, v, a, b, g):
    """S <- diag(exp(g)) S + b (a'S) + k v' (RWKV-7), token after token."""
    S, rows = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype), []
    for t in range(q.shape[1]):
        read = (a[:, t].unsqueeze(-1) * S).sum(-2, keepdim=True)
        S = S * g[:, t].exp().unsqueeze(-1) + b[:, t].unsqueeze(-1) * read + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        rows.append((S * q[:, t].unsqueeze(-1)).sum(-2))
    return torch.stack(rows, 1)


def attention(q, k, v, g=None, scale=None):
    """Causal softmax attention; with g, forgetting attention."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    logits = q @ k.transpose(-1, -2) * scale
    if g is not None:
        sums = g.transpose(1, 2).cumsum(-1)
        logits = logits + sums.unsqueeze(-1) - sums.unsqueeze(-2)
    hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    return (logits.masked_fill(hidden, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def attention_added(q, k, v, scale=None):
    """Causal softmax attention in as few operations as there are: the product adds the mask, softmax, product."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    heads = [t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)]
    hidden = torch.full((q.shape[1], q.shape[1]), float("-inf"), dtype=q.dtype).triu(1)
    weights = torch.baddbmm(hidden, heads[0], heads[1].transpose(-1, -2), alpha=scale).softmax(-1)
    return (weights @ heads[2]).unflatten(0, (q.shape[0], q.shape[2])).transpose(1, 2)


def selective_scan(u, delta, A, B, C, D, z, bias):
    """Mamba-1, token after token; u [B, D, T]."""
    dt = F.softplus(delta + bias[:, None])
    S, rows = torch.zeros(u.shape[0], u.shape[1], A.shape[1], dtype=u.dtype), []
    for t in range(u.shape[2]):
        S = torch.exp(dt[:, :, t, None] * A) * S + (dt[:, :, t] * u[:, :, t]).unsqueeze(-1) * B[:, None, :, t]
        rows.append((S * C[:, None, :, t]).sum(-1))
    return (torch.stack(rows, 2) + D[:, None] * u) * F.silu(z)


def convolution(x, w):
    """A causal convolution per channel with silu; x [B, D, T], w [D, W]."""
    return F.silu(F.conv1d(x, w.unsqueeze(1), padding=w.shape[1] - 1, groups=x.shape[1])[..., : x.shape[2]])


def convolution_step(x, state, w):
    """The next token of it, as modelling files decode; x [B, D, 1], the state [B, D, W] is changed."""
    both = torch.cat([state, x], -1)
    state.copy_(both[..., 1:])
    return F.silu(F.conv1d(both, w.unsqueeze(1), groups=x.shape[1])[..., -1:])


def mesa(q, k, v, g, beta, lamb, size=64):
    """MesaNet by thirty steps of conjugate gradients on all tokens of a chunk at once."""
    q, k, v, g, beta = (_chunks(t, size) for t in (q, k, v, g, beta))
    g = g.cumsum(-1)
    inside = (g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().tril() * beta.unsqueeze(-2)
    decay = (g[..., -1:] - g).exp() * beta
    sums = [(k * decay.unsqueeze(-1)).transpose(-1, -2) @ t for t in (k, v)]
    H, G = (torch.zeros_like(s[:, :, 0]) for s in sums)
    before = [], []
    for n in range(q.shape[2]):
        before[0].append(H), before[1].append(G)
        fade = g[:, :, n, -1, None, None].exp()
        H, G = H * fade + sums[0][:, :, n], G * fade + sums[1][:, :, n]
    H, G = torch.stack(before[0], 2), torch.stack(before[1], 2)
    factor, ridge = g.exp().unsqueeze(-1), lamb[:, None, None]

    def product(x):  # (H_t + diag(lamb)) x_t for every token
        return factor * (x @ H) + (x @ k.transpose(-1, -2) * inside) @ k + ridge * x

    x = torch.zeros_like(q)
    r = p = q
    rr = (r * r).sum(-1, keepdim=True)
    for _ in range(30):
        Ap = product(p)
        step = rr / ((p * Ap).sum(-1, keepdim=True) + 1e-5)
        x, r = x + step * p, r - step * Ap
        new = (r * r).sum(-1, keepdim=True)
        p, rr = r + new / (rr + 1e-5) * p, new
    return _whole(factor * (x @ G) + (x @ k.transpose(-1, -2) * inside) @ v)
