// A neural memory (neural.h) and softmax attention (attention.h) in one layer: the three arrangements of Titans.
//
//   attention  y_t = Attn(q_t ; persistent pairs, own pairs up to t): one softmax over all of them. The persistent
//              pairs are learned, seen by every query and outside of any window or segment.
//   (x)        y (x) m = norm(y) w_y * sigmoid(norm(m) w_m) ,  norm(x) = x / sqrt(mean(x^2) + eps)
//
//   gate (MAG)     y = Attn(q, k, v) in a window ;  m = M(memory.q, memory.k, memory.v) ;  o = y (x) m
//   layer (MAL)    m = M(memory.q, memory.k, memory.v) ;  o = Attn(m wq, m wk, m wv) in a window
//   context (MAC)  segments of C = memory.batch tokens. M_0: the memory before the segment, M_t: after token t
//                  h_t = M_0(memory.q_t) ;  y_t = Attn(q_t ; persistent, (h_s wk, h_s wv), (k_s, v_s)), s <= t of the
//                  segment ;  M learns (y_t uk, y_t uv) ;  o_t = y_t (x) M_t(y_t uq)
//
// q [B, T, H, K], k [B, T, G, K], v [B, T, G, V] with V = memory.value_dim; query head h reads pair head h / (H/G).
// The maps are per head: wq, wk [H, V, K], wv [H, V, V], uq, uk [H, V, memory.key_dim], uv [H, V, V]. In `layer` and
// for the retrieved pairs of `context`, pairs have the H heads of the memory. Source: arXiv 2501.00663, section 4.
//
// Where the paper leaves a choice.
//   M([P; x]) of gate and layer: the memory may learn `prefix` pairs of its own before the first token of a sequence.
//     The paper's gates are functions of a token, persistent ones included; here they are given with the pairs. The
//     default, 0, learns none.
//   In the paper a query sees what was retrieved for all of its segment; here only for tokens up to its own, so that
//     o_t depends on tokens up to t alone and every cut of a sequence gives the same answer.
//   The memory of a segment moves token by token, by gradients at M_0. memory.read_before reads M_{t-1}, not M_t.
//   w_y without data: y is not normed.
//
// The softmax over several lists of pairs is the mean of their answers with weights e^{lse_i - lse}, lse the log of
// the sum of e^{lse_i}. Its gradient needs no gradient of lse_i: with the *joint* lse and answer, the weights e^{x -
// lse} of every list are already those of the joint softmax, and the backward of attention.h is that of its share.
//
// State: the memory's (memory.count, memory.state), and pairs (PairState) of pair_rows() rows per sequence.
//   gate, layer   the newest min(tokens seen, window - 1) pairs, oldest first, in the first rows
//   context       row j: pair j of the segment, for j < C - 1 ; `retrieved` likewise. The first (count mod C) rows
//                 matter, others are left as they are.
// Rows that do not matter are not read.
//
// Forms: step, recurrent, chunk and best, which are those of the memory; attention has one algorithm. parallel, scan:
// not_supported. Scratch: O(T) numbers per head for the longest sequence; forward of context O(C).
//
// Traps: memory.count counts the prefix; a count between 0 and the prefix is out_of_domain. A lazy memory has no
// weights before a segment: not with context. With a window of W the list has W - 1 rows, none for W = 1. In context
// the keys of the memory have H heads, and so has its history_k; memory.scale is on memory.q and on y uq. A row of
// zeros has norm 0, and its gradient is 1 / sqrt(eps) = 1000 times as large.
#pragma once

#include <cstddef>
#include <span>

#include "families/network/neural/neural.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

enum class Arrangement { gate, layer, context };

struct ArrangementModel {
  Arrangement kind = Arrangement::gate;
  NeuralModel memory;
  int heads = 1;              // H, of queries, of the memory's values and of the answers
  int memory_key_heads = 1;   // of memory.q and memory.k
  int pair_heads = 1;         // G; layer: H
  int key_dim = 1;            // K of attention
  std::ptrdiff_t window = 1;  // pairs that a query sees besides the persistent ones, its own included; gate, layer
  int persistent = 0;         // pairs
  int prefix = 0;             // pairs that the memory learns first; gate, layer
  double norm_eps = 1e-6;     // of (x)
};

/// [N, rows, G, K], [N, rows, G, V]; retrieved: [N, rows, H, K], [N, rows, H, V], context. No rows: may be null.
template <class T>
struct PairState {
  T *k = nullptr, *v = nullptr, *retrieved_k = nullptr, *retrieved_v = nullptr;
};

/// Pairs that the memory learns before a sequence.
template <class T>
struct MemoryPrefix {
  View<T, 3> k, v;  // [prefix, memory_key_heads, memory.key_dim], [prefix, H, V]
  View<T, 3> rate;  // [prefix, H, rates]; no data = 1. Strides may be zero, here and below.
  View<T, 2> momentum, decay, gain, threshold, weight;  // [prefix, H], as in NeuralProblem
};

template <class T>
struct ArrangementProblem {
  ArrangementModel model;
  std::span<const Sequence> sequences;  // sequence n owns states n
  /// q, k, v (context: q alone), scale, gates, norms, count and state. Not read: model, sequences, heads, o.
  NeuralProblem<T> memory;
  T scale = 1;                                  // on q.k of the attention
  View<const T, 4> q, k, v;                     // gate, context
  View<const T, 3> wq, wk, wv;                  // layer; context: wk, wv
  View<const T, 3> uq, uk, uv;                  // context
  View<const T, 3> persistent_k, persistent_v;  // [persistent, G, K], [persistent, G, V]
  View<const T, 2> answer_weight;               // [H, V], w_y of gate and context; no data: y as it is
  View<const T, 2> memory_weight;               // [H, V], w_m of gate and context; no data = 1
  MemoryPrefix<const T> prefix;
  PairState<T> pairs;  // start in, end out
  View<T, 4> o;        // [B, T, H, V]; no data = outputs not wanted
};

/// Gradients are added to (+=). d_o, memory.d_final and d_final come in (no data, null: zero), the others go out
/// where there is data. memory.d_o is not read.
template <class T>
struct ArrangementGradient {
  View<const T, 4> d_o;
  NeuralGradient<T> memory;
  PairState<const T> d_final;
  PairState<T> d_initial;
  View<T, 4> d_q, d_k, d_v;
  View<T, 3> d_wq, d_wk, d_wv, d_uq, d_uk, d_uv, d_persistent_k, d_persistent_v;
  View<T, 2> d_answer_weight, d_memory_weight;
  MemoryPrefix<T> d_prefix;
};

namespace arrangement {

/// Rows of PairState.
std::ptrdiff_t pair_rows(const ArrangementModel&) noexcept;

/// `longest` is the length of the longest sequence; 0 if the model is not sound.
template <class T>
std::size_t workspace_bytes(const ArrangementModel&, std::ptrdiff_t longest, Form, int chunk, bool backward) noexcept;

template <class T>
Status forward(const ArrangementProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// memory.count, memory.state and pairs are the *initial* ones and are only read; `o` is ignored.
template <class T>
Status backward(const ArrangementProblem<T>&, const ArrangementGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace arrangement
}  // namespace ttr::families
