// Derivations of what the program plans: forms are those of the plan, and plans that are not causal have neither state
// nor recurrence. (Formulas: recipe_test.cc.)
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace ttr {
namespace {

using Words = std::vector<std::string>;
constexpr Shape small{.batch = 1, .heads = 1, .key_dim = 4, .value_dim = 4};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Forms, then "no chunk: ..." for the others.
Words expected_forms(const Words& forms, const Words& absent) {
  Words all = forms;
  for (const std::string& sentence : absent) all.push_back("no " + sentence);
  return all;
}

TEST(Derive, FormsOfEveryLayerAreThoseOfItsPlan) {
  int layers_seen = 0;
  for (const LayerInfo& info : layers()) {
    if (info.recipe.empty()) continue;
    ++layers_seen;
    EXPECT_EQ(derive(plan(info.name, small)).forms, expected_forms(info.forms, info.absent_forms)) << info.name;
  }
  EXPECT_GT(layers_seen, 60);
}

RC_GTEST_PROP(Derive, FormsOfRecipesAreThoseOfTheirPlans, ()) {
  const Recipe recipe = random_recipe(*rc::gen::arbitrary<std::uint64_t>());
  RC_LOG() << to_string(recipe) << "\n";
  const Plan p = plan(recipe, small);
  Words present;
  for (const Form form : p.forms()) present.emplace_back(to_string(form));
  const Derivation d = derive(recipe);
  RC_ASSERT(Words(d.forms.begin(), d.forms.begin() + static_cast<std::ptrdiff_t>(present.size())) == present);
  RC_ASSERT(d.forms == derive(p).forms);
  if (p.kernel() == "oracle") RC_ASSERT(present == (Words{"step", "recurrent"}));
}

TEST(Derive, ANetworkNeedNotFitIntoMemory) {
  EXPECT_TRUE(contains(derive(parse_recipe("equal / mlp(3, width=1048576) / sgd(beta)")).state_size, "1048576"));
}

TEST(Derive, PlansThatAreNotCausalHaveNoState) {
  for (const char* layer : {"intention", "soft", "skyformer", "sigma-intention", "softmax-attention:causal=no",
                            "kernel-regression:causal=no", "local-linear-attention:causal=no"}) {
    SCOPED_TRACE(layer);
    for (const Notation notation : {Notation::plain, Notation::latex}) {
      const Derivation d = derive(plan(layer, small), notation);
      for (const std::string* text : {&d.objective, &d.gradient, &d.recurrence, &d.readout, &d.cost_per_token}) {
        EXPECT_FALSE(contains(*text, "t-1") || contains(*text, "<=t") || contains(*text, "\\le t")) << *text;
        EXPECT_FALSE(contains(*text, "H_t") || contains(*text, "S_t")) << *text;
      }
      EXPECT_EQ(d.recurrence.substr(0, 6), "None: ");
      EXPECT_EQ(d.state_size.substr(0, 6), "none: ");
      EXPECT_EQ(d.forms.front(), "parallel");
    }
  }
  EXPECT_EQ(
      derive(plan("intention", small)).recurrence,
      "None: every query sees all N pairs of its call, in no order; S = (H + lambda I)^{-1} F is solved for once.");
}

bool any_contains(const Words& list, const std::string& part) {
  for (const std::string& line : list)
    if (contains(line, part)) return true;
  return false;
}

// A step rule is credited to who published it.
TEST(Derive, StepRulesHaveTheirOwnSources) {
  const std::pair<const char*, const char*> cases[] = {
      {"efla", "arXiv 2512.12602"}, {"longhorn", "arXiv 2407.14207"}, {"nlms", "Nagumo, Noda 1967"}};
  for (const auto& [layer, own] : cases) {
    const Derivation d = derive(plan(layer, small));
    for (const auto& [other, paper] : cases)
      EXPECT_EQ(any_contains(d.because, paper), std::string(other) == layer) << layer << ": " << paper;
  }
  EXPECT_FALSE(any_contains(derive(plan("efla", small)).because, "2501.12352"));
}

TEST(Derive, SourcesOfEveryWord) {
  EXPECT_EQ(
      sources(parse_recipe("equal / linear / sgd(flow)")),
      (Words{"equal: textbook (least squares, Legendre 1805)",
             "linear: textbook (Legendre 1805); as a memory Kohonen 1972",
             "sgd: textbook (LMS, Widrow, Hoff 1960); in a layer Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174",
             "sgd(flow): Lei, Zhang, Poria 2025, arXiv 2512.12602 (EFLA)"}));
  const Words kda = sources(parse_recipe("equal / linear / sgd(beta, decay(key)) | keys(unit)"));
  EXPECT_TRUE(any_contains(kda, "sgd(decay(key)): Kimi Team 2025")) << kda.size();
  EXPECT_TRUE(any_contains(kda, "keys(unit): Henry"));
  EXPECT_FALSE(any_contains(kda, "sgd(beta)"));  // as its word
  EXPECT_TRUE(any_contains(sources(parse_recipe("equal / linear(hedgehog_exp) / gd(1)"), Notation::latex),
                           "linear(hedgehog\\_exp)"));
  for (const LayerInfo& info : layers()) {
    if (info.recipe.empty()) continue;
    for (const std::string& line : sources(parse_recipe(info.recipe)))
      EXPECT_GT(line.size(), line.find(": ") + 6) << info.name << ": " << line;
  }
}

TEST(Derive, DepartureIsThatOfTheLayer) {
  EXPECT_TRUE(contains(departure(find_layer("mamba-3")), "turned before the regression"));
  EXPECT_EQ(departure(find_layer("deltanet")), "");
}

// The same recipe with and without causality is not the same layer.
TEST(Derive, CausalityIsAChoice) {
  const Derivation mesa = derive(parse_recipe("equal / linear / exact(ridge)"));
  for (const std::string& name : mesa.equals) EXPECT_NE(name, "intention");
  bool near = false;
  for (const std::string& name : mesa.neighbours) near = near || name == "intention (not causal)";
  EXPECT_TRUE(near);
  const Derivation intention = derive(plan("intention", small));
  EXPECT_EQ(intention.equals, Words{"intention"});
}

// What a derivation prints about several steps, computed: with one key channel and one value channel every symbol is
// a number, a factor stands beside a factor, and a prime says nothing.
class Printed {
 public:
  std::map<std::string, double> symbols;

  /// One token by the recurrence: "from S = S_{t-1}, 3 times Z <- .., S <- .."; of one step "Z_t = .., S_t = ..".
  void token(std::string text) {
    for (const char* end : {"; equivalently", ", which is", ": exponential"}) text = text.substr(0, text.find(end));
    text = std::regex_replace(text, std::regex(R"(\.$)"), "");
    text = std::regex_replace(text, std::regex(R"((; )|( and ))"), ", ");
    int times = 1;
    Words repeated;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t comma = std::min(text.find(", ", at), text.size());
      std::string statement = text.substr(at, comma - at);
      at = comma + 2;
      std::smatch part;
      static const std::regex from(R"(from (\S+) = (\S+))"), repeats(R"((\d+) times (.*))");
      if (std::regex_match(statement, part, from)) {
        state = part[1], symbols[state] = value(part[2]);
        continue;
      }
      if (std::regex_match(statement, part, repeats)) {
        times = std::stoi(part[1]);
        statement = std::string(part[2]);
      }
      if (contains(statement, " <- ")) repeated.push_back(statement);
      else assign(statement, " = ");
    }
    for (; times > 0; --times)
      for (const std::string& statement : repeated) assign(statement, " <- ");
    if (!repeated.empty()) symbols[state + "_t"] = symbols.at(state);
    for (const char* name : {"S", "y", "H", "F", "Z"}) {
      const auto now = symbols.find(std::string(name) + "_t");
      if (now != symbols.end()) symbols[std::string(name) + "_{t-1}"] = now->second;
    }
  }

 private:
  std::string state = "S", formula;
  std::size_t place = 0;

  void assign(const std::string& statement, const std::string& sign) {
    const std::size_t at = statement.find(sign);
    ASSERT_NE(at, std::string::npos) << statement;
    symbols[statement.substr(0, at)] = value(statement.substr(at + sign.size()));
  }
  double value(const std::string& text) {
    formula = text, place = 0;
    const double x = sum();
    EXPECT_EQ(place, formula.size()) << formula;
    return x;
  }
  char next() {
    while (place < formula.size() && (formula[place] == ' ' || formula[place] == '\'')) ++place;
    return place < formula.size() ? formula[place] : '\0';
  }
  double sum() {
    double x = product();
    for (char sign; sign = next(), sign == '+' || sign == '-';) {
      ++place;
      const double y = product();
      x += sign == '+' ? y : -y;
    }
    return x;
  }
  double product() {
    double x = factor();
    for (char c; c = next(), c == '(' || std::isalnum(static_cast<unsigned char>(c));) x *= factor();
    return x;
  }
  double factor() {
    if (next() == '(') {
      ++place;
      const double x = sum();
      EXPECT_EQ(next(), ')') << formula;
      ++place;
      return x;
    }
    static const std::regex symbol(R"(\d+(\.\d+)?|e\^\{\w+\}|[A-Za-z]+(_\{t-1\}|_t|~)?)");
    std::smatch part;
    const std::string rest = formula.substr(place);
    if (!std::regex_search(rest, part, symbol, std::regex_constants::match_continuous)) {
      ADD_FAILURE() << formula << " at " << rest;
      return 0;
    }
    const std::string name = part.str();
    place += name.size();
    if (std::isdigit(static_cast<unsigned char>(name[0]))) return std::stod(name);
    if (name.starts_with("e^{")) return std::exp(symbols.at(name.substr(3, name.size() - 4)));
    EXPECT_TRUE(symbols.contains(name)) << name << " of " << formula;
    return symbols[name];
  }
};

void expect_as_printed(const std::string& recipe) {
  SCOPED_TRACE(recipe);
  constexpr int tokens = 6;
  const std::string text = derive(parse_recipe(recipe)).recurrence;
  SCOPED_TRACE(text);
  for (const char* kernel : {"", "oracle"}) {
    const Plan p = plan(recipe, {1, 1, 1, 1, 1}, {.type = Type::f64, .kernel = kernel});
    const Footprint bytes = p.footprint(tokens);
    std::vector<double> state(bytes.state / 8 + 1), work(bytes.workspace / 8 + 1), o(tokens);
    ASSERT_EQ(p.reset({state.data(), state.size() * 8}), Status::ok);
    std::map<std::string, std::vector<double>> numbers;
    Inputs in;
    Outputs out;
    for (const InputInfo& info : p.inputs()) {
      std::vector<double>& x = numbers[info.name];
      for (int t = 0; t < tokens; ++t)
        x.push_back((info.name == "g" ? -1 : 1) * (0.35 + 0.3 * std::sin(1.7 * t + double(info.name[0]))));
      if (info.shape == "B T H") in[info.name] = view(x.data(), 1, tokens, 1);
      else in[info.name] = view(x.data(), 1, tokens, 1, 1);
    }
    out["o"] = view(o.data(), 1, tokens, 1, 1);
    ASSERT_EQ(p.forward(in, {state.data(), state.size() * 8}, out, {work.data(), work.size() * 8}), Status::ok);
    Printed printed;
    for (const char* start : {"S_{t-1}", "y_{t-1}", "H_{t-1}", "F_{t-1}", "Z_{t-1}", "Z"}) printed.symbols[start] = 0;
    const bool constant = contains(recipe, "constant");
    for (int t = 0; t < tokens; ++t) {
      for (const auto& [name, x] : numbers) printed.symbols[(name == "lam" ? "lambda" : name) + "_t"] = x[t];
      printed.token(text);
      const double want = printed.symbols.at(constant ? "y_t" : "S_t") * (constant ? 1 : numbers.at("q")[t]);
      ASSERT_NEAR(o[t], want, 1e-12 * (1 + std::abs(want))) << "token " << t << " " << kernel;
    }
  }
}

TEST(Derive, RecurrencesOfSeveralStepsAreWhatIsComputed) {
  for (const std::string n : {"1", "2", "3", "4"})
    for (const std::string decay :
         {"", ", decay", ", decay=0.2", ", leak", ", leak=0.3", ", shrink", ", shrink=0.3"}) {
      for (const char* memory : {"linear", "constant"})
        expect_as_printed("equal / " + std::string(memory) + " / sgd(" + n + ", beta" + decay + ")");
      for (const std::string momentum : {"", ", momentum", ", momentum=0.5"})
        if (!(decay + momentum).empty())  // else in powers of I - H
          for (const char* weights : {"equal", "gate"})
            expect_as_printed(std::string(weights) + " / linear / descend(" + n + ", step=0.4" + decay + momentum +
                              ")");
    }
}

}  // namespace
}  // namespace ttr
