#include "mpi/ring.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "families/pairs/attention/attention.h"
#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

using families::AttentionGradient;
using families::AttentionProblem;
using families::Sequence;
namespace attention = families::attention;

const Step* kernel_of(const Plan& plan) {
  for (const Step& step : plan.body()->pipeline.steps)
    if (step.kernel) return &step;
  return nullptr;
}

template <class T>
const Simd<T>& simd_of_plan(const Plan& plan) {
  if constexpr (sizeof(T) == 4) return *plan.body()->simd_f32;
  else return *plan.body()->simd_f64;
}

// Keys and values of a piece, sequence by sequence: counts [N], k [N, capacity, G, K], v [N, capacity, G, V].
template <class T>
struct Block {
  std::ptrdiff_t sequences, capacity, G, K, V;
  std::vector<std::byte> bytes;

  Block(const Shape& x, std::ptrdiff_t room)
      : sequences(x.batch),
        capacity(std::max<std::ptrdiff_t>(room, 1)),
        G(x.key_heads),
        K(x.key_dim),
        V(x.value_dim),
        bytes(static_cast<std::size_t>(sequences) *
              (sizeof(std::int64_t) + static_cast<std::size_t>(capacity * G * (K + V)) * sizeof(T))) {}
  std::int64_t* counts() { return reinterpret_cast<std::int64_t*>(bytes.data()); }
  View<T, 4> k() { return {numbers(), {sequences, capacity, G, K}, {capacity * G * K, G * K, K, 1}}; }
  View<T, 4> v() {
    return {numbers() + sequences * capacity * G * K, {sequences, capacity, G, V}, {capacity * G * V, G * V, V, 1}};
  }

 private:
  T* numbers() {
    return reinterpret_cast<T*>(bytes.data() + static_cast<std::size_t>(sequences) * sizeof(std::int64_t));
  }
};

template <class T>
View<const T, 4> const_view(const View<T, 4>& v) {
  return {v.data, v.extent, v.stride};
}

template <class T>
class Ring {
 public:
  Ring(Split::Body& split, const Piece& piece, const Inputs& inputs, State own)
      : b(split),
        plan(split.plan),
        x(split.plan.shape()),
        lengths(piece.lengths),
        in(inputs),
        rank(split.channel.rank()),
        last(split.channel.ranks() - 1),
        mine(x, 1) {
    std::int64_t before = 0;
    for (int r = 0; r <= last; ++r) {  // the most pairs of a sequence in every piece
      std::int64_t most = lengths[static_cast<std::size_t>(r)];
      if (!inputs.cu_seqlens.empty()) {
        most = 0;
        for (std::size_t n = 0; n + 1 < inputs.cu_seqlens.size(); ++n)
          most = std::max(most, std::min(inputs.cu_seqlens[n + 1], before + lengths[static_cast<std::size_t>(r)]) -
                                    std::max(inputs.cu_seqlens[n], before));
      }
      before += lengths[static_cast<std::size_t>(r)];
      rooms.push_back(most + (r == 0 ? piece.kept : 0));
    }
    for (int n = 0; n < x.batch; ++n)
      sequences.push_back(piece.packed.empty() ? Sequence{n, 0, piece.tokens}
                                               : Sequence{0, piece.packed[static_cast<std::size_t>(n)],
                                                          piece.packed[static_cast<std::size_t>(n) + 1]});
    tokens = piece.tokens, rows = piece.packed.empty() ? x.batch : 1;
    mine = Block<T>(x, rooms[static_cast<std::size_t>(rank)]);
    // The pairs of the piece, behind those that were there: the list as it is after the call.
    const View<T, 4> past_k = as_view<T, 4>(plan.state_tensor(own, "k")),
                     past_v = as_view<T, 4>(plan.state_tensor(own, "v"));
    const View<const T, 4> k = as_view<T, 4>(in.get("k")), v = as_view<T, 4>(in.get("v"));
    for (int n = 0; n < x.batch; ++n) {
      const Sequence& s = sequences[static_cast<std::size_t>(n)];
      const std::int64_t kept = plan.tokens_kept(own, n);
      past.push_back(kept), mine.counts()[n] = kept + (s.end - s.begin);
      for (std::ptrdiff_t i = 0; i < mine.counts()[n]; ++i)
        for (std::ptrdiff_t g = 0; g < x.key_heads; ++g) {
          for (std::ptrdiff_t j = 0; j < x.key_dim; ++j)
            mine.k()(n, i, g, j) = i < kept ? past_k(n, i, g, j) : k(s.row, s.begin + i - kept, g, j);
          for (std::ptrdiff_t j = 0; j < x.value_dim; ++j)
            mine.v()(n, i, g, j) = i < kept ? past_v(n, i, g, j) : v(s.row, s.begin + i - kept, g, j);
        }
    }
    const std::size_t scalars = static_cast<std::size_t>(rows * tokens * x.heads);
    o.assign(scalars * static_cast<std::size_t>(x.value_dim), T(0)), of_block = o;
    lse.assign(scalars, -std::numeric_limits<T>::infinity()), lse_of_block = lse;
  }

  // o and lse of all pairs that the piece sees.
  void forward(int tag) {
    go_round(tag, [&](int j, Block<T>& block) {
      AttentionProblem<T> p = problem(j, block);
      p.o = outputs(of_block), p.lse = scalars(lse_of_block);
      const Stopwatch stopwatch(b.channel.counts.local);
      note(attention::forward(p, simd_of_plan<T>(plan), work(p, false)));
      merge();
    });
  }

  void backward(int tag, const View<const T, 4>& d_o, const Outputs& d_inputs, State d_initial) {
    AttentionGradient<T> d;
    d.d_o = d_o;
    d.o = const_view(outputs(o)), d.lse = {lse.data(), {rows, tokens, x.heads}, {tokens * x.heads, x.heads, 1}};
    d.d_q = as_view<T, 4>(d_inputs.get("q"));
    std::vector<Block<T>> back;  // gradients of other ranks' blocks, to be sent
    Block<T> own(x, rooms[static_cast<std::size_t>(rank)]);
    go_round(tag, [&](int j, Block<T>& block) {
      AttentionProblem<T> p = problem(j, block);
      AttentionGradient<T> one = d;
      Block<T> gradient(x, rooms[static_cast<std::size_t>(j)]);
      if (j == rank) {
        one.d_k = as_view<T, 4>(d_inputs.get("k")), one.d_v = as_view<T, 4>(d_inputs.get("v"));
        if (p.past_count) one.d_past_k = gradient.k(), one.d_past_v = gradient.v();
      } else {
        one.d_past_k = gradient.k(), one.d_past_v = gradient.v();
      }
      {
        const Stopwatch stopwatch(b.channel.counts.local);
        note(attention::backward(p, one, simd_of_plan<T>(plan), work(p, true)));
      }
      if (j == rank) own = std::move(gradient);
      else b.channel.send(std::move(gradient.bytes), j, tag + last + 1);
    });
    for (int r = rank + 1; r <= last; ++r) {
      Block<T> theirs(x, rooms[static_cast<std::size_t>(rank)]);
      b.channel.receive(theirs.bytes, r, tag + last + 1, "the gradient of its keys and values");
      add(theirs, own, d_inputs);
    }
    if (!d_initial.data || rank > 0) return;
    const View<T, 4> d_k = as_view<T, 4>(plan.state_tensor(d_initial, "k")),
                     d_v = as_view<T, 4>(plan.state_tensor(d_initial, "v"));
    for (int n = 0; n < x.batch; ++n)
      for (std::int64_t i = 0; i < past[static_cast<std::size_t>(n)]; ++i)
        for (std::ptrdiff_t g = 0; g < x.key_heads; ++g) {
          for (std::ptrdiff_t j = 0; j < x.key_dim; ++j) d_k(n, i, g, j) = own.k()(n, i, g, j);
          for (std::ptrdiff_t j = 0; j < x.value_dim; ++j) d_v(n, i, g, j) = own.v()(n, i, g, j);
        }
  }

  View<T, 4> outputs(std::vector<T>& memory) {
    const std::ptrdiff_t H = x.heads, V = x.value_dim;
    return {memory.data(), {rows, tokens, H, V}, {tokens * H * V, H * V, V, 1}};
  }
  std::vector<T> o, lse;

 private:
  // use(j, block) of the own block and of those before it, which go on to the next rank first.
  template <class Use>
  void go_round(int tag, Use&& use) {
    if (rank < last) b.channel.send(mine.bytes, rank + 1, tag + rank);
    use(rank, mine);
    for (int j = rank - 1; j >= 0; --j) {
      Block<T> block(x, rooms[static_cast<std::size_t>(j)]);
      b.channel.receive(block.bytes, rank - 1, tag + j, "the keys and values of rank " + std::to_string(j));
      if (rank < last) b.channel.send(block.bytes, rank + 1, tag + j);
      use(j, block);
    }
  }

  AttentionProblem<T> problem(int j, Block<T>& block) {
    AttentionProblem<T> p;
    p.sequences = sequences;
    p.heads = x.heads, p.key_heads = x.key_heads, p.key_dim = x.key_dim, p.value_dim = x.value_dim;
    p.scale = static_cast<T>(kernel_of(plan)->scale);
    p.q = as_view<T, 4>(in.get("q"));
    p.past_k = const_view(block.k()), p.past_v = const_view(block.v());
    if (j == rank) {  // its own pairs as they come, after those of the initial state
      p.k = as_view<T, 4>(in.get("k")), p.v = as_view<T, 4>(in.get("v"));
      const bool has_past = std::any_of(past.begin(), past.end(), [](std::int64_t n) { return n > 0; });
      if (has_past) p.past_count = past.data();
      else p.past_k = {}, p.past_v = {};
    } else {
      p.causal = false, p.past_count = block.counts();
    }
    return p;
  }
  View<T, 3> scalars(std::vector<T>& memory) {
    return {memory.data(), {rows, tokens, x.heads}, {tokens * x.heads, x.heads, 1}};
  }

  void merge() {
    const std::size_t V = static_cast<std::size_t>(x.value_dim);
    for (std::size_t i = 0; i < lse.size(); ++i) {
      const T a = lse[i], c = lse_of_block[i], top = std::max(a, c);
      if (top == -std::numeric_limits<T>::infinity()) continue;
      const T sum = top + std::log(std::exp(a - top) + std::exp(c - top));
      const T of_a = std::exp(a - sum), of_c = std::exp(c - sum);
      for (std::size_t j = i * V; j < (i + 1) * V; ++j) o[j] = of_a * o[j] + of_c * of_block[j];
      lse[i] = sum;
    }
  }

  // Gradients of the own block that another rank has made: of the pairs before the call, and of the piece's own.
  void add(Block<T>& theirs, Block<T>& own, const Outputs& d_inputs) {
    const View<T, 4> d_k = as_view<T, 4>(d_inputs.get("k")), d_v = as_view<T, 4>(d_inputs.get("v"));
    for (int n = 0; n < x.batch; ++n) {
      const Sequence& s = sequences[static_cast<std::size_t>(n)];
      const std::int64_t kept = past[static_cast<std::size_t>(n)];
      for (std::ptrdiff_t i = 0; i < mine.counts()[n]; ++i)
        for (std::ptrdiff_t g = 0; g < x.key_heads; ++g) {
          for (std::ptrdiff_t j = 0; j < x.key_dim; ++j)
            if (i < kept) own.k()(n, i, g, j) += theirs.k()(n, i, g, j);
            else if (d_k) d_k(s.row, s.begin + i - kept, g, j) += theirs.k()(n, i, g, j);
          for (std::ptrdiff_t j = 0; j < x.value_dim; ++j)
            if (i < kept) own.v()(n, i, g, j) += theirs.v()(n, i, g, j);
            else if (d_v) d_v(s.row, s.begin + i - kept, g, j) += theirs.v()(n, i, g, j);
        }
    }
  }

  Workspace work(const AttentionProblem<T>& p, bool backward) {
    std::ptrdiff_t longest = 0, most = 0;
    for (std::size_t n = 0; n < sequences.size(); ++n)
      longest = std::max(longest, p.tokens_of(n)), most = std::max(most, p.past_of(n));
    const std::size_t bytes =
        attention::workspace_bytes<T>(x.heads, x.key_heads, x.key_dim, x.value_dim, longest, most, 0, backward);
    if (b.work.size() < bytes) b.work.resize(bytes);
    return {b.work.data(), b.work.size()};
  }
  void note(Status status) {
    b.note(status, [&] { return "attention: " + std::string(to_string(status)); });
  }

  Split::Body& b;
  const Plan& plan;
  const Shape& x;
  const std::vector<std::int64_t>& lengths;
  const Inputs& in;
  int rank, last;
  std::vector<std::int64_t> rooms, past;
  std::vector<Sequence> sequences;
  std::ptrdiff_t tokens = 0, rows = 1;
  Block<T> mine;
  std::vector<T> of_block, lse_of_block;
};

template <class T>
void forward_typed(Split::Body& b, const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs) {
  Inputs local = inputs;
  local.cu_seqlens = piece.packed;
  Ring<T> ring(b, piece, inputs, state);
  ring.forward(0);
  if (const Tensor o = outputs.get("o")) copy_numbers(Tensor(ring.outputs(ring.o)), o);
  const Workspace work = b.work_for(b.plan, std::max<std::int64_t>(piece.kept + piece.tokens, 1), false);
  b.note(b.plan.forward(local, state, {}, work, b.settings.form),  // appends the pairs
         [&] { return b.plan.diagnose(local, state, {}, work, b.settings.form); });
}

}  // namespace

bool rings(const Plan& plan) {
  const Plan::Body& body = *plan.body();
  const Pipeline& p = body.pipeline;
  if (p.noncausal || body.options.state_type || body.options.tensors || body.options.rewind > 0) return false;
  if (plan.name() != "softmax-attention" || p.steps.size() != 1 || p.most_pairs >= 0) return false;
  const Step& step = p.steps[0];
  if (!step.kernel || step.kernel->name != "attention") return false;
  for (std::size_t slot = 0; slot < step.operands.size(); ++slot) {
    const int operand = step.operands[slot];
    if (slot > Slot::v && operand >= 0) return false;  // gates, a sink, a bandwidth
    if (slot <= Slot::v && (operand < 0 || p.values[static_cast<std::size_t>(operand)].from != Value::From::input))
      return false;
  }
  return true;
}

void Split::Body::ring_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                               State start) {
  if (channel.rank() > 0) note(plan.reset(state), [] { return std::string("the state cannot be reset"); });
  if (start.data) {
    note(plan.reset(start), [] { return std::string("start cannot be reset"); });
    note(plan.grow(state, start), [] { return std::string("start is too small"); });
  }
  if (plan.options().type == Type::f64) forward_typed<double>(*this, piece, inputs, state, outputs);
  else forward_typed<float>(*this, piece, inputs, state, outputs);
}

void Split::Body::ring_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                const Outputs& d_inputs, State d_initial) {
  const State first{const_cast<void*>(start.data), start.bytes};  // only read
  if (d_initial.data) note(plan.zero(d_initial), [] { return std::string("d_initial is too small"); });
  const auto run = [&]<class T>(T) {
    Ring<T> ring(*this, piece, inputs, first);
    ring.forward(0);
    ring.backward(channel.ranks(), as_view<T, 4>(d_outputs.get("o")), d_inputs, d_initial);
  };
  if (plan.options().type == Type::f64) run(double{});
  else run(float{});
}

}  // namespace ttr::mpi
