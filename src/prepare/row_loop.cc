#include "prepare/row_loop.h"

#include <algorithm>
#include <utility>

namespace ttr::prepare {
namespace {

using Size = std::ptrdiff_t;

// batch, time, groups of heads, heads of a group, rows of a matrix, numbers of a row
constexpr int most_axes = 6;
// Operands, the result (written, or read backwards), its gradient, gradients of the operands.
constexpr int result = max_operands, gradient = result + 1, d_operands = gradient + 1;
constexpr int sides = d_operands + max_operands;

// A tensor of the call. Those that are only read are not written through `data`.
template <class T>
struct Side {
  T* data;
  Rows<T> rows;
  int role;
  Size stride[most_axes];
};

template <class T>
class RowLoop {
 public:
  RowLoop(Op op, bool backward, double number, const Extent& extent, const TokenSimd<T>& simd)
      : op_(op), backward_(backward), extent_(extent), simd_(simd) {
    job_.number = static_cast<T>(number);
  }

  template <class N>
  void add(int role, const Rows<N>& rows) {
    if (role == result) width_ = rows.width, height_ = rows.height;
    if (role == facts(op_).summed) job_.depth = rows.width;
    if (!rows.data || !looks_at(role)) return;
    Side<T>& s = side_[count_++];
    s.data = const_cast<T*>(rows.data), s.role = role;
    s.rows = {s.data, rows.batch, rows.time, rows.head, rows.inner, rows.group, rows.width, rows.outer, rows.height};
  }

  Status run() {
    if (extent_.batch <= 0 || extent_.time <= 0 || extent_.heads <= 0) return Status::ok;
    if (const Size group = common_group(); group > 0) return run_groups(group);
    // Groups of different sizes: head by head.
    bool in_domain = true;
    const Size heads = extent_.heads;
    extent_.heads = 1;
    for (Size h = 0; h < heads; ++h) {
      for (int i = 0; i < count_; ++i) side_[i].data = side_[i].rows.row(0, 0, h);
      in_domain = run_groups(1) == Status::ok && in_domain;
    }
    return in_domain ? Status::ok : Status::out_of_domain;
  }

 private:
  bool looks_at(int role) const {
    if (!backward_ || role > result) return true;
    return role == result ? backward_reads_result(op_) : backward_reads_operand(op_, role);
  }
  // The number of heads that share one where heads are shared; 0 if tensors differ in it.
  Size common_group() {
    Size group = 1;
    for (int i = 0; i < count_; ++i) {
      Rows<T>& rows = side_[i].rows;
      if (rows.group == 1) continue;
      if (rows.group >= extent_.heads) {  // all share one
        rows.group = 1, rows.head = 0;
        continue;
      }
      if (extent_.heads % rows.group != 0 || (group > 1 && rows.group != group)) return 0;
      group = rows.group;
    }
    return group;
  }

  Status run_groups(Size group) {
    const Size extent[most_axes] = {extent_.batch, extent_.time, extent_.heads / group, group, height_, width_};
    const bool rowwise = facts(op_).kind == Kind::row;
    const Size longest = rowwise ? std::max<Size>(width_, job_.depth) : width_;
    for (int i = 0; i < count_; ++i) {
      Side<T>& s = side_[i];
      const bool shared = group > 1 && s.rows.group > 1;
      s.stride[0] = s.rows.batch, s.stride[1] = s.rows.time;
      s.stride[2] = shared ? s.rows.head : s.rows.head * group, s.stride[3] = shared ? 0 : s.rows.head;
      s.stride[4] = s.rows.height == 1 ? 0 : s.rows.outer;
      // A row of one number serves every d.
      s.stride[5] = s.rows.width > 1 ? s.rows.inner : longest > 1 ? 0 : 1;
    }
    int axes = 0;
    for (int a = 0; a < (rowwise ? 4 : most_axes); ++a) {
      if (extent[a] == 1) continue;
      bool joins = axes > 0;
      for (int i = 0; i < count_ && joins; ++i) joins = side_[i].stride[axes - 1] == extent[a] * side_[i].stride[a];
      const int to = joins ? axes - 1 : axes++;
      extent_of_[to] = joins ? extent_of_[to] * extent[a] : extent[a];
      for (int i = 0; i < count_; ++i) side_[i].stride[to] = side_[i].stride[a];
    }
    // The last axis is the row of a job, the one before it the rows.
    const int inner = rowwise ? most_axes - 1 : axes > 0 ? --axes : -1;
    if (axes > 1) longest_last(axes);
    const int row = axes > 0 ? --axes : -1;
    job_.width = rowwise ? width_ : inner < 0 ? 1 : extent_of_[inner];
    job_.rows = row < 0 ? 1 : extent_of_[row];
    for (int i = 0; i < count_; ++i) {
      const Size by = row < 0 ? 0 : side_[i].stride[row], step = inner < 0 ? 1 : side_[i].stride[inner];
      place(side_[i].role, by, step);
    }
    return outer(std::clamp(axes, 0, most_axes)) ? Status::ok : Status::out_of_domain;
  }

  // Two heads of a thousand tokens are two calls of a thousand rows, not a thousand of two. Where rows add to the same
  // gradient their order is left as it is: it must not depend on how many tokens a call has.
  void longest_last(int axes) {
    int most = axes - 1;
    for (int a = 0; a < axes; ++a)
      if (extent_of_[a] > extent_of_[most]) most = a;
    const int last = axes - 1;
    for (int i = 0; i < count_; ++i)
      if (side_[i].role >= d_operands && (side_[i].stride[most] == 0 || side_[i].stride[last] == 0)) return;
    std::swap(extent_of_[most], extent_of_[last]);
    for (int i = 0; i < count_; ++i) std::swap(side_[i].stride[most], side_[i].stride[last]);
  }

  void place(int role, Size row, Size step) {
    if (role < result) job_.x[role].row = row, job_.x[role].step = step;
    else if (role == gradient) job_.gradient.row = row, job_.gradient.step = step;
    else if (role >= d_operands) job_.dx[role - d_operands].row = row, job_.dx[role - d_operands].step = step;
    else if (backward_) job_.result.row = row, job_.result.step = step;
    else job_.y.row = row, job_.y.step = step;
  }
  void point(int role, T* data) {
    if (role < result) job_.x[role].data = data;
    else if (role == gradient) job_.gradient.data = data;
    else if (role >= d_operands) job_.dx[role - d_operands].data = data;
    else if (backward_) job_.result.data = data;
    else job_.y.data = data;
  }

  // The first `axes` axes are left: all their places, the last axis fastest.
  bool outer(int axes) {
    Size at[most_axes] = {};
    bool in_domain = true;
    const TokenCall<T>& call = simd_.of(op_);
    for (;;) {
      for (int i = 0; i < count_; ++i) point(side_[i].role, side_[i].data);
      if (backward_) call.backward(job_);
      else in_domain = call.forward(job_) && in_domain;
      int axis = axes - 1;
      for (; axis >= 0; --axis) {
        const bool more = ++at[axis] < extent_of_[axis];
        const Size by = more ? 1 : 1 - extent_of_[axis];  // on, or back to the start
        for (int i = 0; i < count_; ++i) side_[i].data += by * side_[i].stride[axis];
        if (more) break;
        at[axis] = 0;
      }
      if (axis < 0) return in_domain;
    }
  }

  Op op_;
  bool backward_;
  Extent extent_;
  const TokenSimd<T>& simd_;
  int width_ = 1, height_ = 1, count_ = 0;
  union {  // without initialisers, which would cost more than a token of a small layer
    Side<T> side_[sides];
  };
  Size extent_of_[most_axes];
  TokenJob<T> job_;
};

}  // namespace

template <class T>
Status loop_forward(Op op, const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                    const TokenSimd<T>& simd) noexcept {
  RowLoop<T> loop(op, false, number, extent, simd);
  for (int i = 0; i < facts(op).operands; ++i) loop.add(i, from[i]);
  loop.add(result, to);
  return loop.run();
}

template <class T>
void loop_backward(Op op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                   const Rows<T>* d_from, double number, const Extent& extent, const TokenSimd<T>& simd) noexcept {
  bool wanted = false;
  for (int i = 0; i < facts(op).operands; ++i) wanted = wanted || d_from[i].data;
  if (!wanted) return;
  RowLoop<T> loop(op, true, number, extent, simd);
  for (int i = 0; i < facts(op).operands; ++i) loop.add(i, from[i]), loop.add(d_operands + i, d_from[i]);
  loop.add(result, to);
  loop.add(gradient, d_to);
  loop.run();
}

template Status loop_forward<float>(Op, const Rows<const float>*, const Rows<float>&, double, const Extent&,
                                    const TokenSimd<float>&) noexcept;
template Status loop_forward<double>(Op, const Rows<const double>*, const Rows<double>&, double, const Extent&,
                                     const TokenSimd<double>&) noexcept;
template void loop_backward<float>(Op, const Rows<const float>*, const Rows<const float>&, const Rows<const float>&,
                                   const Rows<float>*, double, const Extent&, const TokenSimd<float>&) noexcept;
template void loop_backward<double>(Op, const Rows<const double>*, const Rows<const double>&,
                                    const Rows<const double>&, const Rows<double>*, double, const Extent&,
                                    const TokenSimd<double>&) noexcept;

}  // namespace ttr::prepare
