"""The names of Mamba and causal-conv1d: selective_scan_fn, mamba_chunk_scan_combined, causal_conv1d_fn and their steps."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .._library import Error
from ._call import apply
from ._gates import wide
from ._tensors import check_tensor


def _check(**tensors: Tensor | None) -> None:
    for name, t in tensors.items():
        if t is not None:
            check_tensor(name, t)


def _differentiated(*tensors: Tensor | None) -> bool:
    """Whether a call is recorded for gradients: backward then needs a copy of what the call changes in place."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _places(name: str, indices: Tensor, batch: int, slots: int) -> tuple[Tensor, Tensor | None]:
    """Where the states of the rows of a batch lie; and which rows those are, if some are padding: index < 0."""
    if tuple(indices.shape) != (batch,) or indices.dtype not in (torch.int32, torch.int64):
        kind = str(indices.dtype).split(".")[-1]
        raise Error(
            f"{name} is {kind} {list(indices.shape)}; it is int32 or int64 [{batch}], a place for each row of x"
        )
    given = [(place, row) for row, place in enumerate(indices.tolist()) if place >= 0]
    rows: dict[int, int] = {}
    for place, row in given:
        if place >= slots:
            raise Error(
                f"{name} is {place} for row {row} of x; there are {slots} states, 0 to {slots - 1}, and -1 is padding"
            )
        if rows.setdefault(place, row) != row:
            raise Error(f"{name} is {place} for the rows {rows[place]} and {row} of x; each has a state of its own")
    if len(given) == batch:
        return indices.long(), None
    return torch.tensor(list(rows), dtype=torch.long), torch.tensor(list(rows.values()), dtype=torch.long)


def _unpadded(x: Tensor, rows: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """What is computed of some rows of x, in their places; 0 elsewhere."""
    if not len(rows):
        return torch.zeros_like(x)
    y = run(x[rows])
    return y.new_zeros(x.shape).index_copy(0, rows, y)


def _silu_or_none(activation: str | None) -> str:
    if activation not in (None, "silu", "swish"):
        raise Error(f"activation is '{activation}'; a convolution has None, 'silu' or 'swish'")
    return "silu" if activation else "none"


def _packed(seq_idx: Tensor, batch: int, time: int) -> np.ndarray:
    """Bounds of the runs of equal numbers in every row, as if the rows lay one after another."""
    if tuple(seq_idx.shape) != (batch, time):
        raise Error(f"seq_idx has the shape {tuple(seq_idx.shape)}; it has a number for every token, [{batch}, {time}]")
    rows = seq_idx.cpu().numpy()
    begins = [r * time + t for r in range(batch) for t in range(time) if t == 0 or rows[r, t] != rows[r, t - 1]]
    return np.array([*begins, batch * time], np.int64)


def _convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial: Tensor | None,
    activation: str | None,
    final: bool = False,
    bounds: Any = None,
) -> tuple[Tensor, Tensor | None]:
    """x [B, T, D] -> y [B, T, D] and, if wanted, the last W - 1 inputs [N, W - 1, D]."""
    width = weight.shape[1]
    settings = {"width": width, "activation": _silu_or_none(activation), "bias": "none" if bias is None else "input"}
    inputs = {"x": x.unsqueeze(2), "w": weight.unsqueeze(0)}
    if bias is not None:
        inputs["b"] = bias.unsqueeze(0)
    parts = {"x": initial.unsqueeze(1)} if initial is not None else {}
    names = ("x",) if final else ()
    y, *state = apply(
        "short-convolution", inputs, initial=parts, outputs=("y",), final=names, settings=settings, cu_seqlens=bounds
    )
    return y.squeeze(2), state[0].squeeze(1) if state else None


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """A causal convolution per channel: x [B, D, T], weight [D, W], states [B, D, W - 1]; ``causal_conv1d``'s.

    `seq_idx` [B, T] gives the number of the sequence of every token; a negative one is padding, whose output is 0.
    """
    _check(x=x, weight=weight, bias=bias, initial_states=initial_states)
    if x.dim() != 3 or weight.dim() != 2 or weight.shape[0] != x.shape[1]:
        raise Error(f"x has the shape {tuple(x.shape)} and weight {tuple(weight.shape)}; they are [B, D, T] and [D, W]")
    if seq_idx is not None and (initial_states is not None or return_final_states):
        raise Error("seq_idx packs several sequences into a row; then there are no initial_states and no final states")
    batch, channels, time = x.shape
    if seq_idx is not None:
        rows = x.transpose(1, 2).reshape(1, batch * time, channels)
        y, _ = _convolve(rows, weight, bias, None, activation, bounds=_packed(seq_idx, batch, time))
        y = y.reshape(batch, time, channels)
        padding = seq_idx < 0
        return (y.masked_fill(padding.unsqueeze(-1), 0.0) if bool(padding.any()) else y).transpose(1, 2)
    initial = initial_states.transpose(1, 2) if initial_states is not None else None
    wants = return_final_states or final_states_out is not None
    y, state = _convolve(x.transpose(1, 2), weight, bias, initial, activation, wants)
    y = y.transpose(1, 2)
    if state is None:
        return y
    final = state.transpose(1, 2).to(x.dtype)
    if final_states_out is not None:
        with torch.no_grad():
            final_states_out.copy_(final)
    return (y, final) if return_final_states else y


def _push(conv_state: Tensor, x: Tensor) -> None:
    """One token x [B, D, 1] into the state, whose oldest goes."""
    if conv_state.is_contiguous():  # all numbers move by one; the next row's first, now at the end, is overwritten
        numbers = conv_state.view(-1)
        numbers[:-1] = numbers[1:].clone()
        conv_state[..., -1:] = x
    else:
        conv_state.copy_(torch.cat([conv_state, x], -1)[..., 1:])


def _one_token(x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """One token, x [B, D, 1]: a product and a few sums per channel, which take PyTorch less than a call of ttr."""
    width, length, silu = weight.shape[1], conv_state.shape[-1], _silu_or_none(activation) == "silu"
    taps, sums = wide(weight), [] if bias is None else [wide(bias)]
    if length >= width:
        _push(conv_state, x)
        window = conv_state[..., length - width :]
    else:  # room for the tokens before this one alone
        sums.append(wide(x[..., 0]) * taps[:, -1])
        window, taps = conv_state, taps[:, :-1]
    if _differentiated(x, conv_state, weight, bias):  # the state changes before the gradient comes
        window = window.clone()
    sums += (wide(window) * taps).unbind(-1)
    y = sum(sums[1:], sums[0])
    if length < width:
        _push(conv_state, x)
    return (F.silu(y) if silu else y).to(x.dtype).unsqueeze(-1)


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """One token or a few: x [B, D] or [B, D, T]; conv_state [B, D, at least W - 1] is updated in place.

    With `cache_seqlens` [B] the state is a ring whose next place is ``cache_seqlens % length``. `conv_state_indices`
    [B] says which state each row of x goes on from; a row with a negative one is padding: its output is 0, no state
    changes. Gradients go through the state, as in plain PyTorch; ``torch.no_grad()`` keeps nothing for them.
    """
    _check(x=x, conv_state=conv_state, weight=weight, bias=bias)
    if conv_state_indices is not None:
        conv_state_indices, rows = _places("conv_state_indices", conv_state_indices, x.shape[0], conv_state.shape[0])
        if rows is not None:
            seen = None if cache_seqlens is None else cache_seqlens[rows]
            rest = (weight, bias, activation, seen, conv_state_indices)
            return _unpadded(x, rows, lambda t: causal_conv1d_update(t, conv_state, *rest))
    one = x.dim() == 2
    tokens = x.unsqueeze(-1) if one else x
    width, length = weight.shape[1], conv_state.shape[-1]
    if length < width - 1:
        raise Error(f"conv_state keeps {length} tokens; a convolution of width {width} needs {width - 1}")
    rows, channels = len(conv_state if conv_state_indices is None else conv_state_indices), conv_state.shape[1:-1]
    fits = channels == weight.shape[:1] == (weight if bias is None else bias).shape[:1]
    fits = fits and tokens.shape == (rows, *channels, 1) and x.dtype == conv_state.dtype == weight.dtype
    if fits and cache_seqlens is None:
        kept = conv_state if conv_state_indices is None else conv_state[conv_state_indices]
        y = _one_token(tokens, kept, weight, bias, activation)
        if conv_state_indices is not None:
            conv_state[conv_state_indices] = kept
        return y.squeeze(-1) if one else y
    kept = conv_state if conv_state_indices is None else conv_state[conv_state_indices]
    if _differentiated(x, conv_state, weight, bias):
        kept = kept.clone()
    order = None
    if cache_seqlens is not None:
        order = (cache_seqlens.long().unsqueeze(1) + torch.arange(length)) % length  # oldest first
        kept = kept.gather(2, order.unsqueeze(1).expand(-1, kept.shape[1], -1))
    initial = kept[..., length - (width - 1) :].transpose(1, 2) if width > 1 else kept[..., :0].transpose(1, 2)
    y, _ = _convolve(tokens.transpose(1, 2), weight, bias, initial.contiguous(), activation)
    new = torch.cat([kept, tokens.to(kept.dtype)], -1)[..., -length:]
    if order is not None:  # the newest token goes to the place behind the one before it
        assert cache_seqlens is not None
        moved = (cache_seqlens.long().unsqueeze(1) + tokens.shape[-1] + torch.arange(length)) % length
        new = torch.empty_like(new).scatter_(2, moved.unsqueeze(1).expand_as(new), new)
    if conv_state_indices is None:
        conv_state.copy_(new)
    else:
        conv_state[conv_state_indices] = new
    y = y.transpose(1, 2)
    return y.squeeze(-1) if one else y


def _groups(t: Tensor, name: str, batch: int, states: int, time: int) -> Tensor:
    """B or C of a selective scan as [B, T, G, N]."""
    if t.dim() == 3 and tuple(t.shape) == (batch, states, time):
        return t.transpose(1, 2).unsqueeze(2)
    if t.dim() == 4 and t.shape[0] == batch and t.shape[2:] == (states, time):
        return t.permute(0, 3, 1, 2)
    raise Error(f"{name} has the shape {tuple(t.shape)}; it is [{batch}, {states}, {time}] or [{batch}, G, {states}, {time}]")


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """Mamba-1: u, delta, z [B, D, T]; A [D, N]; B, C [B, N, T], [B, G, N, T] or [D, N]; ``mamba_ssm``'s."""
    _check(u=u, delta=delta, A=A, B=B, C=C, D=D, z=z, delta_bias=delta_bias)
    if u.dim() != 3 or A.dim() != 2 or A.shape[0] != u.shape[1]:
        raise Error(f"u has the shape {tuple(u.shape)} and A {tuple(A.shape)}; they are [B, D, T] and [D, N]")
    batch, channels, time = u.shape
    states = A.shape[1]
    if B.dim() == 2 or C.dim() == 2:  # a row per channel: every channel is a head of its own
        sides = [
            t.expand(batch, time, channels, states)
            if t.dim() == 2
            else _groups(t, name, batch, states, time).repeat_interleave(channels // (t.shape[1] if t.dim() == 4 else 1), 2)
            for t, name in ((wide(B), "B"), (wide(C), "C"))  # their gradients are sums over heads: rounded once
        ]
    else:
        sides = [_groups(B, "B", batch, states, time), _groups(C, "C", batch, states, time)]
    if sides[0].shape[2] != sides[1].shape[2] or channels % sides[0].shape[2]:
        raise Error(f"B has {sides[0].shape[2]} groups and C {sides[1].shape[2]}; they have the same number, which divides {channels}")
    heads = sides[0].shape[2]

    def split(t: Tensor) -> Tensor:  # [B, D, T] -> [B, T, H, V], a view
        return t.reshape(batch, heads, channels // heads, time).permute(0, 3, 1, 2)

    inputs = {"u": split(u), "delta": split(delta), "A": A.reshape(heads, -1, states), "B": sides[0], "C": sides[1]}
    settings = {"softplus": "yes" if delta_softplus else "no"}
    for name, key, t in (("D", "skip", D), ("delta_bias", "bias", delta_bias)):
        settings[key] = "none" if t is None else "input"
        if t is not None:
            inputs[name] = t.reshape(heads, -1)
    settings["gate"] = "none" if z is None else "input"
    if z is not None:
        inputs["z"] = split(z)
    y, *state = apply(
        "mamba-1", inputs, outputs=("y",), final=("S",) if return_last_state else (), settings=settings
    )
    out = y.permute(0, 2, 3, 1).reshape(batch, channels, time)
    if not return_last_state:
        return out
    return out, state[0].transpose(2, 3).reshape(batch, channels, states)


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    """One token of Mamba: state [B, D, N] or [B, H, P, N], updated in place; x [B, D] or [B, H, P].

    `state_batch_indices` [B] says which state each row of x goes on from; a row with a negative one is padding: its
    output is 0, and no state changes. Gradients go through the state, as in plain PyTorch; ``torch.no_grad()`` keeps
    nothing for them.
    """
    _check(state=state, x=x, dt=dt, A=A, B=B, C=C, D=D, z=z, dt_bias=dt_bias)
    if state_batch_indices is not None:
        state_batch_indices, rows = _places("state_batch_indices", state_batch_indices, x.shape[0], state.shape[0])
        if rows is not None:
            gate = None if z is None else z[rows]
            rest = (dt[rows], A, B[rows], C[rows], D, gate, dt_bias, dt_softplus, state_batch_indices)
            return _unpadded(x, rows, lambda t: selective_state_update(state, t, *rest))
    flat = state.dim() == 3
    kept = state if state_batch_indices is None else state[state_batch_indices]
    if _differentiated(state, x, dt, A, B, C, D, z, dt_bias):
        kept = kept.clone()
    groups = B.shape[1] if B.dim() == 3 else 1

    def heads_of(t: Tensor, last: int) -> Tensor:  # as [..., H, P]: channels without heads are G heads
        return t.reshape(*t.shape[: t.dim() - last], groups, -1, *t.shape[t.dim() - last + 1 :]) if flat else t

    here = heads_of(kept, 2)  # [B, H, P, N]
    inputs = {"u": heads_of(x, 1).unsqueeze(1), "delta": heads_of(dt, 1).unsqueeze(1), "A": heads_of(A, 2)}
    inputs["B"] = (B if B.dim() == 3 else B.unsqueeze(1)).unsqueeze(1)
    inputs["C"] = (C if C.dim() == 3 else C.unsqueeze(1)).unsqueeze(1)
    settings = {"softplus": "yes" if dt_softplus else "no", "skip": "none", "gate": "none", "bias": "none"}
    if D is not None:
        inputs["D"], settings["skip"] = heads_of(D, 1), "input"
    if z is not None:
        inputs["z"], settings["gate"] = heads_of(z, 1).unsqueeze(1), "input"
    if dt_bias is not None:
        inputs["delta_bias"], settings["bias"] = heads_of(dt_bias, 1), "input"
    start = {"S": here.transpose(2, 3)}
    y, S = apply("mamba-1", inputs, initial=start, outputs=("y",), final=("S",), settings=settings)
    new = S.transpose(2, 3).reshape(kept.shape)
    if state_batch_indices is None:
        state.copy_(new)
    else:
        state[state_batch_indices] = new.to(state.dtype)
    return y.squeeze(1).reshape(x.shape)


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Any:
    """Mamba-2: x [B, T, H, P], dt [B, T, H], A [H], B, C [B, T, G, N]; states [B, H, P, N]; ``mamba_ssm``'s.

    `chunk_size` is a matter of speed there, and of no importance here.
    """
    _check(x=x, dt=dt, A=A, B=B, C=C, D=D, z=z, dt_bias=dt_bias, initial_states=initial_states)
    if x.dim() != 4 or dt.dim() != 3 or A.dim() != 1:
        raise Error(f"x, dt and A have {x.dim()}, {dt.dim()} and {A.dim()} axes; they are [B, T, H, P], [B, T, H] and [H]")
    dt = wide(dt)
    if dt_bias is not None:
        dt = dt + wide(dt_bias)
    if dt_softplus:
        dt = F.softplus(dt)
    if tuple(dt_limit) != (0.0, float("inf")):
        dt = dt.clamp(*dt_limit)
    batch, time, heads, channels = x.shape
    bounds = None
    inputs = {"x": x, "dt": dt, "A": A, "B": B, "C": C}
    if seq_idx is not None:
        if initial_states is not None:
            raise Error("seq_idx begins every sequence anew; there are no initial_states with it")
        bounds = _packed(seq_idx, batch, time)
        inputs = {n: t.reshape(1, batch * time, *t.shape[2:]) if n != "A" else t for n, t in inputs.items()}
    elif cu_seqlens is not None and return_varlen_states:
        if batch != 1:
            raise Error(f"x has the batch {batch}; with cu_seqlens the sequences lie one after another in a batch of 1")
        bounds = cu_seqlens.cpu().numpy().astype(np.int64)
    own_skip = D is not None and D.dim() == 2
    settings = {"skip": "input" if D is not None and not own_skip else "none"}
    if D is not None and not own_skip:
        inputs["D"] = D
    initial = {"S": initial_states.transpose(2, 3)} if initial_states is not None else {}
    wants = return_final_states or return_varlen_states
    y, *state = apply(
        "mamba-2", inputs, initial=initial, outputs=("y",), final=("S",) if wants else (), settings=settings, cu_seqlens=bounds
    )
    y = y.reshape(x.shape)
    if own_skip:
        assert D is not None
        y = (wide(y) + wide(x) * wide(D)).to(y.dtype)
    if z is not None:
        y = (wide(y) * F.silu(wide(z))).to(y.dtype)
    if not wants:
        return y
    states = state[0].transpose(2, 3)
    results: list[Tensor] = [y]
    if return_final_states:
        if bounds is None:
            results.append(states)
        else:  # the last sequence of every row
            last = [int(np.searchsorted(bounds, (r + 1) * time, side="left")) - 1 for r in range(batch)]
            results.append(states[last])
    if return_varlen_states:
        results.append(states)
    return tuple(results)
