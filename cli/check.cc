// `ttr check`: every property of every layer, from the layer's table of inputs, or of a recipe. One line per check; a
// line that failed runs alone by its name:  ttr check 'rls(ridge=input):B2-T7-H1-K3-V5-f64-seed1'
//
//   forms      every form gives the recurrent form's outputs, final state and gradients
//   oracle     outputs equal the literal solution of the recipe; gradients equal its reverse mode
//   gradient   gradients equal central differences of the literal solution (double)
//   split      a sequence cut anywhere, with the state carried over, equals the whole
//   step       token by token equals the whole
//   batch      a row of a batch equals the sequence alone, bit for bit
//   threads    two threads give the bits of one (cases without the oracle)
//   direction  the slope of the outputs along all inputs at once is that of their gradients (the same, in double)
//
// check_case.h says which cases there are, and which of these checks the long ones leave out.
// Workspaces hold NaN before every call, so a kernel that reads what it did not write fails all of these.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "check_case.h"
#include "check_measure.h"
#include "check_recipes.h"
#include "commands.h"
#include "json.h"
#include "progress.h"
#include "random.h"
#include "runner.h"

namespace ttr::cli {
namespace {

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

// A sum of products of keys or of features with themselves, "B H K K" or "B H F F": symmetric, positive definite.
bool is_information(const StateInfo& part) { return part.shape.ends_with("K K") || part.shape.ends_with("F F"); }

bool is_gate(const InputInfo& info) { return info.range == Range::log_gate || info.range == Range::negative; }

// A plan that is not causal has neither steps nor a recurrent form.
bool has_steps(const Plan& plan) { return plan.forms().front() == Form::step; }

class LayerCheck {
 public:
  LayerCheck(const LayerInfo& info, const std::string& settings, bool literal, const Case& c, CheckPrinter& printer)
      : info_(info),
        literal_(literal),
        text_(settings.empty() ? info.name : info.name + ":" + settings),
        label_(settings.empty() ? info.name : info.name + "(" + settings + ")"),
        case_(c),
        printer_(printer) {}

  Plan make_plan(int batch, const std::string& kernel, int threads = 1) const {
    return make_plan(batch, kernel, threads, case_.type);
  }
  Plan make_plan(int batch, const std::string& kernel, int threads, Type type) const {
    Options options;
    options.type = type, options.chunk = case_.chunk, options.kernel = kernel, options.threads = threads;
    return ttr::plan(text_, {batch, case_.heads, case_.key_heads, case_.key_dim, case_.value_dim}, options);
  }

  /// False if that many tokens say nothing: answers leave the range of the numbers, have no slope that differences would
  /// find, or depend on rounding.
  bool run() {
    const Runner runner(make_plan(case_.batch, ""), case_.time);
    const Plan& plan = runner.plan();
    for (std::size_t i = 0; i < plan.inputs().size(); ++i)
      inputs_[plan.inputs()[i].name] = random_input(plan, plan.inputs()[i], case_.time, case_.seed * 1000 + i);
    SplitMix random(case_.seed + 77);
    for (const InputInfo& out : plan.outputs())
      if (out.differentiable) d_outputs_[out.name] = normals(random, count(plan, out.shape, case_.time));
    if (!on_oracle(plan) && plan.tokens_kept({}) < 0) make_states(plan, random);
    if (case_.strong) make_strong(plan);
    if (case_.alone) open_gates(plan);
    if (case_.closed) close_gates(plan);

    reference_form_ = reference_form(plan);
    reference_ = runner.forward(inputs_, initial_, reference_form_);
    grown_ = growth(all_of(reference_), case_.type);
    // A random state may be far from any that pairs make; that of one token must do.
    if (leaves_range() && !initial_.empty() && case_.time > 1) {
      initial_.clear(), d_final_.clear();
      reference_ = runner.forward(inputs_, initial_, reference_form_);
      grown_ = growth(all_of(reference_), case_.type);
    }
    if (leaves_range() && case_.time > 1) return false;
    if (case_.gradients()) d_reference_ = backward(runner, reference_form_);
    check_forms(runner);
    if (case_.closed) return check_oracle();
    if (has_steps(plan)) check_pieces(runner);
    if (case_.batch > 1) check_batch(runner);
    if (case_.direction() && !check_direction(runner)) return false;
    if (case_.alone) {
      check_threads(runner);
      return true;
    }
    if (!check_oracle()) return false;
    if (case_.differences) check_differences();
    return true;
  }

  bool leaves_range() const { return !(grown_ < 1); }
  /// Of a case that was shortened because its answers left the range of the numbers: so must the literal solution, else
  /// something other than growth made them.
  void check_growth() {
    if (on_oracle(make_plan(1, ""))) return;
    const Runner literal(make_plan(case_.batch, literal_ ? "oracle" : ""), case_.time);
    const bool grows = literal_ && growth(literal.forward(inputs_, {}, reference_form_).outputs, case_.type) > 0.25;
    row("growth", reference_form_, grows ? 0.0 : 1.0, 0.0, "answers leave the range of the numbers");
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

  // Gates that leave something of the first token to the last: what old tokens give and get is not lost in rounding.
  void open_gates(const Plan& plan) {
    for (const InputInfo& info : plan.inputs())
      if (info.range == Range::log_gate)
        for (double& x : inputs_[info.name]) x = static_cast<float>(x / 64);
  }

  // Gates that close within a few tokens, and values of a size at which a product with the inverse of what they close
  // to is no float any more.
  void make_strong(const Plan& plan) {
    SplitMix random(case_.seed + 99);
    for (const InputInfo& info : plan.inputs()) {
      Numbers& numbers = inputs_[info.name];
      if (info.range == Range::log_gate)
        for (double& x : numbers) x = static_cast<float>(-2.5 - 0.1 * random.uniform());
      if (info.name == "v")
        for (double& x : numbers) x *= 1e5;
    }
  }

  // Gates of -15 to -20, rates that a step in (0, 1) multiplies of -20 to -40.
  void close_gates(const Plan& plan) {
    for (const InputInfo& info : plan.inputs()) {
      if (!is_gate(info)) continue;
      gates_.push_back(info.name);
      for (double& x : inputs_[info.name]) {
        const double part = 1 - std::exp(x);
        x = static_cast<float>(info.range == Range::log_gate ? -15 - 5 * part : -20 - 20 * part);
      }
    }
  }

  double gradient_error(const NamedNumbers& actual, const NamedNumbers& expected, double allowed) const {
    double error = relative_error(actual, expected, gradient_floor(expected, case_.type, allowed));
    for (const std::string& name : gates_)
      if (expected.contains(name)) error = std::max(error, relative_error(actual.at(name), expected.at(name)));
    return error;
  }

  Backward backward(const Runner& runner, Form form) const {
    return runner.backward(inputs_, initial_, d_outputs_, d_final_, form);
  }

  void row(const std::string& check, Form form, double error, double tolerance, std::string note = {}) const {
    printer_.add({label_, name_of(case_), check, std::string(to_string(form)),
                  case_.type == Type::f32 ? "f32" : "f64", error, tolerance, error <= tolerance, std::move(note)});
  }

  void check_forms(const Runner& runner) const {
    for (Form form : runner.plan().forms()) {
      if (form == Form::step || form == reference_form_) continue;
      row("forms", form, relative_error(all_of(runner.forward(inputs_, initial_, form)), all_of(reference_)),
          form_tolerance(case_.type, false, info_.conditioning));
      if (!case_.gradients()) continue;
      const double allowed = form_tolerance(case_.type, true, info_.conditioning);
      row("forms-gradient", form, gradient_error(all_of(backward(runner, form)), all_of(d_reference_), allowed),
          allowed);
    }
  }

  void check_pieces(const Runner& runner) const {
    const double tolerance = form_tolerance(case_.type, false, info_.conditioning);
    std::vector<std::int64_t> tokens;  // of a long sequence the last ones
    for (std::int64_t t = std::max<std::int64_t>(1, case_.alone ? case_.time - 5 : 1); t < case_.time; ++t)
      tokens.push_back(t);
    row("step", Form::step,
        relative_error(all_of(runner.in_pieces(inputs_, initial_, tokens, Form::step)), all_of(reference_)),
        tolerance);
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
      row("split", form, error, tolerance);
    }
  }

  // Bit for bit: a row alone and a row of a batch go through the same operations in the same order.
  void check_batch(const Runner& runner) const {
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

  // Bit for bit: who computes a head, a sequence or a column decides nothing.
  void check_threads(const Runner& runner) const {
    const Runner shared(make_plan(case_.batch, "", 2), case_.time);
    const auto in_two = [&](const Runner& r) {  // the second call continues what threads have left
      return all_of(has_steps(r.plan()) ? r.in_pieces(inputs_, initial_, {case_.time / 2}, Form::best)
                                        : r.forward(inputs_, initial_, Form::best));
    };
    double error = relative_error(in_two(shared), in_two(runner));
    if (case_.gradients())
      error =
          std::max(error, relative_error(all_of(backward(shared, Form::best)), all_of(backward(runner, Form::best))));
    row("threads", Form::best, error, 0);
  }

  // Forms may share what makes their gradients, and one number at a time of a long sequence would take too long: all
  // numbers move at once, each by a share of its size, up or down. An error anywhere is seen if it is more than 1e-7
  // of what the gradients' products with that direction add up to.
  bool check_direction(const Runner& runner) const {
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
    const Slope slope = slope_of(along, 1.0, 1e-7 * scale, loss_at, {1e-3, 1e-4, 1e-5, 1e-6});
    if (!(slope.distance <= 1e-7 * scale) && !slope.found && case_.time > 1) return false;
    row("direction", Form::best, slope.distance / scale, 1e-7);
    return true;
  }

  double tolerance() const { return case_.type == Type::f64 ? info_.tolerance_f64 : info_.tolerance_f32; }

  // From a fresh state: the literal solver keeps other things in its state than the kernels do. False if that many tokens
  // make rounding as large as what was found: the literal solution itself moves as far if its inputs do by roundings.
  bool check_oracle() {
    if (!literal_) return true;
    const Runner runner(make_plan(case_.batch, ""), case_.time),
        literal(make_plan(case_.batch, "oracle"), case_.time);
    if (on_oracle(runner.plan())) return true;
    const NamedNumbers d_outputs = gradients_of(literal.plan());
    const Forward expected = literal.forward(inputs_, {}, reference_form_);
    const Backward d_expected = literal.backward(inputs_, {}, d_outputs, {}, reference_form_);
    std::vector<std::array<double, 2>> errors;
    double worst = 0;
    for (Form form : runner.plan().forms()) {
      if (form == Form::step) continue;
      errors.push_back(
          {relative_error(runner.forward(inputs_, {}, form).outputs, expected.outputs),
           gradient_error(runner.backward(inputs_, {}, d_outputs, {}, form).inputs, d_expected.inputs, tolerance())});
      worst = std::max({worst, errors.back()[0], errors.back()[1]});
    }
    if (!(worst <= tolerance()) && case_.time > 1) {
      const Plan wide = make_plan(case_.batch, "oracle", 1, Type::f64);
      const Runner other(wide, case_.time);
      const double sensitivity = relative_error(other.forward(nudged(inputs_), {}, reference_form_).outputs,
                                                other.forward(inputs_, {}, reference_form_).outputs) /
                                 nudge;
      if (sensitivity > 1e4 &&
          worst <= 4000 * (case_.type == Type::f32 ? 0x1p-24 : 0x1p-53) * sensitivity * sensitivity)
        return false;
    }
    std::size_t i = 0;
    for (Form form : runner.plan().forms()) {
      if (form == Form::step) continue;
      row("oracle", form, errors[i][0], tolerance());
      row("oracle-gradient", form, errors[i++][1], tolerance());
    }
    return true;
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
      double largest = 0, difference = 0;
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
        difference = std::max(difference, slope_of(gradient[i], x, 1e-7 * scale, loss_at).distance);
      }
      row("gradient", Form::best, difference / scale, 1e-7, "of " + info.name);
    }
    if (on_oracle(runner.plan()) || runner.plan().tokens_kept({}) >= 0 || initial_.empty()) return;
    // The initial state, against the kernel's own outputs (which agree with the oracle from a fresh state).
    for (const StateInfo& part : runner.plan().states()) {
      if (is_information(part)) continue;  // one number alone would make it unsymmetric
      if (!part.differentiable || part.range == Range::fresh) continue;
      const Numbers& gradient = d_reference_.state.at(part.name);
      double largest = 0, difference = 0;
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
        difference = std::max(difference, slope_of(gradient[i], x, 1e-7 * scale, loss_at).distance);
      }
      row("gradient", Form::recurrent, difference / scale, 1e-7, "of initial state " + part.name);
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
  CheckPrinter& printer_;
  NamedNumbers inputs_, initial_, d_outputs_, d_final_;
  std::vector<std::string> gates_;  // that are closed
  Forward reference_;
  Backward d_reference_;
  Form reference_form_ = Form::recurrent;
  double grown_ = 0;
};

// Networks whose steps magnify rounding token after token, until after a hundred two forms have nothing in common.
constexpr std::string_view magnifying[] = {"titans-pytorch(chunk=2,refresh=6,width=5)", "lact(batch=4,width=6)",
                                           "omega-rule(window=2,muon=yes)"};

// Whether a case is one for this layer. `seen`: the cases that each kernel has had, of those it has once.
bool applies(const Case& c, const LayerInfo& info, const std::string& settings, const Plan& plan,
             std::set<std::string>& seen) {
  const std::string kernel = plan.kernel().substr(0, plan.kernel().find('/')),
                    label = info.name + "(" + settings + ")";
  if (c.alone && (kernel == "oracle" || std::ranges::find(magnifying, label) != std::end(magnifying))) return false;
  for (const Term& term : plan.recipe().weights)  // n levels hold 2^(n - 1) tokens
    if (const Argument* const n = term.word == "levels" ? term.find("") : nullptr; n && n->is_number())
      if (c.time > std::exp2(n->number() - 1)) return false;
  if (c.closed && std::ranges::none_of(plan.inputs(), is_gate)) return false;
  if (c.strong) {
    const Term& memory =
        plan.recipe().memory;  // the answer is a linear function of the values: they may have any size
    const bool linear = ((memory.word == "linear" && !memory.has("reverse")) || memory.word == "constant") &&
                        !plan.recipe().solver.has("mirror");
    const auto has = [&](auto&& wanted) { return std::ranges::any_of(plan.inputs(), wanted); };
    if (!linear || !has([](const InputInfo& in) { return in.range == Range::log_gate; })) return false;
    if (!has([](const InputInfo& in) { return in.name == "v"; })) return false;
  }
  if (c.who == Case::For::plain) return settings.empty() && plan.tokens_kept({}) < 0 && has_steps(plan);
  // Operations have no kernel: each is one. Not over many tokens in float, which rounds their positions.
  if (info.recipe.empty() && c.who == Case::For::kernel && c.type == Type::f32) return false;
  return c.who == Case::For::all || seen.insert((info.recipe.empty() ? info.name : kernel) + name_of(c)).second;
}

void check_layer(const LayerInfo& info, const std::vector<VariantInfo>& variants, const std::vector<Case>& cases,
                 std::set<std::string>& seen, CheckPrinter& printer) {
  for (const auto& [settings, max_key_dim, literal] : variants)
    for (Case c : cases) {
      if (interrupted()) return;
      if (c.key_dim > max_key_dim) continue;
      if (!info.grouped) c.key_heads = 0;
      if (info.square) c.value_dim = c.key_dim;
      try {
        const auto check = [&] { return LayerCheck(info, settings, literal && info.literal, c, printer); };
        if ((c.alone || c.strong) && !applies(c, info, settings, check().make_plan(1, ""), seen)) continue;
        std::optional<LayerCheck> longer;  // the shortest whose answers are no numbers
        for (;; c.time /= 2) {
          LayerCheck one = check();
          if (one.run()) break;
          if (one.leaves_range()) longer.emplace(std::move(one));
        }
        if (longer) longer->check_growth();
      } catch (const Error& error) {
        printer.add({settings.empty() ? info.name : info.name + "(" + settings + ")", name_of(c), "run", "best",
                     c.type == Type::f32 ? "f32" : "f64", std::nan(""), 0, false, error.what()});
      }
    }
}

// What the checks need to know of a recipe without a name.
LayerInfo info_of_recipe(const std::string& text) {
  const Recipe recipe = parse_recipe(text);
  LayerInfo info;
  info.name = info.recipe = to_string(recipe);
  info.square = recipe.memory.has("residual");
  // A fit around every query solves a system per token, as in local-linear-attention, whose keys' local covariance is
  // as badly conditioned under any weights.
  if (recipe.memory.word == "local") info.conditioning = find_layer("local-linear-attention").conditioning;
  VariantInfo plain;
  constexpr double most_features = 300;
  while (plain.max_key_dim > 1 &&
         features_of(recipe, plain.max_key_dim) > std::max(most_features, 1.0 * plain.max_key_dim))
    --plain.max_key_dim;
  info.variants = {plain};
  return info;
}

}  // namespace

void CheckPrinter::add(const CheckRow& row) {
  (row.passed ? passed_ : failed_) += 1;
  if (json_) {
    rows_.push_back(row);
    return;
  }
  if (quiet_ && row.passed) return;
  fmt::print("{:<62} {:<15} {:<9} {:<4} error {:<8.1e} tolerance {:<7.0e} {}{}{}\n", row.layer + ":" + row.name,
             row.check, row.form, row.dtype, row.error, row.tolerance, row.passed ? "ok" : "FAILED",
             row.note.empty() ? "" : "  ", row.note);
}

int CheckPrinter::finish() {
  if (json_) {
    Json list = Json::array();
    for (const CheckRow& row : rows_) {
      Json j = Json::object();
      j.set("layer", row.layer)
          .set("case", row.name)
          .set("check", row.check)
          .set("form", row.form)
          .set("dtype", row.dtype);
      j.set("error", row.error).set("tolerance", row.tolerance).set("passed", row.passed);
      if (!row.note.empty()) j.set("note", row.note);
      list.push(j);
    }
    fmt::print("{}\n", list.dump());
  } else {
    fmt::print("{} passed, {} failed\n", passed_, failed_);
  }
  return failed_ == 0 ? 0 : 1;
}

int run_check(const CheckOptions& options) {
  InterruptGuard guard;
  CheckPrinter printer(options);
  if (!options.golden.empty()) {
    check_golden(options.golden, options.what, printer);
    return printer.finish();
  }
  std::vector<std::string> wanted = options.what;
  std::set<std::string> seen;
  if (wanted.empty()) {
    for (const LayerInfo& info : layers()) wanted.push_back(info.name);
    // What no layer's own cases have: fewer keys than dimensions and no ridge, where steps must end, and a sum over
    // constant values that threads share.
    for (const char* extra :
         {"equal / linear / cg(30):B1-T1-H2-K5-V4-f64-seed3", "equal / linear / cg(30):B2-T2-H2-K5-V4-f64-seed4",
          "equal / linear / cg(30):B2-T2-H2-K5-V4-f32-seed4", "based:B1-T60-H1-K70-V9-f64-alone-seed14"})
      wanted.emplace_back(extra);
  }
  for (const std::string& text : wanted) {
    // LAYER[(settings)][:CASE] or RECIPE[:CASE]; neither settings nor recipes contain a colon.
    const bool is_recipe = text.find('/') != std::string::npos;
    const std::size_t close = text.rfind(')'), colon = text.find(':', close == std::string::npos ? 0 : close);
    const std::string head = text.substr(0, colon);
    const std::size_t open = is_recipe ? std::string::npos : head.find('(');
    const LayerInfo own = is_recipe ? info_of_recipe(head) : LayerInfo{};
    const LayerInfo& info = is_recipe ? own : find_layer(head.substr(0, open));
    std::vector<VariantInfo> variants = info.variants;
    if (!is_recipe) variants.insert(variants.begin(), VariantInfo{""});
    if (open != std::string::npos) {
      if (head.back() != ')') throw Error("'" + head + "' has no closing parenthesis", "check " + text);
      variants = {{head.substr(open + 1, head.size() - open - 2)}};
    } else if (colon != std::string::npos) {
      variants = {{""}};
    }
    const std::vector<Case> cases =
        colon == std::string::npos ? standard_cases() : std::vector<Case>{parse_case(text.substr(colon + 1))};
    if (is_recipe || open != std::string::npos ||
        colon != std::string::npos)  // what the user wrote must make sense; else exit 2
      for (const Case& c : cases) {
        const std::string& settings = variants.front().settings;
        if (c.key_dim > variants.front().max_key_dim) continue;
        plan(settings.empty() ? info.name : info.name + ":" + settings,
             {c.batch, c.heads, c.key_heads, c.key_dim, info.square ? c.key_dim : c.value_dim});
      }
    check_layer(info, variants, cases, seen, printer);
    if (interrupted()) {
      fmt::print(stderr, "ttr: interrupted; the lines above are complete\n");
      printer.finish();
      return 130;
    }
  }
  return printer.finish();
}

}  // namespace ttr::cli
