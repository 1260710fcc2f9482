// Random recipes, from the table of words and a seed.
//
// A recipe grows from a valid skeleton (words with their required options only) by options, weights and extras drawn
// from the table, each kept only if the recipe still means something: nothing is ever discarded, and every word and
// every way to write an option can be reached. Which family computes a recipe depends on numbers that are special (0,
// 1, not given) and on combinations of few options; so special numbers come often, and most recipes grow little.
// Numbers have all their digits now and then (printing has something to lose), are mostly where steps and decays are
// stable (between the lowest that is allowed and one more), and sometimes tiny or large.
#include "recipe/random.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "recipe/design.h"
#include "ttr/status.h"

namespace ttr {
namespace {

// splitmix64: small, and the same everywhere.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  double share() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }  // (0, 1]
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

double number_in(const OptionInfo& option, Draw& draw) {
  const double wide = std::min(option.high, option.low + 9), stable = std::min(option.high, option.low + 1);
  if (option.integer) {
    const auto count = static_cast<std::size_t>(wide - option.low) + 1;
    return option.low + static_cast<double>(draw.below(draw.below(4) > 0 ? std::min<std::size_t>(count, 4) : count));
  }
  double number = 0;
  switch (draw.below(8)) {
    case 0:
      number = option.low;
      break;
    case 1:
      number = 1;
      break;
    case 2:
      number = option.low + std::round((stable - option.low) * draw.share() * 100) / 100;
      break;
    case 3:
      number = option.low + (stable - option.low) * draw.share() * 1e-9;
      break;
    case 4:
      number = option.low + (wide - option.low) * draw.share();
      break;
    default:
      number = option.low + (stable - option.low) * draw.share();
  }
  const bool allowed = number <= option.high && (option.above_low ? number > option.low : number >= option.low);
  return allowed ? number : stable;
}

std::vector<Term> minimal_terms_of(Axis axis) {
  std::vector<Term> out;
  for (const WordInfo& info : words())
    if (info.axis == axis)
      for (const Term& term : minimal_terms(info)) out.push_back(term);
  return out;
}

// Words and options that need company, and a start for every family of kernels.
constexpr const char* in_company[] = {"equal / linear / chebyshev(3, ridge)",
                                      "near(exp) / local(1) / given",
                                      "gate(key) / linear / gd(1)",
                                      "gate(value) / vector / gd(1)",
                                      "equal / linear / exact(ridge)",
                                      "decay(g) / linear / cg(3, ridge)",
                                      "equal / linear(polynomial) / gd(1)",
                                      "equal / linear / sgd(nlms)",
                                      "equal / linear / sgd(beta, momentum)",
                                      "equal / mlp / minibatch(4, momentum)",
                                      "equal / mlp / descend(1, momentum)",
                                      "near(gauss) / constant / exact",
                                      "decay(g) / linear / gd(1)",
                                      "equal / linear / gd(1) | read(before)",
                                      "equal / linear / gd(1) | huber(c)",
                                      "equal / linear / gd(1) | normalise(rms)",
                                      "equal / linear / exact",
                                      "equal / linear / sgd(beta, decay)",
                                      "equal / linear / sgd(beta, decay(key))",
                                      "equal / linear / sgd(dplr)",
                                      "equal / linear / sgd(split)",
                                      "equal / linear / sgd(beta, precondition)",
                                      "equal / linear / sgd(beta, pairs=2)",
                                      "equal / linear / apa(2, mu)",
                                      "equal / linear / kalman",
                                      "gate * levels(6) / linear / gd(1)",
                                      "gate(exponential) / linear / gd(1) | normalise(max)",
                                      "gate(key, complex) / linear / gd(1)",
                                      "gate(complex, beta) / linear / gd(1)",
                                      "gate(signed) / linear / gd(1)",
                                      "gate(key, signed) / linear / gd(1)",
                                      "gate(value, signed) / vector / gd(1)",
                                      "gate(full, signed) / linear / gd(1)",
                                      "equal / linear(cosformer, length=9) / gd(1)",
                                      "gate / linear(cosformer, length=9) / exact(ridge)",
                                      "gate(trapezoid) / linear / gd(1)",
                                      "gate / slots(3) / gd(1)",
                                      "gate(value, exponential) / constant(channel) / exact | read(before, bonus)",
                                      "equal / linear(reverse) / sgd(beta=0.1)",
                                      "window(4) / linear / exact(ridge)",
                                      "gate / linear / exact(ridge, fading)",
                                      "near(exp) / constant / exact",
                                      "near(exp, transport) / constant / exact",
                                      "near(exp) / constant / sgd(beta)",
                                      "near(exp) / local(1) / exact(ridge)",
                                      "equal / kernel(gauss) / exact(ridge)",
                                      "equal / layernorm(linear) / minibatch(3, rate=0.1)",
                                      "equal / mlp(2, width=3) / sgd(beta=0.1)",
                                      "window(3) / linear / descend(1, step=0.1)",
                                      "near(tricube) / local(2) / exact(ridge)",
                                      "near(nearest=3) / linear / exact(ridge)",
                                      "near(gauss) / kernel(matern32) / exact(ridge)",
                                      "near(laplace) / mlp(2, width=3) / gd(2, step=0.1)",
                                      "near(gauss) / linear / descend(1, step=0.1)",
                                      "near(exp) / local(1) / gd(2, step=auto)",
                                      "equal / kernel(laplace) / exact(ridge)",
                                      "equal / linear(hedgehog) / exact(ridge)",
                                      "equal / linear(t2r, features=3) / gd(1)",
                                      "gate / linear(rebased) / cg(3, ridge)",
                                      "equal / linear(favor) / sgd(nlms)",
                                      "equal / linear(dijiang, features=2) / kalman",
                                      "decay(0.9) / linear(rfa) / exact(ridge)",
                                      "power(0.5) / linear / exact(ridge)",
                                      "power / linear / gd(1)",
                                      "gate * decay(0.9) / linear / gd(1)",
                                      "given(4) / linear / gd(1)",
                                      "given(3) / kernel(gauss) / exact(ridge)",
                                      "mask(4) * near(exp) / constant / exact",
                                      "gate * levels(6) / linear / exact(ridge)",
                                      "equal / linear / gd(2, step=0.1, momentum)",
                                      "equal / linear / gd(2, step=0.1) | l1(0.1)",
                                      "equal / linear / gd(2, step=0.1, adam)",
                                      "window(3) / linear / descend(2, step=0.1, rmsprop=0.9)",
                                      "window(3) / linear / descend(2, step=0.1, decay)",
                                      "equal / linear / descend(1, step=0.1, mirror=sinh)",
                                      "equal / mlp(2, width=3) / minibatch(2, rate=0.1, adagrad)",
                                      "equal / linear / minibatch(2, rate=0.1, mirror=exp)",
                                      "equal / mlp(2, width=3) / gd(2, step=0.1)",
                                      "equal / linear / sgd(beta, mirror=softmax)",
                                      "equal / linear / sgd(flow=0.5)",
                                      "equal / linear / sgd(nlms=0.5) | keys(unit)",
                                      "equal / linear / irls(2, ridge)",
                                      "equal / linear / irls(2, ridge) | lp(1.5)",
                                      "near(gauss) / constant / irls(2) | quantile(0.3)",
                                      "near(box) / constant / exact | keys(unit)",
                                      "near(nearest=4) * window(3) / linear / exact(ridge)",
                                      "near(epanechnikov, bandwidth=2) / constant / gd(1) | keys(unit)"};

// A random recipe was not parsed, so its errors name no columns.
void clear_columns(Term& term) {
  term.column = 0;
  for (Argument& a : term.arguments) {
    a.column = 0;
    if (Term* inner = std::get_if<Term>(&a.value)) clear_columns(*inner);
  }
}
void clear_columns(Recipe& recipe) {
  for (Term* term : {&recipe.memory, &recipe.solver}) clear_columns(*term);
  for (std::vector<Term>* terms : {&recipe.weights, &recipe.extras})
    for (Term& term : *terms) clear_columns(term);
}

struct Parts {
  std::vector<Recipe> plain, company;
  std::vector<std::vector<Term>> weights;  // by word, so that a word with many variants is no more frequent
  std::vector<Term> extras;
};

const Parts& parts() {
  static const Parts made = [] {
    Parts p;
    p.extras = minimal_terms_of(Axis::extra);
    for (const WordInfo& info : words())
      if (info.axis == Axis::weights) p.weights.push_back(minimal_terms(info));
    for (const Term& weights : minimal_terms_of(Axis::weights))
      for (const Term& memory : minimal_terms_of(Axis::memory))
        for (const Term& solver : minimal_terms_of(Axis::solver))
          if (Recipe recipe{{weights}, memory, solver, {}}; is_valid(recipe)) p.plain.push_back(std::move(recipe));
    for (const char* text : in_company) {
      p.company.push_back(parse_recipe(text));
      clear_columns(p.company.back());
    }
    return p;
  }();
  return made;
}

void add_option(Axis axis, Term& term, Draw& draw) {
  const WordInfo* info = find_word(axis, term.word);
  if (info->options.empty()) return;
  const OptionInfo& option = info->options[draw.below(info->options.size())];
  std::vector<unsigned> ways;
  for (const unsigned way : {as_flag, as_value, as_number, as_word, as_call, as_list})
    if (option.written & way) ways.push_back(way);
  const Argument* const count = term.find("");
  const Argument argument = written(
      option, draw.one_of(ways), [&](const OptionInfo& o) { return number_in(o, draw); },
      count != nullptr ? static_cast<int>(count->number()) : 1);
  const std::size_t place = draw.below(term.arguments.size() + 1);
  for (Argument& have : term.arguments)
    if (have.key == argument.key) {  // an option that is there gets another value
      have = argument;
      return;
    }
  term.arguments.insert(term.arguments.begin() + static_cast<std::ptrdiff_t>(place), argument);
}

}  // namespace

bool is_valid(const Recipe& recipe) {
  try {
    interpret(recipe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Term> minimal_terms(const WordInfo& info) {
  std::vector<Term> out = {Term{std::string(info.word), {}, 0}};
  const auto smallest = [](const OptionInfo& option) { return option.above_low ? option.low + 1 : option.low; };
  const auto first_way = [](const OptionInfo& option) { return option.written & (~option.written + 1); };
  std::set<std::string_view> groups;
  for (const OptionInfo& option : info.options) {
    if (!option.required || (!option.group.empty() && !groups.insert(option.group).second)) continue;
    std::vector<Term> grown;
    for (const OptionInfo& other : info.options) {
      if (&other != &option && (option.group.empty() || other.group != option.group)) continue;
      for (Term term : out) {
        term.arguments.push_back(written(other, first_way(other), smallest));
        grown.push_back(std::move(term));
      }
    }
    out = std::move(grown);
  }
  return out;
}

const std::vector<Recipe>& skeletons() {
  static const std::vector<Recipe> all = [] {
    std::vector<Recipe> out = parts().plain;
    out.insert(out.end(), parts().company.begin(), parts().company.end());
    return out;
  }();
  return all;
}

Recipe random_recipe(std::uint64_t seed) {
  Draw draw(seed);
  const Parts& from = parts();
  Recipe recipe = draw.one_of(draw.below(6) == 0 ? from.plain : from.company);
  const std::size_t most = draw.below(24) + 1, attempts = draw.below(most);
  for (std::size_t i = 0; i < attempts; ++i) {
    Recipe grown = recipe;
    switch (draw.below(6)) {
      case 0:
        grown.weights.push_back(draw.one_of(draw.one_of(from.weights)));
        break;
      case 1:
        grown.extras.push_back(draw.one_of(from.extras));
        break;
      case 2:
        add_option(Axis::weights, grown.weights[draw.below(grown.weights.size())], draw);
        break;
      case 3:
        add_option(Axis::memory, grown.memory, draw);
        break;
      case 4:
        add_option(Axis::solver, grown.solver, draw);
        break;
      default:
        if (grown.extras.empty()) continue;
        add_option(Axis::extra, grown.extras[draw.below(grown.extras.size())], draw);
    }
    if (is_valid(grown)) recipe = std::move(grown);
  }
  return recipe;
}

}  // namespace ttr
