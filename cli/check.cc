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
// Where a problem magnifies rounding by itself, that is measured (magnification.h) and said; slopes are those of slope.h.
// Workspaces hold NaN before every call, so a kernel that reads what it did not write fails all of these.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "aside.h"
#include "check_case.h"
#include "check_layer.h"
#include "check_recipes.h"
#include "commands.h"
#include "json.h"
#include "progress.h"
#include "standard_files.h"

namespace ttr::cli {
namespace {

// Whether a case is one for this layer. `seen`: the cases that each kernel has had, of those it has once.
bool applies(const Case& c, const LayerInfo& info, const std::string& settings, const Plan& plan,
             std::set<std::string>& seen) {
  const std::string kernel = plan.kernel().substr(0, plan.kernel().find('/'));
  if (c.alone && kernel == "oracle") return false;
  // Without a ridge the answer of least norm depends on the rank of what closed gates leave of older pairs, and a cut of
  // the precision decides that.
  if (c.closed && (std::ranges::none_of(plan.inputs(), is_gate) || has_least_norm(plan.recipe()))) return false;
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

std::string label_of(const LayerInfo& info, const std::string& settings) {
  return settings.empty() ? info.name : info.name + "(" + settings + ")";
}

// The most tokens that a recipe takes: n levels hold 2^(n - 1).
int longest(const Recipe& recipe) {
  for (const Term& term : recipe.weights)
    if (const Argument* const n = term.word == "levels" ? term.find("") : nullptr; n && n->is_number())
      return static_cast<int>(std::exp2(std::min(n->number() - 1, 30.0)));
  return std::numeric_limits<int>::max();
}

// Where a problem magnifies rounding until nothing is left to compare, or diverges, a case has fewer tokens: half of them,
// until there is something. A line says so. One token that diverges in the literal solution is what the recipe is; one
// that is finite and leaves nothing is a failure.
void check_determined(const LayerInfo& info, const std::string& settings, bool literal, Case& c,
                      CheckPrinter& printer) {
  const Case whole = c;
  std::string sentence;
  bool diverges = false;
  std::vector<CheckRow> rows;
  for (bool determined = false; !determined;) try {
      const auto made = made_aside([info, settings, literal, c] { return check_case(info, settings, literal, c); });
      if (!made) return;
      rows = *made;
      determined = true;
    } catch (const Undetermined& nothing) {
      if (sentence.empty()) sentence = nothing.sentence;
      diverges = nothing.diverges;
      if (c.time == 1) break;
      c.time /= 2;
    }
  if (!sentence.empty()) {
    const std::string fewer = rows.empty() ? "; so does one token" : fmt::format("; {} instead", c.time);
    printer.add({label_of(info, settings), name_of(whole), "determined", "best", std::string(to_string(c.type)), 0, 0,
                 !rows.empty() || diverges, sentence + fewer});
    printer.shortened();
  }
  for (const CheckRow& row : rows) printer.add(row);
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
        const Plan plan = plan_of_case(info, settings, c);
        c.time = std::min(c.time, longest(plan.recipe()));
        if (!(c.alone || c.strong || c.closed) || applies(c, info, settings, plan, seen))
          check_determined(info, settings, literal && info.literal, c, printer);
      } catch (const Error& error) {
        printer.add({label_of(info, settings), name_of(c), "run", "best", std::string(to_string(c.type)),
                     std::nan(""), 0, false, error.what()});
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
  constexpr double most_features = 100;  // a solve of more takes the literal solver minutes
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
    fmt::print("{} passed, {} failed{}\n", passed_, failed_,
               shortened_ == 0 ? ""
                               : fmt::format("; in {} the problem magnifies rounding too much or diverges, and fewer "
                                             "tokens were compared",
                                             shortened_ == 1 ? "a case" : fmt::format("{} cases", shortened_)));
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
      tell("ttr: interrupted; the lines above are complete\n");
      printer.finish();
      return 128 + interrupted();
    }
  }
  return printer.finish();
}

}  // namespace ttr::cli
