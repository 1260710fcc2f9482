// The checks of one layer in one case; check.cc says what they are and which cases there are.
#include "check_layer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "magnification.h"
#include "random.h"
#include "runner.h"
#include "sensitivity.h"
#include "slope.h"

namespace ttr::cli {
namespace {

// Where rounding leaves less than two digits of an answer, or of a slope, there is nothing to compare.
constexpr double least_digits = 1e-2;

// Differences find a slope to 1e-7 if a step is short enough for the gradient, which changes by s of its size over a step
// of 1, not to bend (s h < 0.04, the fourth power of which is 30 times 1e-7), and long enough for the rounding of the
// values, u s, to be less than 1e-7 h. Beyond s = sqrt(0.04 1e-7 / u) no step is both.
constexpr double most_bend = 6e3;

// Answers that have grown so far do so by themselves: inputs are of the size of 1.
constexpr double diverging = 1e20;

// A random initial state of which rounding leaves nothing, though it does from a fresh one.
struct FromFresh {};

// Outputs and states as one set of arrays to compare.
NamedNumbers all_of(const Forward& f) {
  NamedNumbers all = f.outputs;
  for (const auto& [name, numbers] : f.state) all["state." + name] = numbers;
  return all;
}
NamedNumbers all_of(const Backward& b) {
  NamedNumbers all = b.inputs;
  for (const auto& [name, numbers] : b.state) all["state." + name] = numbers;
  return all;
}

// Float tolerances between forms of one precision, from measured rounding (docs/HACKING.md): sums in another order.
double form_tolerance(Type type, bool gradient, double conditioning) {
  if (type == Type::f64) return conditioning * (gradient ? 1e-11 : 1e-12);
  return conditioning * (gradient ? 1e-4 : 5e-6);
}

// Differences of a loss know a slope to the rounding of the loss over the step, 1e-13 or so, whatever its size.
double difference_floor(const NamedNumbers& gradients) { return std::max(0.1 * largest_of(gradients), 1e-2); }

// A sum of products of keys or of features with themselves, "B H K K" or "B H F F": symmetric, positive definite.
bool is_information(const StateInfo& part) { return part.shape.ends_with("K K") || part.shape.ends_with("F F"); }

class LayerCheck {
 public:
  LayerCheck(const LayerInfo& info, const std::string& settings, bool literal, const Case& c)
      : info_(info),
        literal_(literal),
        text_(settings.empty() ? info.name : info.name + ":" + settings),
        label_(settings.empty() ? info.name : info.name + "(" + settings + ")"),
        case_(c) {}

  Plan make_plan(int batch, const std::string& kernel, int threads = 1, std::optional<Type> type = {}) const {
    Options options;
    options.type = type.value_or(case_.type), options.chunk = case_.chunk, options.kernel = kernel,
    options.threads = threads;
    return ttr::plan(text_, {batch, case_.heads, case_.key_heads, case_.key_dim, case_.value_dim}, options);
  }

  /// Without an initial state: the literal solution knows none, and cannot say what a problem makes of one.
  void begin_fresh() { fresh_ = true; }

  std::vector<CheckRow> run() {
    const Runner runner(make_plan(case_.batch, ""), case_.time);
    const Plan& plan = runner.plan();
    for (std::size_t i = 0; i < plan.inputs().size(); ++i)
      inputs_[plan.inputs()[i].name] = random_input(plan, plan.inputs()[i], case_.time, case_.seed * 1000 + i);
    SplitMix random(case_.seed + 77);
    for (const InputInfo& out : plan.outputs())
      if (out.differentiable) d_outputs_[out.name] = normals(random, count(plan, out.shape, case_.time));
    if (!fresh_ && !on_oracle(plan) && plan.tokens_kept({}) < 0) make_states(plan, random);
    if (case_.strong) make_strong(plan, case_.seed, inputs_);
    if (case_.alone) open_gates(plan, inputs_);
    if (case_.closed) gates_ = close_gates(plan, inputs_);

    reference_form_ = reference_form(plan);
    reference_ = runner.forward(inputs_, initial_, reference_form_);
    if (!std::isfinite(largest_of(all_of(reference_)))) {  // a random state may be far from any that pairs make
      initial_.clear(), d_final_.clear();
      reference_ = runner.forward(inputs_, initial_, reference_form_);
    }
    expect_numbers(plan);
    if (case_.gradients()) d_reference_ = backward(runner, reference_form_);
    expect_numbers(plan);
    check_forms(runner);
    if (!case_.closed) {
      if (has_steps(plan)) check_pieces(runner);
      if (case_.batch > 1) check_batch(runner);
      if (case_.direction()) check_direction(runner);
      if (case_.alone) check_threads(runner);
    }
    if (!case_.alone || case_.closed) check_oracle();
    if (case_.differences) check_differences();
    return std::move(rows_);
  }

 private:
  static bool on_oracle(const Plan& plan) { return plan.kernel() == "oracle"; }
  static Form reference_form(const Plan& plan) { return has_steps(plan) ? Form::recurrent : plan.forms().front(); }
  static Numbers normals(SplitMix& random, std::size_t n) {
    Numbers numbers(n);
    for (double& x : numbers) x = static_cast<float>(random.normal());
    return numbers;
  }

  // A state that could have come from earlier tokens: information matrices are positive definite.
  void make_states(const Plan& plan, SplitMix& random) {
    for (const StateInfo& part : plan.states()) {
      if (part.range == Range::fresh) continue;
      const auto extent = plan.extents(part.shape, case_.time);
      Numbers numbers = normals(random, count(plan, part.shape, case_.time));
      const std::size_t n = extent.size(), side = static_cast<std::size_t>(extent[n - 1]);
      if (is_information(part)) {
        for (std::size_t base = 0; base < numbers.size(); base += side * side) {
          Numbers square(side * side);
          for (std::size_t i = 0; i < side; ++i)
            for (std::size_t j = 0; j < side; ++j) {
              for (std::size_t l = 0; l < side; ++l)
                square[i * side + j] += numbers[base + i * side + l] * numbers[base + j * side + l];
            }
          std::copy(square.begin(), square.end(), numbers.begin() + static_cast<std::ptrdiff_t>(base));
        }
      } else if (part.range == Range::small || part.range == Range::weights) {
        const double size = part.range == Range::small ? 10 : std::sqrt(static_cast<double>(extent[n - 2]));
        for (double& x : numbers) x /= size;
      } else if (part.range == Range::positive) {
        for (double& x : numbers) x = std::abs(x) + 1;
      }
      initial_[part.name] = numbers;
      d_final_[part.name] = normals(random, numbers.size());
      if (!part.differentiable) d_final_[part.name].assign(numbers.size(), 0.0);
      if (is_information(part))
        for (std::size_t base = 0; base < numbers.size(); base += side * side)
          for (std::size_t i = 0; i < side; ++i)
            for (std::size_t j = 0; j < i; ++j)
              d_final_[part.name][base + i * side + j] = d_final_[part.name][base + j * side + i];
    }
  }

  // A gradient that is smaller than the others of its layer may be a sum of terms of their size that cancel (of that of
  // the incoming gradients, 1, where all of them vanish, as behind a norm of one channel). Every token adds a product for
  // each channel to such a sum and rounds it once; n roundings of either sign add up to sqrt(n) in the mean of squares,
  // and twice that is allowed in every gradient, beyond that a tolerance relative to its own size. A layer that loses
  // more (a division by the length of a short answer) is judged by what it magnifies.
  double gradient_floor(double largest, double tolerance) const {
    const double terms = static_cast<double>(case_.time) * (case_.key_dim + case_.value_dim);
    return 2 * std::sqrt(terms) * unit() * std::max(largest, 1.0) / tolerance;
  }

  // `lost`: by how much more than a rounding the larger terms are known.
  double gradient_error(const NamedNumbers& actual, const NamedNumbers& expected, double allowed,
                        double lost = 1) const {
    double error = relative_error(actual, expected, lost * gradient_floor(largest_of(expected), allowed));
    for (const std::string& name : gates_)
      if (expected.contains(name)) error = std::max(error, relative_error(actual.at(name), expected.at(name)));
    return error;
  }

  Backward backward(const Runner& runner, Form form) const {
    return runner.backward(inputs_, initial_, d_outputs_, d_final_, form);
  }

  // What an error is measured against: nothing, where bits must be the same; the problem's own magnification, of the kernel
  // from the initial state of the case, or of the literal solution from a fresh one.
  enum class Against { nothing, kernel, literal };

  double unit() const { return case_.type == Type::f32 ? 0x1p-24 : 0x1p-53; }
  // Answers and gradients beyond this have squares that are no numbers.
  double most() const { return case_.type == Type::f32 ? 1e15 : 1e140; }
  // Of answers below this, what they are made of is no number of the type any more.
  double least() const { return case_.type == Type::f32 ? 1e-30 : 1e-290; }

  void row(const std::string& check, Form form, double error, double tolerance, std::string note = {}) {
    rows_.push_back({label_, name_of(case_), check, std::string(to_string(form)),
                     case_.type == Type::f32 ? "f32" : "f64", error, tolerance, error <= tolerance, std::move(note)});
  }

  // An error beyond the tolerance is one unless the problem itself magnifies rounding so much.
  void judge(const std::string& check, Form form, bool gradient, double error, double tolerance, Against against) {
    if (error <= tolerance) return row(check, form, error, tolerance);
    const Magnification& s = magnification(against);
    const double factor = gradient ? s.gradients : s.outputs;
    // Tolerances between forms have the conditioning of solves in them.
    const double inside = against == Against::literal ? info_.conditioning : 1;
    const double allowed = std::min(allowed_error(tolerance, unit(), factor * inside), least_digits);
    if (!(s.largest_output <= most() && (!gradient || s.largest_gradient <= most())) ||
        !(allowed_error(tolerance, unit(), factor) <= least_digits)) {
      if (is_undetermined(against, gradient)) undetermined(s, gradient);
      if (against == Against::kernel && !initial_.empty()) throw FromFresh{};
      return row(check, form, error, tolerance, "the kernel magnifies rounding, the literal solution does not");
    }
    row(check, form, error, allowed,
        fmt::format("the problem magnifies a rounding of its inputs {:.1e} times{}", factor,
                    inside > 1 ? fmt::format(", its solve one inside {} times", inside) : std::string()));
  }

  const Magnification& magnification(Against against) {
    std::optional<Magnification>& s = magnifications_[against == Against::literal ? 1 : 0];
    if (s) return *s;
    const Runner in_double(make_plan(case_.batch, against == Against::literal ? "oracle" : "", 1, Type::f64),
                           case_.time);
    static const NamedNumbers none;
    const NamedNumbers d_outputs = gradients_of(in_double.plan());
    const bool fresh = against == Against::literal;
    s = measure_magnification(in_double,
                              {inputs_, fresh ? none : initial_, d_outputs, fresh ? none : d_final_, reference_form_,
                               case_.gradients(), gates_, gradient_floor(0, tolerance()), most()},
                              unit(), case_.seed);
    // Conjugate gradients: the length of a step is a quotient of squares, and so is its gradient once more.
    if (in_double.plan().recipe().solver.word == "cg")
      s->gradients = std::max(s->gradients, 4e-3 * s->gradients * s->gradients);
    if (!fresh) return *s;
    s->gradients = std::max(s->gradients, 1 / least_step_share(in_double, inputs_, reference_form_));
    const double norms = longest_before_norm(in_double, inputs_);
    s->outputs = std::max(s->outputs, norms), s->gradients = std::max(s->gradients, norms);
    if (has_least_norm(in_double.plan().recipe())) {  // rotations lose u condition of the products (sensitivity.h)
      s->outputs = std::max(s->outputs, 4e-3 * condition());
      s->gradients = std::max(s->gradients, 4e-3 * condition());
    }
    return *s;
  }

  bool leaves_nothing(const Magnification& s, bool gradient) const {
    return !(std::max(s.largest_output, gradient ? s.largest_gradient : 0.0) <= most()) ||
           !(allowed_error(tolerance(), unit(), gradient ? s.gradients : s.outputs) <= least_digits);
  }

  // A kernel may not excuse itself: what it says of a problem must be so in the literal solution. Where that takes too
  // long, or there is none, numbers that ended must have been large before, and gradients those of answers that rounding
  // decides.
  bool is_undetermined(Against against, bool gradient) {
    if (against == Against::literal) return true;
    if (literal_ && !case_.alone) return leaves_nothing(magnification(Against::literal), gradient);
    const Magnification& s = magnification(Against::kernel);
    constexpr double chaotic = 1e10;
    if (!std::isfinite(s.largest_output)) return largest_before_the_end() > diverging;
    return std::isfinite(s.largest_gradient) || s.outputs > chaotic || s.largest_output > diverging;
  }

  // The largest answer before the first token whose answer is not finite, of the kernel in double.
  double largest_before_the_end() const {
    const Runner in_double(make_plan(case_.batch, "", 1, Type::f64), case_.time);
    const Forward forward = in_double.forward(inputs_, initial_, reference_form_);
    double most_so_far = 0;
    for (std::int64_t t = 0; t < case_.time; ++t) {
      NamedNumbers token;
      for (const InputInfo& out : in_double.plan().outputs())
        token[out.name] = tokens_of(in_double.plan(), forward.outputs.at(out.name), out.shape, case_.time, t, t + 1);
      const double largest = largest_of(token);
      if (!std::isfinite(largest)) break;
      most_so_far = std::max(most_so_far, largest);
    }
    return most_so_far;
  }

  [[noreturn]] void undetermined(const Magnification& s, bool gradient, bool diverges = false) const {
    const char* const what = gradient ? "gradients" : "answers";
    const double largest = gradient ? std::max(s.largest_gradient, s.largest_output) : s.largest_output,
                 factor = gradient ? s.gradients : s.outputs;
    if (diverges || !(largest <= most()))
      throw Undetermined{
          fmt::format("within {} tokens its {} grow {}: it diverges", case_.time, what,
                      std::isfinite(largest) ? fmt::format("to {:.0e}", largest) : std::string("beyond all numbers")),
          true};
    throw Undetermined{fmt::format(
        "within {} tokens it magnifies a rounding of its inputs {:.0e} times in its {}{}, "
        "which leaves nothing to compare",
        case_.time, factor, what, largest > 1e6 ? fmt::format(" (they grow to {:.0e})", largest) : std::string())};
  }

  // Answers that are no numbers are an error, unless those of the problem are none either, or none of the type.
  void expect_numbers(const Plan& plan) {
    const double answers = largest_of(all_of(reference_)), gradients = largest_of(all_of(d_reference_));
    if (std::isfinite(answers + gradients)) return;
    if (on_oracle(plan)) undetermined({1, 1, answers, gradients}, answers <= most());
    const Against against = literal_ && !case_.alone ? Against::literal : Against::kernel;
    const Magnification& s = magnification(against);
    const bool gradient = s.largest_output <= most();
    if (!(std::max(s.largest_output, s.largest_gradient) <= most()) && is_undetermined(against, gradient))
      undetermined(s, gradient);
  }

  void check_forms(const Runner& runner) {
    for (Form form : runner.plan().forms()) {
      if (form == Form::step || form == reference_form_) continue;
      judge("forms", form, false, relative_error(all_of(runner.forward(inputs_, initial_, form)), all_of(reference_)),
            form_tolerance(case_.type, false, info_.conditioning), Against::kernel);
      if (!case_.gradients()) continue;
      const double allowed = form_tolerance(case_.type, true, info_.conditioning);
      judge("forms-gradient", form, true,
            gradient_error(all_of(backward(runner, form)), all_of(d_reference_), allowed), allowed, Against::kernel);
    }
  }

  void check_pieces(const Runner& runner) {
    const double tolerance = form_tolerance(case_.type, false, info_.conditioning);
    std::vector<std::int64_t> tokens;  // of a long sequence the last ones
    for (std::int64_t t = std::max<std::int64_t>(1, case_.alone ? case_.time - 5 : 1); t < case_.time; ++t)
      tokens.push_back(t);
    judge("step", Form::step, false,
          relative_error(all_of(runner.in_pieces(inputs_, initial_, tokens, Form::step)), all_of(reference_)),
          tolerance, Against::kernel);
    const Form best = runner.plan().best_form(case_.time);
    for (Form form : runner.plan().forms()) {
      if (form == Form::step || case_.time < 2 || (case_.alone && form != best)) continue;
      double error = 0;
      for (const std::vector<std::int64_t>& cuts :
           {std::vector<std::int64_t>{case_.time / 3, case_.time - 1}, {1}, {case_.time / 2}, {0, case_.time}}) {
        const Forward pieces = runner.in_pieces(inputs_, initial_, cuts, form);
        error = std::max(error, relative_error(all_of(pieces), all_of(reference_)));
        if (case_.alone) break;
      }
      judge("split", form, false, error, tolerance, Against::kernel);
    }
  }

  // Bit for bit: a row alone and a row of a batch go through the same operations in the same order.
  void check_batch(const Runner& runner) {
    const Plan& plan = runner.plan();
    const Runner alone(make_plan(1, ""), case_.time);
    for (Form form : plan.forms()) {
      if (form == Form::step || (case_.alone && form != plan.best_form(case_.time))) continue;
      const Forward together = runner.forward(inputs_, initial_, form);
      const Backward d_together = backward(runner, form);
      double error = 0;
      for (int b = case_.alone ? case_.batch - 1 : 0; b < case_.batch; ++b) {
        const auto rows = [&](const NamedNumbers& numbers, auto infos) {
          NamedNumbers result;
          for (const auto& info : infos)
            if (const auto found = numbers.find(info.name); found != numbers.end())
              result[info.name] = row_of(plan, found->second, info.shape, case_.time, b);
          return result;
        };
        const NamedNumbers in = rows(inputs_, plan.inputs()), start = rows(initial_, plan.states());
        const Forward one = alone.forward(in, start, form);
        error = std::max(error, relative_error(one.outputs, rows(together.outputs, plan.outputs())));
        const Backward d_one =
            alone.backward(in, start, rows(d_outputs_, plan.outputs()), rows(d_final_, plan.states()), form);
        for (const InputInfo& info : plan.inputs())
          if (info.shape.starts_with("B"))
            error = std::max(
                error, relative_error(d_one.inputs.at(info.name),
                                      row_of(plan, d_together.inputs.at(info.name), info.shape, case_.time, b)));
      }
      row("batch", form, error, 0);
    }
  }

  // Bit for bit: who computes a head, a sequence, a column or a segment decides nothing. Without chunks Form::best may
  // be another form with two threads than with one.
  void check_threads(const Runner& runner) {
    const Runner shared(make_plan(case_.batch, "", 2), case_.time);
    const auto has = [&](Form form) {
      const auto forms = runner.plan().forms();
      return std::find(forms.begin(), forms.end(), form) != forms.end();
    };
    std::vector<Form> forms = {Form::best};
    if (has(Form::scan)) forms = {has(Form::chunk) ? Form::best : Form::recurrent, Form::scan};
    for (const Form form : forms) {
      const auto in_two = [&](const Runner& r) {  // the second call continues what threads have left
        return all_of(has_steps(r.plan()) ? r.in_pieces(inputs_, initial_, {case_.time / 2}, form)
                                          : r.forward(inputs_, initial_, form));
      };
      double error = relative_error(in_two(shared), in_two(runner));
      if (case_.gradients())
        error = std::max(error, relative_error(all_of(backward(shared, form)), all_of(backward(runner, form))));
      row("threads", form, error, 0);
    }
  }

  // Steps are relative to a number, because a rate of a hundredth matters as much as a weight of one.
  static double step_size(double x) { return std::clamp(std::abs(x), 0.02, 1.0); }
  static void keep_worst(Slope& worst, const Slope& s) {
    if (s.distance - s.uncertainty > worst.distance - worst.uncertainty || s.uncertainty > worst.uncertainty)
      worst = s;
  }

  // A slope is known as well as differences know it, and a gradient as rounding leaves it.
  void judge_slope(const std::string& check, Form form, const Slope& s, double scale, const std::string& note = {}) {
    double allowed = std::max(1e-7, s.uncertainty / scale);
    if (!(allowed <= least_digits) || !(s.distance <= allowed * scale)) {
      const bool on_kernel = check == "direction" || !literal_;
      const Magnification& of = magnification(on_kernel ? Against::kernel : Against::literal);
      const double rounding = allowed_error(1e-7, unit(), of.gradients);  // of the gradient itself
      // Of a network that has left all bounds no step finds a slope, because it bends within any; of the rounding of its
      // inputs nothing may be left meanwhile, where its layers are saturated.
      if (!(s.uncertainty <= least_digits * scale) && of.largest_output > diverging) undetermined(of, true, true);
      if (!(of.gradients <= most_bend) && !(s.distance <= rounding * scale && rounding <= least_digits))
        undetermined(of, true);
      allowed = std::max(allowed, rounding);
    }
    row(check, form, s.distance / scale, std::min(allowed, least_digits),
        s.kink ? note + (note.empty() ? "" : ", ") + "at a kink, where every number between two slopes is one"
               : note);
  }

  // Forms may share what makes their gradients, and one number at a time of a long sequence would take too long: all
  // numbers move at once, each by a share of its size, up or down. An error anywhere is seen if it is more than 1e-7
  // of what the gradients' products with that direction add up to.
  void check_direction(const Runner& runner) {
    const NamedNumbers gradients = runner.backward(inputs_, initial_, d_outputs_, {}, Form::best).inputs;
    SplitMix random(case_.seed + 5);
    NamedNumbers direction;
    double along = 0, square = 0;
    for (const InputInfo& info : runner.plan().inputs()) {
      if (!info.differentiable) continue;
      const Numbers &gradient = gradients.at(info.name), &at = inputs_.at(info.name);
      Numbers& d = direction[info.name];
      for (std::size_t i = 0; i < at.size(); ++i) {
        d.push_back(std::clamp(std::abs(at[i]), 0.02, 1.0) * (random.uniform() < 0.5 ? -1 : 1));
        along += gradient[i] * d[i], square += gradient[i] * gradient[i] * d[i] * d[i];
      }
    }
    const double scale = std::max(std::sqrt(square), 1e-2);
    const auto loss_at = [&](double offset) {
      NamedNumbers moved = inputs_;
      for (const auto& [name, d] : direction)
        for (std::size_t i = 0; i < d.size(); ++i) moved[name][i] += offset * d[i];
      return loss(runner.forward(moved, initial_, Form::best), d_outputs_);
    };
    judge_slope("direction", Form::best, distance_from_slope(along, 1.0, 1e-7 * scale, loss_at), scale);
  }

  double tolerance() const { return case_.type == Type::f64 ? info_.tolerance_f64 : info_.tolerance_f32; }

  // From a fresh state: the literal solver keeps other things in its state than the kernels do.
  void check_oracle() {
    if (!literal_) return;
    const Runner runner(make_plan(case_.batch, ""), case_.time),
        literal(make_plan(case_.batch, "oracle"), case_.time);
    if (on_oracle(runner.plan())) return;
    const NamedNumbers d_outputs = gradients_of(literal.plan());
    const Forward expected = literal.forward(inputs_, {}, reference_form_);
    if (const double largest = largest_of(expected.outputs); largest > 0 && largest < least())
      throw Undetermined{
          fmt::format("within {} tokens its answers shrink to {:.0e}: they vanish", case_.time, largest), true};
    const Backward d_expected = literal.backward(inputs_, {}, d_outputs, {}, reference_form_);
    for (Form form : runner.plan().forms()) {
      if (form == Form::step) continue;
      judge("oracle", form, false, relative_error(runner.forward(inputs_, {}, form).outputs, expected.outputs),
            tolerance(), Against::literal);
      const NamedNumbers gradients = runner.backward(inputs_, {}, d_outputs, {}, form).inputs;
      double error = gradient_error(gradients, d_expected.inputs, tolerance());
      // Where there is no ridge, gradients of pairs are read off sums of x do' and x u', x = pinv(H) q, which are longer
      // than what a key sees of them by up to the root of the condition of H (givens.cc), and so is their rounding.
      if (error > tolerance() && has_least_norm(literal.plan().recipe()))
        error = gradient_error(gradients, d_expected.inputs, tolerance(), std::sqrt(condition()));
      judge("oracle-gradient", form, true, error, tolerance(), Against::literal);
    }
  }

  // Of the features without a ridge.
  double condition() {
    if (!condition_) {
      const Plan literal = make_plan(case_.batch, "oracle", 1, Type::f64);
      condition_ = condition_of_features(literal, literal.recipe(), inputs_, case_.time, case_.time, 0);
    }
    return *condition_;
  }

  // Central differences of the literal solution, along a few coordinates of every input; of the kernel itself where
  // the recipe does not say all.
  void check_differences() {
    const Runner runner(make_plan(case_.batch, ""), case_.time),
        literal(make_plan(case_.batch, literal_ ? "oracle" : ""), case_.time);
    const NamedNumbers d_outputs = gradients_of(literal.plan());
    const Backward gradients = runner.backward(inputs_, {}, d_outputs, {}, Form::best);
    SplitMix random(case_.seed + 5);
    for (const InputInfo& info : runner.plan().inputs()) {
      if (!info.differentiable) continue;
      const Numbers& gradient = gradients.inputs.at(info.name);
      double largest = 0;
      Slope worst;
      for (double g : gradient) largest = std::max(largest, std::abs(g));
      const double scale = std::max(largest, difference_floor(gradients.inputs));
      for (int trial = 0; trial < 6 && !gradient.empty(); ++trial) {
        const std::size_t i = static_cast<std::size_t>(random.uniform() * static_cast<double>(gradient.size()));
        NamedNumbers moved = inputs_;
        const double x = moved[info.name][i];
        const auto loss_at = [&](double offset) {
          moved[info.name][i] = x + offset;
          return loss(literal.forward(moved, {}, reference_form_), d_outputs);
        };
        keep_worst(worst, distance_from_slope(gradient[i], step_size(x), 1e-7 * scale, loss_at));
      }
      judge_slope("gradient", Form::best, worst, scale, "of " + info.name);
    }
    if (on_oracle(runner.plan()) || runner.plan().tokens_kept({}) >= 0 || initial_.empty()) return;
    // The initial state, against the kernel's own outputs (which agree with the oracle from a fresh state).
    for (const StateInfo& part : runner.plan().states()) {
      if (is_information(part)) continue;  // one number alone would make it unsymmetric
      if (!part.differentiable || part.range == Range::fresh) continue;
      const Numbers& gradient = d_reference_.state.at(part.name);
      double largest = 0;
      Slope worst;
      for (double g : gradient) largest = std::max(largest, std::abs(g));
      const double scale = std::max(largest, difference_floor(d_reference_.state));
      for (int trial = 0; trial < 6 && !gradient.empty(); ++trial) {
        const std::size_t i = static_cast<std::size_t>(random.uniform() * static_cast<double>(gradient.size()));
        NamedNumbers moved = initial_;
        const double x = moved[part.name][i];
        const auto loss_at = [&](double offset) {
          moved[part.name][i] = x + offset;
          const Forward f = runner.forward(inputs_, moved, reference_form_);
          double sum = loss(f, d_outputs_);
          for (const auto& [name, d] : d_final_)
            for (std::size_t j = 0; j < d.size(); ++j) sum += d[j] * f.state.at(name)[j];
          return sum;
        };
        keep_worst(worst, distance_from_slope(gradient[i], step_size(x), 1e-7 * scale, loss_at));
      }
      judge_slope("gradient", Form::recurrent, worst, scale, "of initial state " + part.name);
    }
  }

  // Of the outputs that a plan has: the literal solver gives the answer alone.
  NamedNumbers gradients_of(const Plan& plan) const {
    NamedNumbers gradients;
    for (const InputInfo& out : plan.outputs())
      if (out.differentiable) gradients[out.name] = d_outputs_.at(out.name);
    return gradients;
  }

  static double loss(const Forward& f, const NamedNumbers& d_outputs) {
    double sum = 0;
    for (const auto& [name, d] : d_outputs)
      for (std::size_t i = 0; i < d.size(); ++i) sum += d[i] * f.outputs.at(name)[i];
    return sum;
  }

  const LayerInfo& info_;
  bool literal_;  // whether the oracle computes the same
  std::string text_, label_;
  Case case_;
  bool fresh_ = false;
  std::vector<CheckRow> rows_;
  std::optional<double> condition_;
  std::array<std::optional<Magnification>, 2> magnifications_;  // of the kernel, of the literal solution
  NamedNumbers inputs_, initial_, d_outputs_, d_final_;
  std::vector<std::string> gates_;  // that are closed
  Forward reference_;
  Backward d_reference_;
  Form reference_form_ = Form::recurrent;
};

}  // namespace

bool has_least_norm(const Recipe& recipe) {
  const Term& solver = recipe.solver;
  const Argument* const ridge = solver.find("ridge");
  return (solver.word == "exact" || solver.word == "irls") &&
         (!ridge || (ridge->is_number() && ridge->number() == 0) || solver.has("fading"));
}

bool has_steps(const Plan& plan) { return plan.forms().front() == Form::step; }

Plan plan_of_case(const LayerInfo& info, const std::string& settings, const Case& c) {
  return LayerCheck(info, settings, false, c).make_plan(1, "");
}

std::vector<CheckRow> check_case(const LayerInfo& info, const std::string& settings, bool literal, const Case& c) {
  try {
    return LayerCheck(info, settings, literal, c).run();
  } catch (const FromFresh&) {
    LayerCheck fresh(info, settings, literal, c);
    fresh.begin_fresh();
    return fresh.run();
  }
}

}  // namespace ttr::cli
