#include "serve_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "classify.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

void put_number(std::string& out, double number) {
  if (std::isfinite(number)) fmt::format_to(std::back_inserter(out), FMT_STRING("{}"), number);
  else out += "null";
}

std::string quoted(const std::string& text) { return Json(text).dump(-1); }

std::vector<std::string> columns_of(const RegressOptions& o) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto* list : {&o.keys, &o.with, &o.dates, &o.categories, &o.values})
    for (const std::string& name : *list) add(name);
  add(o.weights), add(o.group);
  return names;
}

[[noreturn]] void refuse_option(const std::string& name, const std::string& what) {
  throw Error(fmt::format("\"{}\" must be {}", name, what), name);
}

std::vector<std::string> list_of(const Json& json, const std::string& name) {
  if (json.is_text()) return {json.text()};
  std::vector<std::string> list;
  if (!json.is_array()) refuse_option(name, "a text or a list of texts");
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (!json.at(i).is_text()) refuse_option(name, "a text or a list of texts");
    list.push_back(json.at(i).text());
  }
  return list;
}

std::int64_t whole(const Json& json, const std::string& name) {
  const double number = json.number();
  if (!(std::abs(number) <= 1e9) || number != std::floor(number)) refuse_option(name, "a whole number");
  return static_cast<std::int64_t>(number);
}

bool flag(const Json& json, const std::string& name) {
  if (!json.is_bool()) refuse_option(name, "true or false");
  return json.dump(-1) == "true";
}

}  // namespace

Json parse_shallow(std::string_view text, const std::string& where) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text && c == '\\') ++i;
    else if (c == '"') in_text = !in_text;
    else if (!in_text && (c == '[' || c == '{')) {
      if (++depth > 8) throw Error(where + " is nested too deeply", where);
    } else if (!in_text && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return Json::parse(text, where);
}

JsonRow JsonRow::from(const Json& json) {
  JsonRow row;
  if (!json.is_object()) throw Error("a row is an object, such as {\"x\": 1.5, \"y\": 2}", "row");
  const bool flat = json.for_each([&](const std::string& name, bool null, double number, const std::string& text) {
    row.fields.push_back({name, text, number, null});
  });
  if (!flat) throw Error("a row holds numbers, texts and null, not lists or objects", "row");
  return row;
}

JsonRow JsonRow::parse(std::string_view text) { return from(parse_shallow(text, "the row")); }

void PushedRows::select(std::vector<int> columns, std::vector<bool> optional, std::vector<ColumnEncoder*> encoders) {
  columns_ = std::move(columns), optional_ = std::move(optional), encoders_ = std::move(encoders);
}

RowSource::Read PushedRows::refuse(int column, std::string_view what) {
  bad_ = {fmt::format("the value of '{}' {}", names_[static_cast<std::size_t>(column)], what),
          names_[static_cast<std::size_t>(column)]};
  return Read::bad;
}

RowSource::Read PushedRows::next(double* out) {
  if (!row_) return Read::end;
  const JsonRow& row = *row_;
  row_ = nullptr;
  ++rows_;
  bad_ = {};
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::string& name = names_[static_cast<std::size_t>(columns_[i])];
    // Rows of one client have their fields in one order, often that of the columns.
    const std::size_t guess = static_cast<std::size_t>(columns_[i]);
    auto field =
        guess < row.fields.size() && row.fields[guess].name == name
            ? row.fields.begin() + static_cast<std::ptrdiff_t>(guess)
            : std::find_if(row.fields.begin(), row.fields.end(), [&](const auto& f) { return f.name == name; });
    const bool there = field != row.fields.end() && !field->null;
    const bool number = there && !std::isnan(field->number);
    if (ColumnEncoder* const encoder = i < encoders_.size() ? encoders_[i] : nullptr) {
      const std::string text = !there ? "" : number ? fmt::format("{}", field->number) : field->text;
      if (!encoder->encode(text, out))
        return refuse(columns_[i], fmt::format("is {}, not {}", shown_value(text), encoder->expected()));
      out += encoder->width();
      continue;
    }
    *out = number ? field->number : nan;
    if (!number) {
      const std::string_view text = there ? std::string_view(field->text) : std::string_view();
      const Parsed parsed = parse_number(text, *out);
      if (parsed != Parsed::number) {
        *out = nan;
        if (!means_missing(text))
          return refuse(columns_[i], fmt::format("is {}, which {}", shown_value(text), why(parsed)));
        if (i >= optional_.size() || !optional_[i]) return refuse(columns_[i], "is missing; a number belongs there");
      }
    }
    ++out;
  }
  return Read::row;
}

RegressOptions options_from_json(const Json& json) {
  RegressOptions o;
  if (!json.is_object())
    throw Error(
        "a model is made from an object, such as {\"keys\": [\"x\"], \"values\": [\"y\"], \"layers\": [\"nlms\"]}",
        "model");
  o.file = "-";
  const auto given = [&](const char* name) { return !json.at(name).is_null(); };
  const auto texts = [&](const char* name, std::vector<std::string>& to) {
    if (given(name)) to = list_of(json.at(name), name);
  };
  const auto number = [&](const char* name, std::int64_t& to) {
    if (given(name)) to = whole(json.at(name), name);
  };
  const auto yes = [&](const char* name, bool& to) {
    if (given(name)) to = flag(json.at(name), name);
  };
  const auto text = [&](const char* name, std::string& to) {
    if (given(name) && !json.at(name).is_text()) refuse_option(name, "a text");
    if (given(name)) to = json.at(name).text();
  };
  text("group", o.group), text("weights", o.weights);
  number("delay", o.delay), yes("iterate", o.iterate);
  texts("keys", o.keys), texts("values", o.values), texts("layers", o.layers), texts("with", o.with);
  texts("dates", o.dates), texts("categories", o.categories), texts("classes", o.classes);
  yes("raw", o.raw), yes("bias", o.bias), yes("standardize", o.standardize), yes("tune", o.tune);
  yes("diff", o.differences), yes("classify", o.classify);
  number("category_slots", o.category_slots), number("fourier", o.fourier), number("horizon", o.horizon);
  number("warmup", o.warmup), number("season", o.season);
  if (given("window")) o.window = whole(json.at("window"), "window");
  if (given("lags"))
    o.lags_text =
        json.at("lags").is_text() ? json.at("lags").text() : fmt::format("{}", whole(json.at("lags"), "lags"));
  if (given("missing")) {
    o.missing = json.at("missing").text();
    const char* const known[] = {"error", "skip", "last", "mean", "indicator"};
    if (std::none_of(std::begin(known), std::end(known), [&](const char* word) { return o.missing == word; }))
      refuse_option("missing", "error, skip, last, mean or indicator");
  }
  if (given("interval")) o.interval = json.at("interval").number();
  json.for_each_name([&](const std::string& name) {
    const char* const known[] = {
        "keys",    "values",  "layers",      "with",    "dates",   "categories", "classes",
        "raw",     "bias",    "standardize", "tune",    "diff",    "classify",   "category_slots",
        "fourier", "horizon", "warmup",      "season",  "window",  "lags",       "missing",
        "group",   "weights", "delay",       "iterate", "interval"};
    if (std::none_of(std::begin(known), std::end(known), [&](const char* word) { return name == word; }))
      throw Error(
          fmt::format("a model has no option \"{}\"; there are keys, values, layers, lags, horizon, with, dates, "
                      "categories, category_slots, missing, classify, classes, group, weights, delay, iterate, raw, "
                      "bias, standardize, tune, "
                      "diff, fourier, season, warmup, window and interval",
                      name),
          name);
  });
  if (o.values.empty()) throw Error("a model predicts something; name it, such as \"values\": [\"y\"]", "values");
  check_regress(o);
  return o;
}

ServedModel::ServedModel(RegressOptions options) { start(std::move(options), ""); }

ServedModel::ServedModel(const std::string& bytes, const std::string& name) {
  RegressOptions options = Stream::saved_options(bytes, name);
  options.file = "-", options.load = name;
  start(std::move(options), bytes);
}

void ServedModel::start(RegressOptions options, const std::string& bytes) {
  auto source = std::make_unique<PushedRows>(columns_of(options));
  source_ = source.get();
  stream_ = std::make_unique<Stream>(std::move(options), std::move(source), bytes);
  source_->set_rows_read(stream_->rows_read());
  intervals_ = stream_->options().interval.has_value(), classes_ = stream_->options().classify;
  for (const Stream::Place& part : stream_->places())
    parts_.push_back({quoted(part.name), part.prediction, part.half});
  for (const std::string& name : stream_->answer_names()) value_names_.push_back(quoted(name));
}

void ServedModel::answer(const double* numbers, std::string& out) const {
  const auto each = [&](const auto& write) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      out += p == 0 ? "" : ", ";
      out += parts_[p].name, out += ": ";
      write(parts_[p]);
    }
  };
  const std::size_t V = value_names_.size();
  const auto values = [&](const auto& write) {
    out += V > 1 ? "{" : "";
    for (std::size_t v = 0; v < V; ++v) {
      if (V > 1) out += v == 0 ? "" : ", ", out += value_names_[v], out += ": ";
      write(v);
    }
    out += V > 1 ? "}" : "";
  };
  if (classes_) {
    out += ", \"classes\": {";
    each([&](const Part& part) {
      const double* const p = numbers + part.prediction;
      out += !numbers || std::isnan(p[0]) ? "null" : value_names_[class_of(p, V)];
    });
    out += "}";
  }
  out += classes_ ? ", \"probabilities\": {" : ", \"predictions\": {";
  each([&](const Part& part) {
    values([&](std::size_t v) { put_number(out, numbers ? numbers[part.prediction + v] : nan); });
  });
  out += "}";
  if (intervals_) {
    out += ", \"intervals\": {";
    each([&](const Part& part) {
      values([&](std::size_t v) {
        const double at = numbers ? numbers[part.prediction + v] : nan, half = numbers ? numbers[part.half + v] : nan;
        out += "[", put_number(out, at - half), out += ", ", put_number(out, at + half), out += "]";
      });
    });
    out += "}";
  }
}

void ServedModel::learn(const JsonRow& row, std::string& out) {
  source_->push(row);
  const double* const numbers = stream_->learn_row();
  fmt::format_to(std::back_inserter(out), FMT_STRING("{{\"row\": {}"), rows());
  answer(numbers, out);
  out += "}";
}

void ServedModel::predict(const JsonRow& row, std::string& out) {
  const std::int64_t before = source_->rows_read();
  source_->push(row);
  const double* numbers = nullptr;
  try {
    numbers = stream_->ask_row();
  } catch (...) {
    source_->set_rows_read(before);
    throw;
  }
  source_->set_rows_read(before);
  fmt::format_to(std::back_inserter(out), FMT_STRING("{{\"row\": {}"), before + 1);
  answer(numbers, out);
  out += "}";
}

}  // namespace ttr::cli
