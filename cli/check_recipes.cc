// `ttr check --recipes N --seed S`: random recipes, each on the kernel that claims it and on the literal solver. Recipe i
// has the seed S + i, which decides everything: the recipe, its shape, type, inputs, and whether it is causal.
//
//   every form      outputs and the gradients of all inputs; token by token; the final state where both name it alike
//   cut             two calls with the state carried over, backwards with its gradient carried over
//   the oracle's    a recipe that no family claims: it runs, or is refused with a sentence
//
// Tolerances are those of `ttr check` against the oracle. A recipe may magnify rounding without bound (a step that is
// too long, a ridge that is too small, an output that nearly vanishes before it is normalised), so an error beyond the
// tolerance is measured against what the problem itself does with rounding (sensitivity.h): the oracle solves it again
// with inputs that are moved by a relative 1e-8, or by less, and a solve divides by products of its features,
//
//   allowed = max(tolerance, 4000 u c max(1, |change of the result| / that), 16 u condition(features)),
//
// u = 2^-53 or 2^-24, with c = 1, or what conditioning_of says of the recipe's own numbers (1 / ridge). Recipes that passed by that only
// are counted on their own ("ill-conditioned"). Where no digit is allowed to be right a kernel may also say that there
// is no answer.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "check_recipes.h"
#include "commands.h"
#include "json.h"
#include "progress.h"
#include "random.h"
#include "runner.h"
#include "sensitivity.h"
#include "standard_files.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr double most_roundings = 4000, few_roundings = 16;

double number_of(const Term& term, std::string_view key, double otherwise) {
  const Argument* const a = term.find(key);
  return a && a->is_number() ? a->number() : otherwise;
}

double largest(const NamedNumbers& all) {
  double most = 0;
  for (const auto& [name, numbers] : all)
    for (const double x : numbers)
      if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
      else most = std::max(most, std::abs(x));
  return most;
}

// A gradient much smaller than the others is a sum of terms that cancel: see gradient_floor in check.cc.
double floor_of(const NamedNumbers& gradients) { return std::max(0.1 * largest(gradients), 1e-2); }

double longest_row(const Numbers& numbers, int width) {
  double most = 0;
  for (std::size_t base = 0; base + static_cast<std::size_t>(width) <= numbers.size();
       base += static_cast<std::size_t>(width)) {
    double square = 0;
    for (std::size_t i = base; i < base + static_cast<std::size_t>(width); ++i) square += numbers[i] * numbers[i];
    most = std::max(most, square);
  }
  return std::sqrt(most);
}

// How much a solve, a softmax or an orthogonalisation magnifies rounding in ways that a change of the inputs does not
// show, because what they work with is rounded entry by entry: the size of a matrix over that of its ridge.
double conditioning_of(const Recipe& recipe, int key_dim, const NamedNumbers& inputs) {
  double small = 1, large = 1, update = 1;
  const auto divide_by = [&](const Term& term, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys)
      if (const double x = number_of(term, key, 0); x > 0) small = std::min(small, x);
  };
  double q = inputs.contains("q") ? longest_row(inputs.at("q"), key_dim) : 1;
  double k = inputs.contains("k") ? longest_row(inputs.at("k"), key_dim) : 1;
  for (const Term& term : recipe.extras) {
    if (term.word == "keys") q = k = term.has("unit") ? 1 : std::sqrt(key_dim);
    const bool norm = recipe.memory.word == "layernorm" || recipe.memory.has("layernorm");
    if (term.word == "lp" && number_of(term, "", 2) < 1.01 && (norm || recipe.solver.has("muon")))
      update = 1e7;  // signs that a norm cancels leave an update of rounding, which muon divides by its length + 1e-7
  }
  const auto raise_by = [&](const Term& term) {  // weights e^(scale q.k) beside a ridge
    if (term.has("exp")) large *= std::exp(std::min(600.0, number_of(term, "scale", 1 / std::sqrt(key_dim)) * q * k));
  };
  const bool inverts =
      recipe.solver.word == "exact" || recipe.solver.word == "cg" || recipe.solver.word == "chebyshev";
  const bool polynomial = recipe.memory.has("polynomial"), taylor = recipe.memory.has("taylor2");
  if (inverts && (polynomial || taylor))  // sums of products of features
    large *= std::pow(1 + k * k, taylor ? 2 : number_of(recipe.memory, "degree", 2));
  divide_by(recipe.solver, {"ridge", "noise", "eps"});
  divide_by(recipe.memory, {"bandwidth"});
  if (inverts && recipe.memory.word != "constant") {
    raise_by(recipe.memory);
    for (const Term& term : recipe.weights) raise_by(term);
  }
  for (const Term& term : recipe.weights) divide_by(term, {"bandwidth"});
  if (recipe.solver.has("muon")) update *= 5e4;  // five Newton-Schulz steps at every token, 3.4^5 each
  return large / small * update;
}

// Without a ridge the answer of least norm depends on the rank, which a precision decides. Pairs that have faded to
// nothing are where it decides otherwise than another.
bool is_least_norm(const Recipe& recipe) {
  return recipe.solver.word == "exact" && number_of(recipe.solver, "ridge", recipe.solver.has("ridge")) == 0;
}
bool solves(const Recipe& recipe) {
  const std::string& word = recipe.solver.word;
  return word == "exact" || word == "cg" || word == "apa" || word == "chebyshev";
}
bool has_rank(const Recipe& recipe) {
  const bool without_ridge = is_least_norm(recipe) || recipe.solver.has("fading");  // a ridge that fades as pairs do
  for (const Term& term : recipe.weights)
    if (without_ridge && term.word == "decay" && number_of(term, "", 1) < 1e-3) return false;
  return true;
}

// Gradients that are zero on paper, because a norm has left nothing but a sign, or with one key channel nothing of the
// query: their rounding has no scale.
bool has_gradient(const Recipe& recipe, const Shape& shape) {
  for (const Term& term : recipe.extras)
    if (term.word == "normalise" && (term.has("unit") || term.has("rms")))
      return shape.value_dim > 1 && shape.key_dim > 1;
  return true;
}

// The log of the factor 1 - step lam does not exist where it is negative: the kernel says so, the literal solver
// goes on. Only inputs can tell.
bool may_refuse(const Recipe& recipe) { return recipe.solver.word == "sgd" && recipe.solver.has("leak"); }

// Of a local fit whose weights peak beside a small ridge rounding leaves nothing: the kernel says so of the call, and
// those answers, no others, are NaN.
bool may_refuse_answers(const Recipe& recipe) { return recipe.memory.word == "local"; }

struct RecipeCase {
  std::uint64_t seed = 0;
  Recipe recipe;
  Shape shape;
  Options options;
  std::int64_t time = 1, pairs = -1, cut = 0;  // pairs: of a plan that is not causal
};

std::string name_of(const RecipeCase& c) {
  std::string name = fmt::format("B{}-T{}", c.shape.batch, c.time);
  if (c.pairs >= 0) name += fmt::format("-P{}", c.pairs);
  name += fmt::format("-H{}-G{}-K{}-V{}", c.shape.heads, c.shape.key_heads, c.shape.key_dim, c.shape.value_dim);
  if (c.options.chunk) name += fmt::format("-C{}", c.options.chunk);
  return name + fmt::format("-{}{}", to_string(c.options.type), c.pairs >= 0 ? "-not-causal" : "");
}

// Small sizes, so that many recipes fit into a second; smaller where the literal solver has much to do.
RecipeCase case_of(std::uint64_t seed) {
  RecipeCase c;
  c.seed = seed, c.recipe = random_recipe(seed);
  SplitMix random(seed ^ 0x7265636970657321u);
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random.uniform() * static_cast<double>(high - low + 1));
  };
  const Term& memory = c.recipe.memory;
  const bool network = memory.word == "mlp" || memory.word == "swiglu" || memory.word == "layernorm";
  c.shape.batch = between(0, 3) == 0 ? 2 : 1;
  c.shape.heads = between(1, network ? 2 : 4);
  do c.shape.key_heads = between(1, c.shape.heads);
  while (c.shape.heads % c.shape.key_heads != 0);
  c.shape.key_dim = between(1, network ? 3 : 5), c.shape.value_dim = between(1, network ? 3 : 5);
  c.time = between(1, network ? 6 : 13);
  while (c.shape.key_dim > 1 && features_of(c.recipe, c.shape.key_dim) > 15) --c.shape.key_dim;
  // Norms of one key channel, or of two values less their mean, leave nothing but a sign.
  for (const Term& term : c.recipe.extras)
    if (term.word == "keys") c.shape.key_dim = std::max(c.shape.key_dim, 2);
  if (memory.word == "layernorm" || memory.has("layernorm")) c.shape.key_dim = c.shape.value_dim = 3;
  if (memory.has("residual")) c.shape.value_dim = c.shape.key_dim;
  c.options.chunk = between(0, 2) == 0 ? 0 : between(1, 6);
  c.options.type = between(0, 4) == 0 && !is_least_norm(c.recipe) ? Type::f32 : Type::f64;
  c.cut = c.time > 1 ? between(1, static_cast<int>(c.time) - 1) : 0;
  const int pairs = between(1, 13);
  if (between(0, 3) != 0) return c;
  Options whole = c.options;
  whole.causal = false, whole.kernel = "oracle";
  try {  // not every solver has a meaning without an order
    plan(c.recipe, c.shape, whole);
    c.options.causal = false, c.pairs = pairs;
  } catch (const Error&) {
  }
  return c;
}

class RecipeCheck {
 public:
  RecipeCheck(const RecipeCase& c, RecipeOutcome& outcome) : case_(c), out_(outcome) {}

  void run() {
    Options literal_options = case_.options;
    literal_options.kernel = "oracle", literal_options.type = Type::f64;
    std::optional<Plan> fast, literal;
    std::string refused;
    try {
      literal = plan(case_.recipe, case_.shape, literal_options);
    } catch (const Error& error) {
      refused = error.what();
    }
    try {
      fast = plan(case_.recipe, case_.shape, case_.options);
    } catch (const Error& error) {
      if (literal) return fail("plan", "best", std::string("refused: ") + error.what());
    }
    if (!literal) {
      out_.family = "refused";
      if (fast) fail("plan", "best", "the literal solver refused: " + refused);
      return;
    }
    const std::string kernel = fast->kernel();
    out_.family = kernel.substr(0, kernel.find('/'));
    draw_inputs(*literal);
    const Runner reference(*literal, case_.time, 0, case_.pairs);
    const Form form = case_.options.causal ? Form::recurrent : Form::parallel;
    try {
      expected_ = reference.forward(in_, {}, form);
      if (out_.family != "oracle") d_expected_ = reference.backward(in_, {}, d_out_, {}, form).inputs;
    } catch (const Error& error) {
      out_.no_answer = true;
      refused = error.what();
    }
    if (out_.family == "oracle") {
      out_.no_answer = out_.no_answer || !std::isfinite(largest(expected_.outputs));
      return;
    }
    reference_ = &reference;
    Runner runner(*fast, case_.time, 0, case_.pairs);
    if (may_refuse_answers(case_.recipe)) runner.keep_out_of_domain();
    // Without an answer there is nothing to compare with; but the kernel must come back.
    const double most = case_.options.type == Type::f32 ? 1e12 : 1e150;  // squares must fit
    const std::optional<Numbers> plain = out_.no_answer ? std::nullopt : plain_answers();
    // What is smaller is made of what is no number of the type.
    const double least = case_.options.type == Type::f32 ? 1e-30 : 1e-290, answer = largest(expected_.outputs);
    if (out_.no_answer || answer > most || (answer > 0 && answer < least) || largest(d_expected_) > most ||
        (plain && largest({{"o", *plain}}) > most)) {
      out_.no_answer = true;
      try {
        runner.forward(in_, {}, Form::best), runner.backward(in_, {}, d_out_, {}, Form::best);
      } catch (const Error&) {
      }
      return;
    }
    try {
      compare(runner);
    } catch (const Error& error) {
      if (may_refuse(case_.recipe) || !(allowed_error(false) < 0.1)) out_.no_answer = true;
      else fail("run", std::string(to_string(form_)), error.what());
    }
    reference_ = nullptr;
  }

 private:
  void draw_inputs(const Plan& literal) {
    for (std::size_t i = 0; i < literal.inputs().size(); ++i) {
      const InputInfo& info = literal.inputs()[i];
      const bool of_pairs = case_.pairs >= 0 && info.shape.find('P') != std::string::npos;
      in_[info.name] = random_input(literal, info, of_pairs ? case_.pairs : case_.time, case_.seed * 100 + i);
    }
    SplitMix random(case_.seed + 77);
    for (const InputInfo& info : literal.outputs()) {
      Numbers& numbers = d_out_[info.name];
      numbers.resize(count(literal, info.shape, case_.time));
      for (double& x : numbers) x = static_cast<float>(random.normal());
    }
  }

  void compare(const Runner& runner) {
    const auto forms = runner.plan().forms();
    const bool compares = has_gradient(case_.recipe, case_.shape);
    for (const Form form : forms) {
      form_ = form;
      if (form == Form::step) {
        compare_forward("step", form, runner.step_by_step(in_, {}));
        continue;
      }
      const Forward answers = runner.forward(in_, {}, form);
      compare_forward("oracle", form, answers);
      if (!answers.in_domain) continue;  // nor is there a gradient
      const NamedNumbers gradients = runner.backward(in_, {}, d_out_, {}, form).inputs;
      if (compares) compare_gradient("oracle-gradient", form, gradients);
    }
    if (!case_.options.causal || case_.cut == 0) return;
    const Form form = form_ = forms[1 + static_cast<std::size_t>(case_.seed % (forms.size() - 1))];
    const Forward pieces = runner.in_pieces(in_, {}, {case_.cut}, form);
    compare_forward("split", form, pieces);
    if (!pieces.in_domain) return;
    if (compares) compare_gradient("split-gradient", form, runner.backward_in_pieces(in_, d_out_, {case_.cut}, form));
  }

  // Answers that the kernel has refused are not compared, the others are.
  void compare_forward(const char* check, Form form, const Forward& actual) {
    if (actual.in_domain) return judge(check, form, false, relative_error(actual.outputs, expected_.outputs));
    NamedNumbers answers = actual.outputs;
    bool refused = false;
    for (auto& [name, numbers] : answers)
      for (std::size_t i = 0; i < numbers.size(); ++i)
        if (std::isnan(numbers[i])) numbers[i] = expected_.outputs.at(name)[i], refused = true;
    out_.no_answer = true;
    if (!refused) return fail(check, std::string(to_string(form)), "out of the domain, but every answer is a number");
    judge(check, form, false, relative_error(answers, expected_.outputs));
  }

  // An input that the kernel does not take must not matter.
  void compare_gradient(const char* check, Form form, NamedNumbers actual) {
    for (const auto& [name, numbers] : d_expected_)
      if (!actual.contains(name)) actual[name].assign(numbers.size(), 0.0);
    const double floor = floor_of(d_expected_);
    double error = 0;
    std::string of;
    for (const auto& [name, numbers] : d_expected_)
      if (const double one = relative_error(actual.at(name), numbers, floor); one > error)
        error = one, of = "of " + name;
    judge(check, form, true, error, of);
  }

  void judge(const char* check, Form form, bool gradient, double error, std::string note = {}) {
    const bool f32 = case_.options.type == Type::f32;
    const double tolerance = f32 ? 1e-4 : 1e-10;
    if (error <= tolerance) {
      double& worst = out_.errors[(f32 ? 2u : 0u) + (gradient ? 1u : 0u)];
      worst = std::max(worst, error);
      return;
    }
    const double allowed = allowed_error(gradient);
    // Where no digit is left, the size of what is left says nothing.
    if (error <= allowed || !(allowed < 1) || !has_rank(case_.recipe)) {
      out_.ill_conditioned = true;
      return;
    }
    if (out_.failed && error <= out_.error) return;  // the worst is shown
    out_.failed = true, out_.check = check, out_.form = to_string(form), out_.error = error;
    out_.tolerance = std::max(tolerance, allowed), out_.note = std::move(note);
  }

  // What rounding may do to the result; NaN at the border of what has an answer.
  double allowed_error(bool gradient) {
    if (!sensitivity_)
      sensitivity_ = measure_sensitivity(*reference_, {in_, d_out_, expected_.outputs, d_expected_},
                                         floor_of(d_expected_), case_.seed + 1000);
    const double sensitivity = std::max(1.0, gradient ? sensitivity_->gradients : sensitivity_->answers);
    // Affine projection and conjugate gradients work with the products of their keys, and so does the gradient of that
    // once more.
    const std::string& solver = case_.recipe.solver.word;
    const double products = solver == "apa"              ? (gradient ? sensitivity * sensitivity : sensitivity)
                            : solver == "cg" && gradient ? sensitivity
                                                         : 1;
    const double u = case_.options.type == Type::f32 ? 0x1p-24 : 0x1p-53;
    const double by_inputs = most_roundings * u * conditioning_of(case_.recipe, case_.shape.key_dim, in_) * products *
                             sensitivity / shortest_answer();
    if (solver == "cg" && gradient && few_roundings * u / smallest_last_step() > by_inputs)
      return few_roundings * u / smallest_last_step();
    if (!solves(case_.recipe)) return by_inputs;
    if (!condition_) {
      const std::int64_t pairs = case_.pairs >= 0 ? case_.pairs : case_.time;
      const std::int64_t seen =
          solver == "apa" ? static_cast<std::int64_t>(number_of(case_.recipe.solver, "", 1)) : pairs;
      condition_ = condition_of_features(reference_->plan(), case_.recipe, in_, pairs, seen, smallest_ridge());
    }
    // A gradient contracts sums of products that are longer than what a pair sees of them by the root of the condition.
    const double products_of_gradient = solver == "apa" && gradient ? std::sqrt(*condition_) : 1;
    // Conjugate gradients stop at a residual of 1e-13, one solver before a step and another after it.
    return std::max(by_inputs,
                    few_roundings * (solver == "cg" ? std::max(u, 1e-13) : u) * *condition_ * products_of_gradient);
  }

  double smallest_ridge() const {
    const char* const name = case_.recipe.solver.word == "apa" ? "eps" : "ridge";
    if (const auto input = in_.find(name); input != in_.end() && !input->second.empty())
      return std::max(0.0, *std::min_element(input->second.begin(), input->second.end()));
    return number_of(case_.recipe.solver, name, 0);
  }

  // By how much the last conjugate gradient step changes an answer, relatively, where it changes least but does: after a
  // step that nearly solved the system, what is left to go on with is mostly rounding, and so is its gradient.
  double smallest_last_step() const {
    Recipe shorter = case_.recipe;
    Argument* steps = nullptr;
    for (Argument& a : shorter.solver.arguments)
      if (a.key.empty() && a.is_number()) steps = &a;
    if (!steps || steps->number() < 2) return 1;
    steps->value = steps->number() - 1;
    const Plan& literal = reference_->plan();
    const Runner runner(plan(shorter, literal.shape(), literal.options()), case_.time, 0, case_.pairs);
    const Numbers before =
        runner.forward(in_, {}, case_.options.causal ? Form::recurrent : Form::parallel).outputs.at("o");
    const Numbers& after = expected_.outputs.at("o");
    double least = 1;
    const std::size_t V = static_cast<std::size_t>(case_.shape.value_dim);
    for (std::size_t base = 0; base < after.size(); base += V) {
      double change = 0, size = 0;
      for (std::size_t i = base; i < base + V; ++i)
        change += std::abs(after[i] - before[i]), size += std::abs(after[i]);
      if (change > 0 && size > 0) least = std::min(least, change / size);
    }
    return least;
  }

  // The answers before they are normalised; nothing if they are not.
  std::optional<Numbers> plain_answers() const {
    Recipe plain = case_.recipe;
    const auto normalise = [](const Term& t) { return t.word == "normalise" && (t.has("unit") || t.has("rms")); };
    if (std::erase_if(plain.extras, normalise) == 0) return std::nullopt;
    const Plan& normalised = reference_->plan();
    const Runner runner(plan(plain, normalised.shape(), normalised.options()), case_.time, 0, case_.pairs);
    return runner.forward(in_, {}, case_.options.causal ? Form::recurrent : Form::parallel).outputs.at("o");
  }

  // The first answer of a sequence has the direction of its value whatever the query is, so its gradient vanishes on
  // paper, and what is left of it is rounding over the length of the answer before it was normalised.
  double shortest_answer() const {
    const std::optional<Numbers> o = plain_answers();
    if (!o) return 1;
    double shortest = 1;
    const std::size_t V = static_cast<std::size_t>(case_.shape.value_dim);
    for (std::size_t base = 0; base < o->size(); base += V) {
      double square = 0;
      for (std::size_t i = base; i < base + V; ++i) square += (*o)[i] * (*o)[i];
      shortest = std::min(shortest, std::sqrt(square));
    }
    return std::max(shortest, 1e-9);
  }

  void fail(const char* check, std::string form, std::string note) {
    out_.failed = true, out_.check = check, out_.form = std::move(form), out_.note = std::move(note);
    out_.error = std::numeric_limits<double>::quiet_NaN();
  }

  const RecipeCase& case_;
  RecipeOutcome& out_;
  NamedNumbers in_, d_out_, d_expected_;
  Forward expected_;
  const Runner* reference_ = nullptr;
  std::optional<Sensitivity> sensitivity_;
  std::optional<double> condition_;
  Form form_ = Form::best;
};

// What the recipes of one family had in common.
struct Family {
  std::string name;
  std::size_t recipes = 0, failed = 0, ill_conditioned = 0, no_answer = 0;
  std::array<double, 4> errors{};
};

class Summary {
 public:
  explicit Summary(const CheckOptions& options) : options_(options) {}

  void add(const RecipeOutcome& o) {
    auto family =
        std::find_if(families_.begin(), families_.end(), [&](const Family& f) { return f.name == o.family; });
    if (family == families_.end()) family = families_.insert(families_.end(), Family{.name = o.family});
    for (Family* f : {&*family, &all_}) {
      ++f->recipes, f->failed += o.failed, f->ill_conditioned += o.ill_conditioned && !o.failed;
      f->no_answer += o.no_answer;
      for (std::size_t i = 0; i < f->errors.size(); ++i) f->errors[i] = std::max(f->errors[i], o.errors[i]);
    }
    if (!o.failed) return;
    if (options_.json) failures_.push_back(o);
    else
      fmt::print("{}  # {} {} {} error {:.1e} tolerance {:.0e}{}{}; {}; {}\n", command(o), o.family, o.check, o.form,
                 o.error, o.tolerance, o.note.empty() ? "" : " ", o.note, o.shape, o.recipe);
  }

  int finish(std::int64_t seed) {
    std::sort(families_.begin(), families_.end(), [](const Family& a, const Family& b) {
      const auto rank = [](const Family& f) { return f.name == "refused" ? 2 : f.name == "oracle" ? 1 : 0; };
      return rank(a) != rank(b) ? rank(a) < rank(b) : a.recipes > b.recipes;
    });
    if (options_.json) print_json(seed);
    else print_table();
    return all_.failed == 0 ? 0 : 1;
  }

 private:
  static std::string command(const RecipeOutcome& o) {
    return fmt::format("ttr check --recipes 1 --seed {}", o.seed);
  }
  std::size_t count_of(std::string_view name) const {
    for (const Family& f : families_)
      if (f.name == name) return f.recipes;
    return 0;
  }

  void print_table() const {
    if (!options_.quiet) {
      TextTable table({"family", "recipes", "failed", "ill-conditioned", "no answer", "f64", "f64 gradient", "f32",
                       "f32 gradient"});
      for (const Family& f : families_) {
        std::vector<std::string> row = {f.name, fmt::format("{}", f.recipes), fmt::format("{}", f.failed),
                                        fmt::format("{}", f.ill_conditioned), fmt::format("{}", f.no_answer)};
        const bool compared = f.name != "oracle" && f.name != "refused";
        for (const double error : f.errors) row.push_back(compared ? fmt::format("{:.1e}", error) : "-");
        table.row(std::move(row));
      }
      fmt::print("{}", table.text());
    }
    const std::size_t on_oracle = count_of("oracle"), refused = count_of("refused");
    fmt::print("{} recipes: {} on kernels, {} on the oracle, {} refused; {} passed, {} failed\n", all_.recipes,
               all_.recipes - on_oracle - refused, on_oracle, refused, all_.recipes - all_.failed, all_.failed);
  }

  void print_json(std::int64_t seed) const {
    Json families = Json::array(), failures = Json::array();
    for (const Family& f : families_) {
      Json j = Json::object();
      j.set("family", f.name).set("recipes", f.recipes).set("failed", f.failed);
      j.set("ill_conditioned", f.ill_conditioned).set("no_answer", f.no_answer);
      if (f.name != "oracle" && f.name != "refused")
        j.set("error_f64", f.errors[0])
            .set("gradient_error_f64", f.errors[1])
            .set("error_f32", f.errors[2])
            .set("gradient_error_f32", f.errors[3]);
      families.push(j);
    }
    for (const RecipeOutcome& o : failures_) {
      Json j = Json::object();
      j.set("command", command(o)).set("recipe", o.recipe).set("case", o.shape).set("family", o.family);
      j.set("check", o.check).set("form", o.form).set("error", o.error).set("tolerance", o.tolerance);
      if (!o.note.empty()) j.set("note", o.note);
      failures.push(j);
    }
    const Json all = Json::object()
                         .set("seed", seed)
                         .set("recipes", all_.recipes)
                         .set("passed", all_.recipes - all_.failed)
                         .set("failed", all_.failed)
                         .set("families", families)
                         .set("failures", failures);
    fmt::print("{}\n", all.dump());
  }

  const CheckOptions& options_;
  std::vector<Family> families_;
  Family all_;
  std::vector<RecipeOutcome> failures_;
};

}  // namespace

double features_of(const Recipe& recipe, int key_dim) {
  const Term& memory = recipe.memory;
  if (memory.has("rebased")) return key_dim * (key_dim + 1) / 2.0;
  if (memory.has("features")) return 2 * number_of(memory, "features", key_dim);
  if (memory.has("cosformer")) return 2 * key_dim;
  if (memory.has("dpfp")) return 2 * key_dim * number_of(memory, "degree", 2);
  const double degree = memory.word == "local"                                ? number_of(memory, "", 0)
                        : memory.word == "linear" && memory.has("polynomial") ? number_of(memory, "degree", 2)
                        : memory.has("taylor2")                               ? 2
                                                                              : 0;
  if (degree == 0) return key_dim;
  double monomials = 1;
  for (double i = 1; i <= degree; ++i) monomials *= (key_dim + i) / i;
  return monomials;
}

RecipeOutcome check_recipe(std::uint64_t seed) {
  const RecipeCase c = case_of(seed);
  RecipeOutcome outcome;
  outcome.seed = seed, outcome.recipe = to_string(c.recipe), outcome.shape = name_of(c);
  RecipeCheck(c, outcome).run();
  return outcome;
}

int run_check_recipes(const CheckOptions& options) {
  if (options.recipes < 1)
    throw Error(fmt::format("--recipes is {}; it must be at least 1", options.recipes), "command line");
  if (!options.what.empty())
    throw Error(
        "'" + options.what.front() + "' is checked by name and --recipes draws recipes at random; give one of them",
        "command line");
  // What every plan needs, such as the instruction set of TTR_TARGET: a recipe may be refused, and that is no failure.
  plan("linear-attention", Shape{});
  InterruptGuard guard;
  Summary summary(options);
  Progress progress("check --recipes", !options.json);
  const double total = static_cast<double>(options.recipes);
  for (std::int64_t i = 0; i < options.recipes; ++i) {
    if (interrupted()) {
      progress.finish();
      tell("ttr: interrupted after {} recipes\n", i);
      summary.finish(options.seed);
      return 128 + interrupted();
    }
    const RecipeOutcome outcome =
        check_recipe(static_cast<std::uint64_t>(options.seed) + static_cast<std::uint64_t>(i));
    if (outcome.failed) progress.finish();
    summary.add(outcome);
    progress.update(static_cast<double>(i + 1), total);
  }
  progress.finish();
  return summary.finish(options.seed);
}

}  // namespace ttr::cli
