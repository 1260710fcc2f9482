// Per-token operations before and after the regression, each with its gradient: norms, step-size rules, gates,
// feature maps, rotary embedding, the skip connection. They have no state: a row is the last axis of one (batch,
// token, head). operations.def lists them, with their formulas and what else is known of each.
//
// leak_gate, shrink_gate, log and erase_log are undefined where the factor is negative (Status::out_of_domain),
// lower_bound_gate where l is not a fraction, root_complement where x > 0, precondition where A < 0. A factor of zero
// is clamped to a tiny positive number: the forward error is below rounding, and the gradient, which is divided by
// the factor again, keeps its value.
#pragma once

#include <cstddef>

#include "ttr/status.h"

namespace ttr {
template <class T>
struct Simd;
}

namespace ttr::prepare {

#define TTR_OP(name, ...) name,
enum class Op {
#include "prepare/operations.def"
};
#undef TTR_OP
#define TTR_OP(...) +1
inline constexpr int op_count = 0
#include "prepare/operations.def"
    ;
#undef TTR_OP

inline constexpr int max_operands = 4;

/// What an operation is computed by: a formula for vectors, of every element by itself or of a row together, or loops
/// of its own.
enum class Kind { element, row, own };

/// Tokens of the result: as many as the operands have; `number` for each (spread); one for `number` (taken); two.
enum class Tokens { same, spread, taken, doubled };

/// Widths of results: D = width of the first operand, F = rows of W (columns of P) where there is one.
namespace width {
using Size = std::ptrdiff_t;
using Rule = Size (*)(Size D, Size F, double number);
constexpr Size same(Size D, Size, double) { return D; }
constexpr Size one(Size, Size, double) { return 1; }
constexpr Size three(Size, Size, double) { return 3; }
constexpr Size half(Size D, Size, double) { return D / 2; }
constexpr Size twice(Size D, Size, double) { return 2 * D; }
constexpr Size features(Size, Size F, double) { return F; }
constexpr Size twice_features(Size, Size F, double) { return 2 * F; }
constexpr Size dpfp(Size D, Size, double nu) { return 2 * D * static_cast<Size>(nu); }
constexpr Size taylor2(Size D, Size, double) { return 1 + D + D * (D + 1) / 2; }
constexpr Size squares(Size D, Size, double) { return D * (D + 1) / 2; }
/// C(D + degree, degree)
constexpr Size monomials(Size D, Size, double degree) {
  Size count = 1;
  for (Size i = 1; i <= static_cast<Size>(degree + 0.5); ++i) count = count * (D + i) / i;
  return count;
}
}  // namespace width

/// What is known of an operation besides its formula.
struct OpFacts {
  const char* name;
  Kind kind;
  int operands;
  unsigned reads;           // bit i: the gradient reads operand i; bit max_operands: it reads the result
  bool arranged = false;    // arithmetic.cc looks at the operands first: some may be left out, or make a matrix
  bool time_index = false;  // row t of the result depends on t itself
  Tokens tokens = Tokens::same;
  int summed = 0;                // of kind row: the operand whose width is that of the sums
  int gradients = max_operands;  // so many operands have a gradient, the first ones
  width::Rule width = width::same;
  Op formula = Op(op_count);  // another operation's formula serves this one (op_count: it has its own)
};

namespace detail {
enum Reads : unsigned { nothing = 0, first = 1, second = 2, third = 4, fourth = 8, result = 1u << max_operands };
#define TTR_OP(op, how, count, read, ...) \
  OpFacts{.name = #op, .kind = Kind::how, .operands = count, .reads = read __VA_OPT__(, ) __VA_ARGS__},
inline constexpr OpFacts facts[] = {
#include "prepare/operations.def"
};
#undef TTR_OP
}  // namespace detail

constexpr const OpFacts& facts(Op op) { return detail::facts[static_cast<int>(op)]; }
/// As shown to people.
constexpr const char* name(Op op) { return facts(op).name; }

/// What `backward` looks at, whichever gradients are wanted. What it does not read needs its shape alone: the numbers
/// may be anything (the pointer is null only where that means left out).
constexpr bool backward_reads_result(Op op) { return facts(op).reads >> max_operands & 1u; }
constexpr bool backward_reads_operand(Op op, int i) { return facts(op).reads >> i & 1u; }

/// Whether row t of the result depends on t itself, so that a call on a part of the tokens needs an offset.
constexpr bool depends_on_time_index(Op op) { return facts(op).time_index; }
constexpr bool changes_token_count(Op op) { return facts(op).tokens != Tokens::same; }

/// The operation whose formula for vectors computes `op`.
constexpr Op formula_of(Op op) { return facts(op).formula == Op(op_count) ? op : facts(op).formula; }

/// Rows of a tensor: element d of row (b, t, h) is data[b*batch + t*time + (h/group)*head + d*inner].
/// A matrix (an operand W [F, K] or [H, F, K], or a result) has a second inner axis: element (f, d) is f*outer +
/// d*inner further on.
template <class T>
struct Rows {
  T* data = nullptr;
  std::ptrdiff_t batch = 0, time = 0, head = 0, inner = 0;
  int group = 1;  // heads of the operation that share one head of this tensor
  int width = 1;  // extent of the last axis
  std::ptrdiff_t outer = 0;
  int height = 1;  // extent of the last axis but one, of a matrix
  T* row(std::ptrdiff_t b, std::ptrdiff_t t, std::ptrdiff_t h) const {
    return data + b * batch + t * time + h / group * head;
  }
};

struct Extent {
  std::ptrdiff_t batch, time, heads;
};

/// to = op(from...). `number` is the operation's constant. `from` has as many entries as there are operands (one that
/// may be left out then has no data). `to` does not overlap an operand. `simd` is the table of the instruction set to
/// use; null: the best of this machine.
template <class T>
Status forward(Op, const Rows<const T>* from, const Rows<T>& to, double number, const Extent&,
               const Simd<T>* simd = nullptr) noexcept;

/// d_from += gradient, for each operand whose d_from has data; `to` is the forward result. An operand, or the result,
/// that the gradient does not read (backward_reads_operand, backward_reads_result) is not looked at.
template <class T>
void backward(Op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
              const Rows<T>* d_from, double number, const Extent&, const Simd<T>* simd = nullptr) noexcept;

/// Width of the result: `width` of the first operand, `features` = rows of W (columns of P) where there is one,
/// `number` = the degree of polynomial or the nu of dpfp. (That of bonus_value is the width of its last operand.)
constexpr std::ptrdiff_t feature_width(Op op, int width, int features, double number) noexcept {
  return facts(op).width(width, features, number);
}

}  // namespace ttr::prepare
