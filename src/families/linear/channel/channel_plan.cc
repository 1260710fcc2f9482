// Plans of the families with a gate per channel, or with other keys to read or erase with than to write with.
#include "families/linear/channel/channel_plan.h"
#include "families/common/linear_plan.h"
#include "families/linear/channel/dplr.h"
#include "families/linear/channel/gated.h"

namespace ttr::families {
namespace {

using prepare::Op;
using Per = Weights::Per;

// ---------------------------------------------------------------------------------------------------------- gated
// A gate per channel, or an output that reads before it writes: S = diag(e^gk) S diag(e^gv) + beta k v'.

struct GatedOptions {
  bool read_before = false;  // the output reads the state before the token's write
};

bool claim_gated(const Design& design, bool causal) {
  Claim rest(design);
  rest.takes(rest.x.loss, {Extras::Loss::dot});
  rest.takes_narrow_features(), rest.takes_read_norms();
  rest.takes_fade();
  rest.takes(rest.w.per, {Per::key, Per::value, Per::key_value});
  if (!rest.x.bonus) {  // with a bonus the newest pair has an importance of its own
    rest.takes_importance();
    if (rest.s.step.is_constant()) rest.takes_plain_step();
  }
  rest.x.read_before = rest.x.bonus = false;
  return causal && rest.is_nothing();
}

// Factors of either sign: rows and columns of S times the products of their signs fade by the sizes.
bool claim_signed(const Design& design, bool causal) {
  Design positive = design;
  positive.weights.signed_factors = false;
  return design.weights.signed_factors && design.weights.per != Per::token && !design.extras.read_before &&
         claim_gated(positive, causal);
}

int build_signed(Builder& b, double scale) {
  const Weights& w = b.design().weights;
  const bool per_key = w.per != Per::value, per_value = w.per != Per::key;
  int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v"), gk = -1, gv = -1, columns = -1;
  std::string meaning = "the memory, times -1";
  if (per_key) {
    const int factors = b.canonical("ak"), rows = b.running_sign(factors, "flip_k", "ak");
    q = b.with_sign(b.per_head(q), rows), k = b.with_sign(b.per_head(k), rows), gk = b.log_magnitude(factors);
    meaning += " where flip_k is 1";
  }
  if (per_value) {
    const int factors = b.canonical("av");
    columns = b.running_sign(factors, "flip_v", "av"), v = b.with_sign(v, columns), gv = b.log_magnitude(factors);
    meaning += per_key ? " and where flip_v is 1" : " where flip_v is 1";
  }
  Step step = b.kernel(signed_gated_family, scale, q, k, v, -1, b.scaled_importance(), GatedSlot::count);
  step.operands[GatedSlot::gk] = gk, step.operands[GatedSlot::gv] = gv;
  const int answer = b.add(std::move(step), "BTHV", {b.memory_part(k, v, "S", meaning)});
  return per_value ? b.with_sign(answer, columns) : answer;
}

int build_gated(Builder& b, double scale) {
  const Weights& w = b.design().weights;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = b.kernel(gated_family, scale, q, k, v, -1, b.scaled_importance(), GatedSlot::count);
  const bool per_key = w.per == Per::key || w.per == Per::key_value;
  const bool per_value = w.per == Per::value || w.per == Per::key_value;
  step.operands[GatedSlot::gk] = per_key ? b.canonical("gk") : per_value ? -1 : b.log_fade();
  step.operands[GatedSlot::gv] = per_value ? b.canonical("gv") : -1;
  if (b.design().extras.bonus) step.operands[GatedSlot::bonus] = b.canonical("bonus");
  step.set_options(GatedOptions{b.design().extras.read_before});
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v)});
}

template <class T>
struct GatedCalls : HandsOn<T, gated::forward<T>, gated::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return gated::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward, workers);
  }
  static SavedChunks saved(const Plan::Body& body, const Step&, int K, int V, std::int64_t tokens, Form form) {
    return gated::saved_chunks<T>(K, V, tokens, form, body.options.chunk, vector_bytes_of<T>(body));
  }
  static constexpr unsigned clears = 1u << Slot::q | 1u << Slot::k | 1u << Slot::v | 1u << GatedSlot::gk;
  static constexpr unsigned halves = clears | 1u << GatedSlot::gv;
  static constexpr bool only_places = true;
  static GatedProblem<T> problem(const KernelArgs<T>& o, State state) {
    GatedProblem<T> p;
    o.set_problem(state, p);
    p.gk = o.channels(GatedSlot::gk, p.key_dim), p.gv = o.channels(GatedSlot::gv, p.value_dim);
    p.bonus = o.per_head(GatedSlot::bonus);
    p.read_before = o.step().options_of_family && o.step().template options<GatedOptions>().read_before;
    return p;
  }
  static GatedGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call&) {
    GatedGradient<T> all;
    static_cast<LinearGradient<T>&>(all) = d;
    all.d_gk = o.d_channels(GatedSlot::gk, o.key_dim()), all.d_gv = o.d_channels(GatedSlot::gv, o.value_dim());
    all.d_bonus = o.d_per_head(GatedSlot::bonus);
    all.fresh |= o.fresh(GatedSlot::gk, all.fresh_gk);
    return all;
  }
};

// The gradient of a factor a is that of log |a|, divided by a. The chunk form has it as a difference of sums in which all
// pairs of a chunk stand, exact to their rounding but not to that of a gate that nearly closes, and 1/a magnifies what
// is left. The recurrent form has it as e^g times a sum, to the last digits of that sum whatever the gate.
template <class T>
struct SignedGatedCalls : GatedCalls<T> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return GatedCalls<T>::bytes(body, K, V, time, backward ? Form::recurrent : form, backward, workers);
  }
  static SavedChunks saved(const Plan::Body&, const Step&, int, int, std::int64_t, Form) { return {}; }
  static Status backward(const KernelArgs<T>& o, const GatedProblem<T>& p, const GatedGradient<T>& d, Form,
                         Workspace work) noexcept {
    return GatedCalls<T>::backward(o, p, d, Form::recurrent, work);
  }
};

// ----------------------------------------------------------------------------------------------------------- dplr
// Delta rules with a gate per key channel, or with other keys to read or erase with than to write with.

struct DplrSlot {
  enum : std::size_t { gk = Slot::own, read, erase, count };
};
struct DplrOptions {
  bool undecayed = false;  // the residual reads the state before its decay
};

bool claim_dplr(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::sgd});
  ignores_fade(rest);
  rest.takes_narrow_features(), rest.takes_read_norms(), rest.takes_decay_before();
  rest.takes(rest.s.decay_per, {Per::key});
  // One other way to read or write at most; the keys of `dplr` carry its step.
  if (rest.s.dplr) rest.s.dplr = false;
  else {
    rest.takes_step_rule();
    if (rest.s.feedback) rest.s.feedback = false;
    else if (rest.s.split) rest.s.split = false;
    else rest.s.precondition = false;
  }
  return causal && rest.is_nothing();
}

int build_dplr(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  int q = b.keys("q"), v = b.canonical("v");
  const int k = b.keys("k");
  int read = -1, write = k;
  if (s.split) v = b.operation(Op::multiply, {v, b.canonical("write")}, "BTHV");
  const int beta = s.dplr ? -1 : b.step_size(k);
  if (s.precondition) {
    // A = e^ga A + ba k*k is a memory with the one-dimensional key 1; the write key is D(A) * k.
    q = b.per_head(q), read = b.per_head(k);
    const int square = b.operation(Op::multiply, {read, read}, b.axes(read)), one = b.constant(1);
    StatePart sum = b.vector_part(square, "A", "gated sum of squared keys");
    sum.info.range = Range::positive;
    const int total = b.add(
        b.kernel(decay_family, 1, one, one, square, b.canonical("g_atk"), b.canonical("beta_atk")), "BTHK", {sum});
    const int factor = b.operation(Op::precondition, {total, b.canonical("log_atk_scale")}, "BTHK");
    write = b.operation(Op::multiply, {read, factor}, "BTHK");
  }
  Step step = b.kernel(dplr_family, scale, q, write, v, -1, beta, DplrSlot::count);
  step.operands[DplrSlot::gk] = s.decay_per == Per::key && s.decay.is_input() ? b.canonical("gk") : b.decay_before();
  if (s.split) read = b.operation(Op::multiply, {b.canonical("erase"), k}, "BTHK");
  if (s.feedback) read = b.per_head(b.keys("p"));  // the kernel takes one per head
  if (s.dplr) read = b.canonical("a"), step.operands[DplrSlot::erase] = b.canonical("b");
  step.operands[DplrSlot::read] = read;
  step.set_options(DplrOptions{s.feedback || s.dplr});
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v)});
}

template <class T>
struct DplrCalls : HandsOn<T, dplr::forward<T>, dplr::backward<T>> {
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return dplr::workspace_bytes<T>(K, V, time, form, body.options.chunk, backward, workers);
  }
  static SavedChunks saved(const Plan::Body& body, const Step& step, int K, int V, std::int64_t tokens, Form form) {
    return dplr::saved_chunks<T>(K, V, step.operands[DplrSlot::erase] >= 0, tokens, form, body.options.chunk,
                                 vector_bytes_of<T>(body));
  }
  static constexpr unsigned clears = 1u << Slot::q | 1u << Slot::k | 1u << Slot::v | 1u << DplrSlot::gk |
                                     1u << DplrSlot::read | 1u << DplrSlot::erase;
  static constexpr unsigned halves = clears;
  static constexpr bool only_places = true;
  static DplrProblem<T> problem(const KernelArgs<T>& o, State state) {
    DplrProblem<T> p;
    o.set_problem(state, p);
    p.gk = o.channels(DplrSlot::gk, p.key_dim);
    p.a = o.vectors(DplrSlot::read), p.b = o.vectors(DplrSlot::erase);
    p.decayed_read = !o.step().template options<DplrOptions>().undecayed;
    return p;
  }
  static DplrGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call&) {
    DplrGradient<T> all;
    static_cast<LinearGradient<T>&>(all) = d;
    all.d_gk = o.d_channels(DplrSlot::gk, o.key_dim());
    all.d_a = o.d_vectors(DplrSlot::read), all.d_b = o.d_vectors(DplrSlot::erase);
    all.fresh |= o.fresh(DplrSlot::gk, all.fresh_gk) | o.fresh(DplrSlot::read, all.fresh_a) |
                 o.fresh(DplrSlot::erase, all.fresh_b);
    return all;
  }
};

std::optional<Tuned> tuning_of_dplr(const Step& step) {
  return step.operands[DplrSlot::erase] >= 0 ? Tuned("dplr") : Tuned("gated_delta");
}

}  // namespace

const Family gated_family = {
    .name = "gated",
    .forms = all_forms,
    .traits = {.splits_columns = true, .team = {.forward = scan_only, .backward = chunk_and_scan}},
    .claim = claim_gated,
    .build = build_gated,
    .f32 = linear_calls_of<GatedCalls, float>(),
    .f64 = linear_calls_of<GatedCalls, double>(),
    .tuning = [](const Step&) { return std::optional(Tuned("gated")); }};

const Family signed_gated_family = {.name = "gated",
                                    .forms = all_forms,
                                    .traits = {.splits_columns = true, .team = {.forward = scan_only}},
                                    .claim = claim_signed,
                                    .build = build_signed,
                                    .f32 = linear_calls_of<SignedGatedCalls, float>(),
                                    .f64 = linear_calls_of<SignedGatedCalls, double>(),
                                    .tuning = [](const Step&) { return std::optional(Tuned("gated")); }};

const Family dplr_family = {
    .name = "dplr",
    .forms = all_forms,
    .traits = {.splits_columns = true, .team = {.forward = scan_only, .backward = chunk_and_scan}},
    .claim = claim_dplr,
    .build = build_dplr,
    .f32 = linear_calls_of<DplrCalls, float>(),
    .f64 = linear_calls_of<DplrCalls, double>(),
    .tuning = tuning_of_dplr};

}  // namespace ttr::families
