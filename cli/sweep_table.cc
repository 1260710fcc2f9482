// From runs to a table and a plot.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "sweep.h"
#include "text_table.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Moments {
  double mean = 0, spread = 0;
};
Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (const double one : x) m.mean += one / n;
  for (const double one : x) m.spread += (one - m.mean) * (one - m.mean);
  m.spread = x.size() > 1 ? std::sqrt(m.spread / (n - 1)) : 0;
  return m;
}

std::vector<double> finite_numbers(const SweepGroup& group, const std::string& name) {
  std::vector<double> numbers;
  for (const SweepResult* one : group.chosen) {
    const double number = one->number(name);
    if (std::isfinite(number)) numbers.push_back(number);
  }
  return numbers;
}

std::string label(const SweepSpec& spec, const SweepGroup& group, std::size_t axis) {
  return spec.axes[axis].choices[group.choices[axis]].label;
}

bool varies(const SweepSpec& spec, std::size_t axis) { return spec.axes[axis].choices.size() > 1; }
bool reduced(const SweepSpec& spec, std::size_t axis) {
  return has(spec.best, spec.axes[axis].name) || has(spec.mean, spec.axes[axis].name);
}

std::string cell(const SweepGroup& group) {
  if (!std::isfinite(group.score)) return "diverged";
  std::string text = fmt::format("{:.4f}", group.score);
  if (std::abs(group.score) >= 100) text = short_number(group.score);
  if (group.chosen.size() > 1) text += fmt::format(" \u00b1 {:.4f}", group.spread);
  if (group.diverged) text += fmt::format(" ({} diverged)", group.diverged);
  return text;
}

std::string shown(const std::string& name, double number) {
  if (!std::isfinite(number)) return "-";
  if (name.ends_with("bytes")) return short_bytes(number);
  if (name == "parameters" || name == "steps") return fmt::format("{:.0f}", number);
  return short_number(number);
}

std::string heading(const std::string& name) {
  std::string text = name;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

std::vector<SweepGroup> reduce(const SweepSpec& spec, const std::vector<SweepResult>& results) {
  // Runs that differ in axes of `mean` alone, in the order of their first.
  std::vector<SweepGroup> means;
  const auto same = [&](const std::vector<std::size_t>& a, const std::vector<std::size_t>& b, bool without_best) {
    for (std::size_t i = 0; i < spec.axes.size(); ++i) {
      const std::string& name = spec.axes[i].name;
      if (a[i] != b[i] && !has(spec.mean, name) && !(without_best && has(spec.best, name))) return false;
    }
    return true;
  };
  for (const SweepResult& result : results) {
    const auto fits = [&](const SweepGroup& group) { return same(group.choices, result.run.choices, false); };
    auto found = std::find_if(means.begin(), means.end(), fits);
    if (found == means.end()) means.push_back({result.run.choices, {}, 0, 0, 0}), found = means.end() - 1;
    found->chosen.push_back(&result);
  }
  std::vector<SweepGroup> groups;
  for (SweepGroup& group : means) {
    const std::vector<double> scores = finite_numbers(group, spec.score);
    group.diverged = static_cast<int>(group.chosen.size() - scores.size());
    const Moments m = moments(scores);
    group.score = scores.empty() ? std::nan("") : m.mean, group.spread = m.spread;
    const auto fits = [&](const SweepGroup& other) { return same(group.choices, other.choices, true); };
    const auto found = std::find_if(groups.begin(), groups.end(), fits);
    // A setting with which fewer runs diverge is better, whatever the others reached.
    const auto better = [&](const SweepGroup& other) {
      if (group.diverged != other.diverged) return group.diverged < other.diverged;
      return spec.lowest ? group.score < other.score : group.score > other.score;
    };
    if (found == groups.end()) groups.push_back(group);
    else if (better(*found)) *found = group;
  }
  return groups;
}

std::string group_label(const SweepSpec& spec, const SweepGroup& group) {
  std::string text;
  for (std::size_t i = 0; i < spec.axes.size(); ++i)
    if (varies(spec, i) && !reduced(spec, i)) text += (text.empty() ? "" : ", ") + label(spec, group, i);
  return text;
}

std::vector<std::string> broken_expectations(const SweepSpec& spec, const std::vector<SweepGroup>& groups) {
  const auto whole_number = [](const std::string& text, double& number) {
    char* end = nullptr;
    number = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == 0;
  };
  const auto value = [&](std::string text) {
    double number = 0;
    if (whole_number(text, number)) return number;
    double more = 0;
    const std::size_t plus = text.rfind(" + ");
    if (plus != std::string::npos && whole_number(text.substr(plus + 3), more)) text.resize(plus);
    std::vector<std::string> names;
    for (const SweepGroup& group : groups) {
      names.push_back(group_label(spec, group));
      if (names.back() == text) return group.score + more;
    }
    throw Error(fmt::format("expect speaks of '{}'; the table has {}", text, fmt::join(names, "; ")), "expect");
  };
  std::vector<std::string> broken;
  for (const std::string& one : spec.expect) {
    std::size_t mark = one.find(" > ");
    const bool above = mark != std::string::npos;
    if (!above) mark = one.find(" < ");
    if (mark == std::string::npos)
      throw Error(fmt::format("expect has '{}'; write one > other, one > other + number or one < number", one),
                  "expect");
    const double a = value(one.substr(0, mark)), b = value(one.substr(mark + 3));
    if (!(above ? a > b : a < b)) broken.push_back(fmt::format("{}: {:.4f} and {:.4f}", one, a, b));
  }
  return broken;
}

SweepTable sweep_table(const SweepSpec& spec, const std::vector<SweepGroup>& groups) {
  SweepTable table;
  std::vector<std::size_t> rows_by, chosen_by;
  std::size_t across = spec.axes.size();
  for (std::size_t i = 0; i < spec.axes.size(); ++i) {
    if (spec.axes[i].name == spec.columns) across = i;
    else if (varies(spec, i) && !reduced(spec, i)) rows_by.push_back(i);
    else if (varies(spec, i) && has(spec.best, spec.axes[i].name)) chosen_by.push_back(i);
  }
  for (const std::size_t i : rows_by) table.header.push_back(spec.axes[i].name);
  if (rows_by.empty()) table.header.emplace_back("");
  const bool pivot = across < spec.axes.size();
  if (pivot)
    for (const Choice& choice : spec.axes[across].choices) table.header.push_back(choice.label);
  else table.header.push_back(heading(spec.score));
  if (!pivot)
    for (const std::size_t i : chosen_by) table.header.push_back("best " + spec.axes[i].name);
  for (const std::string& name : spec.show) table.header.push_back(heading(name));
  std::vector<const SweepGroup*> firsts;
  const std::size_t first_column = std::max<std::size_t>(rows_by.size(), 1);
  for (const SweepGroup& group : groups) {
    const auto fits = [&](const SweepGroup* other) {
      return std::all_of(rows_by.begin(), rows_by.end(),
                         [&](std::size_t i) { return group.choices[i] == other->choices[i]; });
    };
    const auto found = pivot ? std::find_if(firsts.begin(), firsts.end(), fits) : firsts.end();
    const auto row = static_cast<std::size_t>(found - firsts.begin());
    if (found == firsts.end()) {
      firsts.push_back(&group);
      std::vector<std::string> cells;
      cells.reserve(table.header.size());
      for (const std::size_t i : rows_by) cells.push_back(label(spec, group, i));
      if (rows_by.empty()) cells.push_back(spec.score);
      cells.resize(table.header.size(), "-");
      table.rows.push_back(cells);
    }
    std::vector<std::string>& cells = table.rows[row];
    std::size_t column = first_column + (pivot ? group.choices[across] : 0);
    cells[column] = cell(group);
    if (!pivot)
      for (const std::size_t i : chosen_by) {
        // A choice of another axis may have set it.
        const std::string& value = group.chosen.front()->run.settings.at(spec.axes[i].name);
        const bool own = value == spec.axes[i].choices[group.choices[i]].value;
        cells[++column] = own ? label(spec, group, i) : value;
      }
    column = table.header.size() - spec.show.size();
    for (const std::string& name : spec.show) {
      const std::vector<double> numbers = finite_numbers(group, name);
      cells[column++] = shown(name, numbers.empty() ? std::nan("") : moments(numbers).mean);
    }
  }
  return table;
}

std::string SweepTable::text() const {
  TextTable table(header);
  for (const std::vector<std::string>& row : rows) table.row(row);
  return table.text();
}

std::string SweepTable::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& one : cells) {
      text += ' ';
      for (const char c : one) text += c == '|' ? std::string("\\|") : std::string(1, c);
      text += " |";
    }
    return text + "\n";
  };
  std::string text = line(header) + "|";
  for (std::size_t i = 0; i < header.size(); ++i) text += "---|";
  text += "\n";
  for (const std::vector<std::string>& row : rows) text += line(row);
  return text;
}

Plot sweep_plot(const SweepSpec& spec, const std::vector<SweepGroup>& groups) {
  Plot plot;
  plot.title = spec.title, plot.log_x = spec.log_x, plot.log_y = spec.log_y;
  const std::string y = spec.y.empty() ? spec.score : spec.y;
  std::size_t x_axis = spec.axes.size();
  for (std::size_t i = 0; i < spec.axes.size(); ++i)
    if (spec.axes[i].name == spec.x) x_axis = i;
  const bool curves = x_axis == spec.axes.size() && spec.x.find('.') != std::string::npos;
  plot.x_label = !spec.x_label.empty() ? spec.x_label : heading(spec.x);
  plot.y_label = !spec.y_label.empty() ? spec.y_label : heading(y);
  plot.whole_range = true;
  std::vector<std::vector<std::size_t>> keys;
  for (const SweepGroup& group : groups) {
    std::vector<std::size_t> key;
    std::string name;
    for (std::size_t i = 0; i < spec.axes.size(); ++i) {
      const bool wanted =
          spec.lines.empty() ? i != x_axis && varies(spec, i) && !reduced(spec, i) : spec.axes[i].name == spec.lines;
      if (!wanted) continue;
      key.push_back(group.choices[i]);
      name += (name.empty() ? "" : ", ") + label(spec, group, i);
    }
    auto found = std::find(keys.begin(), keys.end(), key);
    const auto at = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end() || curves) {
      if (found == keys.end()) keys.push_back(key);
      Line line;
      line.label = name.empty() ? y : name;
      // Two settings tell lines apart: one by its hue, the other by its dash.
      const bool two = key.size() == 2 && key[0] < 4 && key[1] < 7;
      line.hue = static_cast<int>(two ? key[1] : at) % 7, line.dash = static_cast<int>(two ? key[0] : at / 7) % 4;
      line.points = !curves;
      plot.lines.push_back(line);
      plot.bands.push_back({{}, {}, {}, line.hue});
    }
    Line& line = curves ? plot.lines.back() : plot.lines[at];
    Band& band = curves ? plot.bands.back() : plot.bands[at];
    const auto point = [&](double x_value, const std::vector<double>& ys) {
      const Moments m = moments(ys);
      line.x.push_back(x_value), line.y.push_back(ys.empty() ? std::nan("") : m.mean);
      if (ys.size() < 2) return;
      band.x.push_back(x_value), band.low.push_back(m.mean - m.spread), band.high.push_back(m.mean + m.spread);
    };
    if (curves) {
      const std::vector<double> xs = group.chosen.front()->list(spec.x);
      line.points = xs.size() < 8;
      for (std::size_t i = 0; i < xs.size(); ++i) {
        std::vector<double> ys;
        for (const SweepResult* one : group.chosen) {
          const std::vector<double> list = one->list(y);
          if (i < list.size() && std::isfinite(list[i])) ys.push_back(list[i]);
        }
        point(xs[i], ys);
      }
    } else if (x_axis < spec.axes.size()) {
      const Choice& choice = spec.axes[x_axis].choices[group.choices[x_axis]];
      char* end = nullptr;
      double value = std::strtod(choice.label.c_str(), &end);
      if (end == choice.label.c_str()) value = std::strtod(choice.value.c_str(), &end);
      if (end == choice.value.c_str()) value = static_cast<double>(group.choices[x_axis]);
      point(value, finite_numbers(group, y));
    } else {
      const std::vector<double> xs = finite_numbers(group, spec.x);
      if (!xs.empty()) point(moments(xs).mean, finite_numbers(group, y));
    }
  }
  std::erase_if(plot.bands, [](const Band& band) { return band.x.empty(); });
  return plot;
}

}  // namespace ttr::cli
