// Channels apart: a few channels of a piece (gates.h) whose gates leave every range. The factors of the others are those
// of a plain product; here a reader decays to the start of the piece, a writer to its end,
//
//   up_i = e^{G_i}     down_j = e^{G_c - G_j}
//
// which is right for the states at both ends. Between two tokens of the piece up_i down_j <= e^{G_c} is nothing at all, and
// what belongs there is added for these channels alone, with their own matrix D_ij = e^{G_i - G_j}:
//
//   pair    P_ij += x_i D_ij y_j            apply   dx_i += sum_j P_ij D_ij y_j ,  dy_j += sum_i P_ij D_ij x_i
//
// Reader::before takes row i-1 of D, and j < i.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/scratch.h"
#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

enum class Reader { after, before };  // sees the gate of its own token, or does not

template <class T>
class Apart {
 public:
  using Size = std::ptrdiff_t;
  enum Role { q, x, k, y };  // readers and writers, whose numbers are held

  Apart(const Simd<T>& simd, int dim, Size chunk, bool possible, Arena& arena) : s(simd), C(chunk) {
    if (!possible || C > longest) return;
    most = std::max<Size>(1, dim / 16);
    channels = arena.take<Size>(most), D = arena.take<T>(most * C * C), columns = arena.take<T>(most * 4 * C);
    weighted = arena.take<T>(C * C), row = arena.take<T>(4 * C), late_ = arena.take<T>(dim);
  }

  Size count() const { return count_; }
  Size channel(Size n) const { return channels[n]; }
  void clear() { count_ = 0; }
  /// One more; false: there are too many.
  bool add(Size channel) {
    if (std::find(channels, channels + count_, channel) != channels + count_) return true;
    if (count_ == most) return false;
    channels[count_++] = channel;
    return true;
  }

  /// The gates of c tokens, and the columns of up and down [c, dim] with them.
  void load_gates(Size c, const T* g, Size ldg, T* up, T* down, Size dim) {
    if (count_ == 0) return;
    T *const gates = row, *const sums = row + C, *const spare = row + 2 * C;
    for (Size n = 0; n < count_; ++n) {
      double sum = 0;
      for (Size i = 0; i < c; ++i) {
        gates[i] = g[i * ldg + channels[n]];
        sums[i] = static_cast<T>(sum += static_cast<double>(gates[i]));
      }
      T* const own = D + n * C * C;
      s.gate_matrix(c, gates, spare, own, C);
      s.exp(c, sums, sums);
      for (Size i = 0; i < c; ++i) {
        up[i * dim + channels[n]] = sums[i];
        down[i * dim + channels[n]] = own[(c - 1) * C + i];
      }
    }
  }
  /// The numbers of a role.
  void load(Role role, const View<const T, 4>& from, Size batch, Size begin, Size c, int head) {
    for (Size n = 0; n < count_; ++n)
      for (Size i = 0; i < c; ++i) column(n, role)[i] = number_of(from, batch, begin + i, head, channels[n]);
  }
  /// What the sums of writers have at the end where all others have `late` [dim].
  const T* late_of_writers(const T* late, Size dim) {
    if (count_ == 0) return late;
    std::copy_n(late, dim, late_);
    for (Size n = 0; n < count_; ++n) late_[channels[n]] = T(1);
    return late_;
  }

  /// P [c,c], leading dimension C, += alpha pairs. strict: not on the diagonal.
  void pair(Size c, Reader reader, bool strict, T alpha, Role of, Role with, T* P) {
    const Size shift = reader == Reader::before;
    for (Size n = 0; n < count_; ++n)
      for (Size i = shift; i < c; ++i) {
        const Size end = strict ? i : i + 1 - shift;
        s.mul(end, D + (n * C + i - shift) * C, column(n, with), row);
        s.axpy(end, alpha * column(n, of)[i], row, P + i * C);
      }
  }

  /// The gradients of panels [c,dim] of readers and writers, whose columns are turned into what they are without factors;
  /// so are the panels themselves.
  void finish(Size c, Role role, const T* factors, T* panel, T* d_panel, Size dim) {
    for (Size n = 0; n < count_; ++n)
      for (Size i = 0; i < c; ++i) {
        const Size at = i * dim + channels[n];
        panel[at] = column(n, role)[i], d_panel[at] *= factors[at];
      }
  }
  /// d_of += P D with, d_with += (P D)' of, both after `finish`.
  void apply(Size c, Reader reader, const T* P, Role of, Role with, T* d_of, T* d_with, Size dim) {
    const Size shift = reader == Reader::before;
    T *const left = row, *const right = row + C;
    for (Size n = 0; n < count_; ++n) {
      for (Size i = 0; i < c; ++i) {
        const Size end = std::max<Size>(0, i + 1 - shift);
        if (end > 0) s.mul(end, P + i * C, D + (n * C + i - shift) * C, weighted + i * C);
        std::fill(weighted + i * C + end, weighted + i * C + c, T(0));
      }
      s.mat_vec(c, c, weighted, C, column(n, with), left);
      s.vec_mat(c, c, column(n, of), weighted, C, right);
      for (Size i = 0; i < c; ++i) {
        d_of[i * dim + channels[n]] += left[i];
        d_with[i * dim + channels[n]] += right[i];
      }
    }
  }
  /// The factors of these channels are 1 from now on.
  void open(Size c, T* factors, Size dim) const {
    for (Size n = 0; n < count_; ++n)
      for (Size i = 0; i < c; ++i) factors[i * dim + channels[n]] = T(1);
  }

 private:
  static constexpr Size longest = 64;  // tokens; D has as many numbers as their pairs
  T* column(Size n, Role role) const { return columns + (n * 4 + role) * C; }

  const Simd<T>& s;
  Size C, most = 0, count_ = 0;
  Size* channels = nullptr;
  T *D = nullptr, *columns = nullptr, *weighted = nullptr, *row = nullptr, *late_ = nullptr;
};

}  // namespace ttr::families
