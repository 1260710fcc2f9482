"""Memories that flash-linear-attention has no module for: local linear attention, TTT-Linear, Titans."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._library import Error
from .._gates import l2norm, wide
from ._linear import _finish, _linear, _output, _Projected
from ._parts import Memory, run, split


class LocalLinearAttention(_Projected):
    """Local linear attention (Zuo et al. 2025): around every query a line is fitted to the pairs, weighted as softmax does.

    Parameters
    ----------
    ridge : float
        Start of the learned ridge on the slope, one per head; a large one is softmax attention.
    qk_norm : bool
        RMS norm of q and k, which bounds the logits.
    """

    def __init__(
        self,
        hidden_size: int = 1024,
        num_heads: int = 8,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        ridge: float = 0.1,
        qk_norm: bool = True,
        window_size: int | None = None,
        layer_idx: int | None = None,
    ) -> None:
        super().__init__()
        if window_size is not None and window_size < 1:
            raise Error(f"window_size = {window_size}; it is the number of keys that a query sees, None for all")
        self.hidden_size, self.layer_idx, self.window_size = hidden_size, layer_idx, window_size
        self.head_dim, self.qk_norm = head_dim or hidden_size // num_heads, qk_norm
        keys = (num_kv_heads or num_heads) * self.head_dim
        self.q_proj, self.k_proj = _linear(hidden_size, num_heads * self.head_dim), _linear(hidden_size, keys)
        self.v_proj, self.o_proj = _linear(hidden_size, keys), _linear(num_heads * self.head_dim, hidden_size)
        self.ridge = nn.Parameter(torch.full((num_heads,), math.log(math.expm1(ridge))))

    def _activate(self, t: Tensor, name: str) -> Tensor:
        return t

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = (split(t, self.head_dim) for t in self._project(x, memory, cu_seqlens))
        if self.qk_norm:
            q, k = (t * torch.rsqrt(t.square().mean(-1, keepdim=True) + 1e-6) for t in (q, k))
        inputs = {"q": q, "k": k, "v": v, "ridge": F.softplus(wide(self.ridge))}
        settings = {"window": self.window_size} if self.window_size else None
        o = run("local-linear-attention", inputs, memory, settings=settings, cu_seqlens=cu_seqlens)
        return self.o_proj(o.flatten(2))


class TTTLinear(_Projected):
    """TTT-Linear (Sun et al. 2024): a linear map with a layer norm, trained on mini-batches of tokens while it reads them."""

    def __init__(
        self,
        hidden_size: int = 1024,
        num_heads: int = 8,
        mini_batch_size: int = 16,
        base_lr: float = 1.0,
        use_gate: bool = True,
        norm_eps: float = 1e-6,
        layer_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.layer_idx, self.batch, self.base_lr = hidden_size, layer_idx, mini_batch_size, base_lr
        self.head_dim = hidden_size // num_heads
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden_size, hidden_size) for _ in range(3))
        self.lr_proj = nn.Linear(hidden_size, num_heads)
        self.W1 = nn.Parameter(torch.randn(num_heads, self.head_dim, self.head_dim) * 0.02)
        self.b1 = nn.Parameter(torch.zeros(num_heads, self.head_dim))
        self.ttt_norm_weight = nn.Parameter(torch.ones(num_heads, self.head_dim))
        self.ttt_norm_bias = nn.Parameter(torch.zeros(num_heads, self.head_dim))
        self.token_idx = nn.Parameter(torch.zeros(mini_batch_size))
        _output(self, hidden_size, hidden_size, self.head_dim, use_gate, norm_eps)

    def _activate(self, t: Tensor, name: str) -> Tensor:
        return t

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = (split(t, self.head_dim) for t in self._project(x, memory, cu_seqlens))
        place = 1.0 / torch.arange(1, self.batch + 1, dtype=wide(x).dtype)
        inputs = {"q": l2norm(q), "k": l2norm(k), "v": v}
        inputs["lr"] = self.base_lr * wide(self.lr_proj(x)).sigmoid() / self.head_dim
        inputs["token_eta"] = (place + self.token_idx).clamp(min=0)
        inputs["norm_w"], inputs["norm_b"] = self.ttt_norm_weight, self.ttt_norm_bias
        if memory is None or memory.seen == 0:  # later the weights are those of the state
            inputs["W0"], inputs["b0"] = self.W1, self.b1
        o = run("ttt-linear", inputs, memory, settings={"batch": self.batch}, cu_seqlens=cu_seqlens)
        return _finish(self, x, o)


class Titans(_Projected):
    """Titans' memory (Behrouz et al. 2025): a network trained with momentum and forgetting while it reads.

    Parameters
    ----------
    depth : int
        Matrices of the memory; 1 is linear.
    chunk_size : int
        Tokens whose gradients are taken at the same weights, a part of the model.
    """

    def __init__(
        self,
        hidden_size: int = 1024,
        num_heads: int = 8,
        depth: int = 2,
        width: int | None = None,
        chunk_size: int = 16,
        max_lr: float = 0.1,
        use_gate: bool = True,
        conv_size: int = 4,
        norm_eps: float = 1e-5,
        layer_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.layer_idx, self.chunk_size, self.max_lr = hidden_size, layer_idx, chunk_size, max_lr
        self.head_dim, self.depth, self.num_heads = hidden_size // num_heads, depth, num_heads
        self.width = width or 2 * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden_size, hidden_size) for _ in range(3))
        self._convolutions(conv_size, False, q=hidden_size, k=hidden_size, v=hidden_size)
        self.gates = nn.Linear(hidden_size, 3 * num_heads)
        nn.init.zeros_(self.gates.weight)
        with torch.no_grad():  # step, momentum, forgetting
            self.gates.bias.copy_(torch.tensor([0.0, 0.0, -4.0]).repeat_interleave(num_heads))
        sides = [self.head_dim] + [self.width] * (depth - 1) + [self.head_dim]
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(num_heads, a, b) / math.sqrt(a)) for a, b in zip(sides[:-1], sides[1:])]
        )
        _output(self, hidden_size, hidden_size, self.head_dim, use_gate, norm_eps)

    def mixed(self, x: Tensor, memory: Memory | None, cu_seqlens: Any, **kwargs: Any) -> Tensor:
        q, k, v = (split(t, self.head_dim) for t in self._project(x, memory, cu_seqlens))
        theta, eta, alpha = wide(self.gates(x)).sigmoid().chunk(3, -1)
        inputs = {"q": l2norm(q), "k": l2norm(k), "v": v, "theta": self.max_lr * theta, "eta": eta, "alpha": alpha}
        settings: dict[str, Any] = {"depth": self.depth, "batch": self.chunk_size}
        if self.depth > 1:
            settings["width"] = self.width
        if memory is None or memory.seen == 0:
            names = [i.name for i in _titans_inputs(settings) if i.optional]
            inputs.update(zip(names, self.weights))
        return _finish(self, x, run("titans", inputs, memory, settings=settings, cu_seqlens=cu_seqlens))


def _titans_inputs(settings: dict[str, Any]) -> Any:
    from ..._run import cached_plan

    return cached_plan("titans", settings, key_dim=4, value_dim=4).inputs
