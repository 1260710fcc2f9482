#include "mpi/ring_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::mpi {
namespace {

namespace attention = families::attention;
enum Tag { of_pairs, of_queries, of_answers, of_gradients };

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T, std::size_t N>
View<const T, N> read(const View<T, N>& v) {
  return {v.data, v.extent, v.stride};
}

// A row [heads, dim] of each.
template <class T>
void copy_row(const View<const T, 4>& from, std::ptrdiff_t row, std::ptrdiff_t t, const View<T, 4>& to,
              std::ptrdiff_t to_row, std::ptrdiff_t to_t) {
  for (std::ptrdiff_t h = 0; h < to.extent[2]; ++h) {
    const T* const a = &from(row, t, h, 0);
    T* const b = &to(to_row, to_t, h, 0);
    if (from.stride[3] == 1 && to.stride[3] == 1) std::copy_n(a, to.extent[3], b);
    else
      for (std::ptrdiff_t d = 0; d < to.extent[3]; ++d) b[d * to.stride[3]] = a[d * from.stride[3]];
  }
}
// to [rows, 0 .. count - 1] = from [rows, begin .. ]; nothing where there is nothing.
template <class T>
void copy_rows(const View<const T, 4>& from, std::int64_t begin, std::int64_t count, const View<T, 4>& to) {
  if (!from) return;
  for (std::ptrdiff_t b = 0; b < to.extent[0]; ++b)
    for (std::ptrdiff_t t = 0; t < count; ++t) copy_row(from, b, begin + t, to, b, t);
}
template <class N>
View<N, 4> with_last(const View<N, 3>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2], 1}, {v.stride[0], v.stride[1], v.stride[2], 0}};
}

}  // namespace

template <class T>
RingAttention<T>::RingAttention(Channel& channel, const RingSizes& sizes, const Piece& piece,
                                std::span<const std::int64_t> ends)
    : channel_(channel),
      x_(sizes),
      lengths_(piece.lengths),
      kept_(piece.kept),
      rows_(ends.empty() ? sizes.batch : 1),
      rank_(channel.rank()),
      ranks_(channel.ranks()),
      zeros_(at(sizes.value_dim)) {
  std::int64_t before = 0;
  for (int r = 0; r < ranks_; ++r) {
    const std::int64_t length = lengths_[at(r)];
    std::vector<Sequence>& own = pieces_.emplace_back();
    std::int64_t most = 0;
    for (int n = 0; n < x_.batch; ++n) {
      if (ends.empty()) own.push_back({n, 0, length});
      else
        own.push_back({0, std::clamp<std::int64_t>(ends[at(n)] - before, 0, length),
                       std::clamp<std::int64_t>(ends[at(n) + 1] - before, 0, length)});
      most = std::max<std::int64_t>(most, own.back().end - own.back().begin);
    }
    before += length;
    rooms_.push_back(most + (r == 0 ? kept_ : 0));
  }
}

// Nothing, if no sequence has both; else one task, or two at half of the way round.
template <class T>
std::vector<RingTask> RingAttention<T>::between(int queries, int pairs) const {
  if (pairs < 0 || queries >= ranks_ || pairs >= queries) return {};
  bool sees = false;
  for (int n = 0; n < x_.batch; ++n) {
    const Sequence &of_queries = pieces_[at(queries)][at(n)], &of_pairs = pieces_[at(pairs)][at(n)];
    sees |= of_queries.end > of_queries.begin && (of_pairs.end > of_pairs.begin || (pairs == 0 && kept_ > 0));
  }
  if (!sees) return {};
  const int distance = queries - pairs;
  const std::int64_t all = lengths_[at(queries)], half = (all + 1) / 2;
  if (lengths_[at(pairs)] == 0 || 2 * distance < ranks_) return {{queries, pairs, 0, all, false}};
  if (2 * distance > ranks_) return {{queries, pairs, 0, all, true}};
  std::vector<RingTask> two = {{queries, pairs, 0, half, false}};
  if (half < all) two.push_back({queries, pairs, half, all, true});
  return two;
}

template <class T>
std::vector<families::Sequence> RingAttention<T>::cut(const RingTask& task) const {
  std::vector<Sequence> cut = pieces_[at(task.queries)];
  for (Sequence& s : cut) {
    s.begin = std::clamp<std::ptrdiff_t>(s.begin, task.begin, task.end) - task.begin;
    s.end = std::clamp<std::ptrdiff_t>(s.end, task.begin, task.end) - task.begin;
  }
  return cut;
}

template <class T>
Bundle<T> RingAttention<T>::pairs_of(int rank) const {
  return {x_.batch,
          x_.batch,
          std::max<std::ptrdiff_t>(rooms_[at(rank)], 1),
          {{x_.key_heads, x_.key_dim}, {x_.key_heads, x_.value_dim}, {x_.heads, x_.gates}}};
}
// q and gates; backwards also dO, and lse and -delta
template <class T>
Bundle<T> RingAttention<T>::queries_of(const RingTask& task, bool back) const {
  if (!back) return {0, rows_, task.count(), {{x_.heads, x_.key_dim}, {x_.heads, x_.gates}}};
  return {0,
          rows_,
          task.count(),
          {{x_.heads, x_.key_dim}, {x_.heads, x_.gates}, {x_.heads, x_.value_dim}, {x_.heads, 2 * x_.normalise}}};
}
// o and lse; backwards dq and gradients of gates
template <class T>
Bundle<T> RingAttention<T>::answers_of(const RingTask& task, bool back) const {
  if (back) return {0, rows_, task.count(), {{x_.heads, x_.key_dim}, {x_.heads, x_.gates}}};
  return {0, rows_, task.count(), {{x_.heads, x_.value_dim}, {x_.heads, x_.normalise}}};
}

template <class T>
void RingAttention<T>::make_block(const Problem& p) {
  block_ = std::make_shared<Bundle<T>>(pairs_of(rank_));
  const View<T, 4> k = (*block_)[0], v = (*block_)[1], g = (*block_)[2];
  const View<const T, 4> of_call_g = with_last(p.g), of_past_g = with_last(p.past_g);
  for (int n = 0; n < x_.batch; ++n) {
    const Sequence& s = pieces_[at(rank_)][at(n)];
    const std::ptrdiff_t past = p.past_of(at(n)), count = past + s.end - s.begin;
    block_->counts()[n] = count;
    const auto fill = [&](const View<const T, 4>& of_past, const View<const T, 4>& of_call, const View<T, 4>& to) {
      for (std::ptrdiff_t i = 0; i < count; ++i) {
        if (i < past) copy_row(of_past, n, i, to, n, i);
        else copy_row(of_call, s.row, s.begin + i - past, to, n, i);
      }
    };
    fill(p.past_k, p.k, k), fill(p.past_v, p.v, v);
    if (x_.gates) fill(of_past_g, of_call_g, g);
  }
}

template <class T>
void RingAttention<T>::share_gates(const Problem& p) {
  if (!x_.gates) return;
  std::vector<double> own(at(x_.batch * x_.heads));
  for (int n = 0; n < x_.batch; ++n) {
    const Sequence& s = pieces_[at(rank_)][at(n)];
    for (std::ptrdiff_t t = s.begin; t < s.end; ++t)
      for (int h = 0; h < x_.heads; ++h) own[at(n * x_.heads + h)] += static_cast<double>(p.g(s.row, t, h));
  }
  gates_ = channel_.all_of(own);
}

template <class T>
void RingAttention<T>::open(const Problem& p) {
  worst_ = Status::ok;
  make_block(p), share_gates(p);
}

// Queries of this rank, with what is before them in the piece added to the first gates.
template <class T>
typename RingAttention<T>::Bytes RingAttention<T>::queries(const Problem& p, const Gradient* d,
                                                           const RingTask& task) {
  Bytes& made = queries_[task.begin * (lengths_[at(rank_)] + 1) + task.end];
  if (made) return made;
  Bundle<T> all = queries_of(task, d != nullptr);
  copy_rows(p.q, task.begin, task.count(), all[0]);
  if (x_.gates) {
    const View<T, 4> g = all[1];
    copy_rows(with_last(p.g), task.begin, task.count(), g);
    const std::vector<Sequence> clipped = cut(task);
    for (int n = 0; n < x_.batch; ++n) {
      const Sequence &whole = pieces_[at(rank_)][at(n)], &part = clipped[at(n)];
      if (part.begin == part.end) continue;
      for (int h = 0; h < x_.heads; ++h) {
        double sum = static_cast<double>(g(part.row, part.begin, h, 0));
        for (std::ptrdiff_t t = whole.begin; t < task.begin; ++t) sum += static_cast<double>(p.g(whole.row, t, h));
        g(part.row, part.begin, h, 0) = static_cast<T>(sum);
      }
    }
  }
  if (d) {
    copy_rows(d->d_o, task.begin, task.count(), all[2]);
    const View<T, 4> statistics = all[3], d_o = all[2];
    const std::int64_t tokens = lengths_[at(rank_)];
    for (std::ptrdiff_t b = 0; x_.normalise && b < rows_; ++b)
      for (std::ptrdiff_t t = 0; t < task.count(); ++t)
        for (std::ptrdiff_t h = 0; h < x_.heads; ++h) {
          const std::size_t row = at((b * tokens + task.begin + t) * x_.heads + h);
          double delta = 0;
          for (std::ptrdiff_t j = 0; j < x_.value_dim; ++j)
            delta += static_cast<double>(d_o(b, t, h, j)) * static_cast<double>(o_[row * at(x_.value_dim) + at(j)]);
          statistics(b, t, h, 0) = lse_[row], statistics(b, t, h, 1) = static_cast<T>(-delta);
        }
  }
  return made = all.bytes();
}

// What others need of this rank, first what they need first.
template <class T>
void RingAttention<T>::send_all(const Problem& p, const Gradient* d) {
  queries_.clear();
  for (int step = 1; step < ranks_; ++step) {
    for (const RingTask& task : between(rank_ + step, rank_))
      if (!task.helped) channel_.send(block_->bytes(), task.queries, of_pairs);
    for (const RingTask& task : between(rank_, rank_ + step - ranks_))
      if (task.helped) channel_.send(queries(p, d, task), task.pairs, of_queries);
  }
}

// own(), then work(task, bytes) for what this rank does; the next bytes are on their way while it works.
template <class T>
template <class Own, class Do>
void RingAttention<T>::each_task(bool back, Own&& own, Do&& work) {
  std::vector<RingTask> tasks;
  for (int step = 1; step < ranks_; ++step) {
    for (const RingTask& task : between(rank_, rank_ - step))
      if (!task.helped) tasks.push_back(task);
    for (const RingTask& task : between(rank_ + ranks_ - step, rank_))
      if (task.helped) tasks.push_back(task);
  }
  const auto expect = [&](const RingTask& task) {
    return task.helped ? channel_.expect(queries_of(task, back).size(), task.queries, of_queries)
                       : channel_.expect(pairs_of(task.pairs).size(), task.pairs, of_pairs);
  };
  Expected next;
  if (!tasks.empty()) next = expect(tasks[0]);
  own();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::vector<std::byte> bytes = channel_.take(
        std::move(next), tasks[i].helped ? "the queries of its piece" : "the keys and values of its piece");
    next = {};
    if (i + 1 < tasks.size()) next = expect(tasks[i + 1]);
    work(tasks[i], std::move(bytes));
  }
}

template <class T>
typename RingAttention<T>::Problem RingAttention<T>::problem(const Problem& p, const RingTask& task,
                                                             Bundle<T>& queries, Bundle<T>& pairs) {
  Problem x;
  x.heads = x_.heads, x.key_heads = x_.key_heads, x.key_dim = x_.key_dim, x.value_dim = x_.value_dim;
  x.scale = p.scale, x.bandwidth = p.bandwidth, x.team = p.team;
  x.normalise = p.normalise, x.polynomial = p.polynomial, x.weight = p.weight, x.eps = p.eps;
  x.causal = false;
  clipped_ = cut(task), x.sequences = clipped_;
  x.q = read(queries[0]);
  x.past_k = read(pairs[0]), x.past_v = read(pairs[1]), x.past_count = pairs.counts();
  if (!x_.gates) return x;
  x.past_g = read(pairs.column(2, 0));
  const View<T, 3> g = queries.column(1, 0);
  first_gates_.assign(g.data, g.data + rows_ * task.count() * x_.heads);
  const View<T, 3> own{first_gates_.data(), g.extent, g.stride};
  for (int n = 0; n < x_.batch; ++n) {
    const Sequence& s = clipped_[at(n)];
    for (int h = 0; s.begin < s.end && h < x_.heads; ++h) {
      double sum = static_cast<double>(own(s.row, s.begin, h));
      for (int m = task.pairs + 1; m < task.queries; ++m) sum += gates_[at((m * x_.batch + n) * x_.heads + h)];
      own(s.row, s.begin, h) = static_cast<T>(sum);
    }
  }
  x.g = read(own);
  return x;
}

template <class T>
Bundle<T> RingAttention<T>::answer(const Problem& p, const Simd<T>& simd, const RingTask& task, Bundle<T>& queries,
                                   Bundle<T>& pairs) {
  const Stopwatch stopwatch(channel_.counts.local);
  Bundle<T> answers = answers_of(task, false);
  Problem x = problem(p, task, queries, pairs);
  x.o = answers[0], x.lse = answers.column(1, 0);
  for (std::ptrdiff_t i = 0; x.lse && i < rows_ * task.count() * x_.heads; ++i)
    x.lse.data[i] = -std::numeric_limits<T>::infinity();  // of sequences that are not here
  note(attention::forward(x, simd, work(x, false)));
  return answers;
}

template <class T>
Bundle<T> RingAttention<T>::pass_back(const Problem& p, const Gradient& d, const Simd<T>& simd, const RingTask& task,
                                      Bundle<T>& queries, Bundle<T>& pairs, Bundle<T>& d_pairs) {
  const Stopwatch stopwatch(channel_.counts.local);
  Bundle<T> answers = answers_of(task, true);
  const Problem x = problem(p, task, queries, pairs);
  Gradient one;
  one.d_o = read(queries[2]);
  one.d_q = answers[0], one.d_g = answers.column(1, 0);
  one.d_past_k = d_pairs[0], one.d_past_v = d_pairs[1], one.d_past_g = d_pairs.column(2, 0);
  one.d_bandwidth = d.d_bandwidth;
  if (x_.normalise) {  // delta is known: it takes the place of o
    one.o = {zeros_.data(), {rows_, task.count(), x_.heads, x_.value_dim}, {0, 0, 0, 1}};
    one.lse = read(queries.column(3, 0)), one.d_lse = read(queries.column(3, 1));
  }
  note(attention::backward(x, one, simd, work(x, true)));
  return answers;
}

template <class T>
void RingAttention<T>::merge(const RingTask& task, Bundle<T>& answers) {
  const View<T, 4> o = answers[0];
  const View<T, 3> lse = answers.column(1, 0);
  const std::size_t V = at(x_.value_dim);
  const std::int64_t tokens = lengths_[at(rank_)];
  for (std::ptrdiff_t b = 0; b < rows_; ++b)
    for (std::ptrdiff_t t = 0; t < task.count(); ++t)
      for (std::ptrdiff_t h = 0; h < x_.heads; ++h) {
        const std::size_t row = at((b * tokens + task.begin + t) * x_.heads + h);
        T* const own = o_.data() + row * V;
        const T* const theirs = &o(b, t, h, 0);
        if (!x_.normalise) {
          for (std::size_t j = 0; j < V; ++j) own[j] += theirs[j];
          continue;
        }
        const T a = lse_[row], c = lse(b, t, h), top = std::max(a, c);
        if (top == -std::numeric_limits<T>::infinity()) continue;
        const T sum = top + std::log(std::exp(a - top) + std::exp(c - top));
        const T of_a = std::exp(a - sum), of_c = std::exp(c - sum);
        for (std::size_t j = 0; j < V; ++j) own[j] = of_a * own[j] + of_c * theirs[j];
        lse_[row] = sum;
      }
}

// o and lse of all pairs that the piece sees.
template <class T>
void RingAttention<T>::answer_all(const Problem& p, const Simd<T>& simd) {
  const std::ptrdiff_t tokens = lengths_[at(rank_)], H = x_.heads, V = x_.value_dim;
  o_.assign(at(rows_ * tokens * H * V), T(0));
  lse_.assign(at(rows_ * tokens * H), -std::numeric_limits<T>::infinity());
  send_all(p, nullptr);
  const auto own_pairs = [&] {
    const Stopwatch stopwatch(channel_.counts.local);
    Problem own = p;
    own.o = {o_.data(), {rows_, tokens, H, V}, {tokens * H * V, H * V, V, 1}};
    if (x_.normalise) own.lse = {lse_.data(), {rows_, tokens, H}, {tokens * H, H, 1}};
    note(attention::forward(own, simd, work(own, false)));
  };
  each_task(false, own_pairs, [&](const RingTask& task, std::vector<std::byte> bytes) {
    if (task.helped) {
      Bundle<T> theirs = queries_of(task, false).filled(std::move(bytes));
      channel_.send(answer(p, simd, task, theirs, *block_).bytes(), task.queries, of_answers);
    } else {
      Bundle<T> pairs = pairs_of(task.pairs).filled(std::move(bytes)),
                own = queries_of(task, false).filled(queries(p, nullptr, task));
      Bundle<T> answers = answer(p, simd, task, own, pairs);
      merge(task, answers);
    }
  });
  for (int j = rank_ - 1; j >= 0; --j)
    for (const RingTask& task : between(rank_, j)) {
      if (!task.helped) continue;
      Bundle<T> answers = answers_of(task, false);
      answers = answers.filled(channel_.take(channel_.expect(answers.size(), j, of_answers), "answers"));
      merge(task, answers);
    }
}

template <class T>
Status RingAttention<T>::forward(const Problem& p, const Simd<T>& simd) {
  open(p), answer_all(p, simd);
  const std::ptrdiff_t tokens = lengths_[at(rank_)], H = x_.heads, V = x_.value_dim;
  if (p.o) copy_rows<T>({o_.data(), {rows_, tokens, H, V}, {tokens * H * V, H * V, V, 1}}, 0, tokens, p.o);
  return worst_;
}

template <class T>
Status RingAttention<T>::backward(const Problem& p, const Gradient& d, const Simd<T>& simd) {
  open(p), answer_all(p, simd);
  const std::ptrdiff_t tokens = lengths_[at(rank_)], H = x_.heads, V = x_.value_dim;
  totals_.assign(at(ranks_ * x_.batch * x_.heads), 0.0);
  send_all(p, &d);
  Gradient own = d;
  own.o = {o_.data(), {rows_, tokens, H, V}, {tokens * H * V, H * V, V, 1}};
  own.lse = {lse_.data(), {rows_, tokens, H}, {tokens * H, H, 1}};
  const auto own_pairs = [&] {
    const Stopwatch stopwatch(channel_.counts.local);
    note(attention::backward(p, own, simd, work(p, true)));
  };
  Bundle<T> d_block = pairs_of(rank_);
  each_task(true, own_pairs, [&](const RingTask& task, std::vector<std::byte> bytes) {
    if (task.helped) {
      Bundle<T> theirs = queries_of(task, true).filled(std::move(bytes));
      channel_.send(pass_back(p, d, simd, task, theirs, *block_, d_block).bytes(), task.queries, of_answers);
    } else {
      Bundle<T> pairs = pairs_of(task.pairs).filled(std::move(bytes)), d_pairs = pairs_of(task.pairs),
                mine = queries_of(task, true).filled(queries(p, &d, task));
      Bundle<T> answers = pass_back(p, d, simd, task, mine, pairs, d_pairs);
      channel_.send(d_pairs.bytes(), task.pairs, of_gradients);
      add_queries(d, task, answers);
    }
  });
  add_pairs(p, d, d_block);
  for (int j = rank_ - 1; j >= 0; --j)
    for (const RingTask& task : between(rank_, j)) {
      if (!task.helped) continue;
      Bundle<T> answers = answers_of(task, true);
      answers = answers.filled(channel_.take(channel_.expect(answers.size(), j, of_answers), "gradients of queries"));
      add_queries(d, task, answers);
    }
  for (int i = rank_ + 1; i < ranks_; ++i)
    for (const RingTask& task : between(i, rank_)) {
      if (task.helped) continue;
      Bundle<T> theirs = pairs_of(rank_);
      theirs = theirs.filled(
          channel_.take(channel_.expect(theirs.size(), i, of_gradients), "gradients of keys and values"));
      add_pairs(p, d, theirs);
    }
  if (x_.gates) gates_between(d);
  return worst_;
}

// Gradients of this rank's queries. That of the first gate is also that of all before it, in this piece and between.
template <class T>
void RingAttention<T>::add_queries(const Gradient& d, const RingTask& task, Bundle<T>& d_queries) {
  const View<T, 4> d_q = d_queries[0], d_g = d_queries[1];
  const std::vector<Sequence> clipped = cut(task);
  for (int n = 0; n < x_.batch; ++n) {
    const Sequence &part = clipped[at(n)], &whole = pieces_[at(rank_)][at(n)];
    for (std::ptrdiff_t t = part.begin; t < part.end; ++t)
      for (std::ptrdiff_t h = 0; h < x_.heads; ++h) {
        for (std::ptrdiff_t j = 0; d.d_q && j < x_.key_dim; ++j)
          d.d_q(part.row, task.begin + t, h, j) += d_q(part.row, t, h, j);
        if (d_g && d.d_g) d.d_g(part.row, task.begin + t, h) += d_g(part.row, t, h, 0);
      }
    for (int h = 0; d_g && part.begin < part.end && h < x_.heads; ++h) {
      const T total = d_g(part.row, part.begin, h, 0);
      for (std::ptrdiff_t t = whole.begin; d.d_g && t < task.begin; ++t) d.d_g(whole.row, t, h) += total;
      for (int m = task.pairs + 1; m < task.queries; ++m)
        totals_[at((m * x_.batch + n) * x_.heads + h)] += static_cast<double>(total);
    }
  }
}

// Gradients of this rank's block: of the pairs before the call, and of the piece's own.
template <class T>
void RingAttention<T>::add_pairs(const Problem& p, const Gradient& d, Bundle<T>& d_pairs) {
  const auto add = [&](int n, const View<T, 4>& from, const View<T, 4>& to_past, const View<T, 4>& to_call) {
    const Sequence& s = pieces_[at(rank_)][at(n)];
    const std::ptrdiff_t past = p.past_of(at(n)), count = past + s.end - s.begin;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const View<T, 4>& to = i < past ? to_past : to_call;
      if (!to) continue;
      const std::ptrdiff_t row = i < past ? n : s.row, t = i < past ? i : s.begin + i - past;
      for (std::ptrdiff_t h = 0; h < from.extent[2]; ++h)
        for (std::ptrdiff_t j = 0; j < from.extent[3]; ++j) to(row, t, h, j) += from(n, i, h, j);
    }
  };
  for (int n = 0; n < x_.batch; ++n) {
    add(n, d_pairs[0], d.d_past_k, d.d_k), add(n, d_pairs[1], d.d_past_v, d.d_v);
    if (x_.gates) add(n, d_pairs[2], with_last(d.d_past_g), with_last(d.d_g));
  }
}

template <class T>
void RingAttention<T>::gates_between(const Gradient& d) {
  const std::vector<double> all = channel_.exchange(totals_);
  for (int n = 0; d.d_g && n < x_.batch; ++n) {
    const Sequence& s = pieces_[at(rank_)][at(n)];
    for (int h = 0; h < x_.heads; ++h) {
      double sum = 0;
      for (int r = 0; r < ranks_; ++r) sum += all[at((r * x_.batch + n) * x_.heads + h)];
      for (std::ptrdiff_t t = s.begin; t < s.end; ++t) d.d_g(s.row, t, h) += static_cast<T>(sum);
    }
  }
}

template <class T>
Workspace RingAttention<T>::work(const Problem& p, bool backward) {
  std::ptrdiff_t longest = 0, most = 0;
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    longest = std::max(longest, p.tokens_of(n)), most = std::max(most, p.past_of(n));
  const std::size_t bytes = attention::workspace_bytes<T>(x_.heads, x_.key_heads, x_.key_dim, x_.value_dim, longest,
                                                          most, 0, backward, p.team.workers());
  if (work_.size() < bytes) work_.resize(bytes);
  return {work_.data(), work_.size()};
}

template <class T>
void RingAttention<T>::note(Status status) {
  if (worst_ == Status::ok) worst_ = status;
}

template class RingAttention<float>;
template class RingAttention<double>;

}  // namespace ttr::mpi
