#include "classify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "regress_input.h"
#include "regress_parts.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr double floor_share = 1e-4, share_back = 1e-3, memory = 0.999;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string_view trimmed(std::string_view field) {
  while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
  while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
  return field;
}

// Collects the words of a column.
class ClassCollector : public ColumnEncoder {
 public:
  int width() const override { return 1; }
  bool encode(std::string_view field, double* out) override {
    *out = 0;
    field = trimmed(field);
    if (means_missing(field) || words.size() > 2 * most_classes) return true;
    words.emplace(field, 0);
    return true;
  }
  std::string expected() const override { return "a word"; }
  void archive(Archive&) override {}

  std::map<std::string, int, std::less<>> words;
};

struct Word {
  const char *name, *loss;
};
constexpr Word words[] = {{"logistic", "logistic"}, {"cross-entropy", "cross_entropy"}};
constexpr const char* rates[] = {"0.01", "0.03", "0.1", "0.3", "1"};

const Word* word_of(const std::string& text) {
  for (const Word& word : words)
    if (text.substr(0, text.find(':')) == word.name) return &word;
  return nullptr;
}

}  // namespace

bool ClassEncoder::encode(std::string_view field, double* out) {
  field = trimmed(field);
  const auto found = std::find(classes_.begin(), classes_.end(), field);
  if (found == classes_.end()) {
    if (!means_missing(field)) return false;
    std::fill_n(out, classes_.size(), nan);
    return true;
  }
  std::fill_n(out, classes_.size(), 0.0);
  out[found - classes_.begin()] = 1;
  return true;
}

std::string ClassEncoder::expected() const {
  std::vector<std::string> shown(
      classes_.begin(), classes_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(classes_.size(), 20)));
  if (shown.size() < classes_.size()) shown.emplace_back("...");
  return "one of the classes " + join(shown);
}

std::vector<std::string> find_classes(const std::string& file, const std::string& header, const std::string& column) {
  const std::unique_ptr<RowSource> source = open_rows(file, header == "yes"  ? HeaderLine::yes
                                                            : header == "no" ? HeaderLine::no
                                                                             : HeaderLine::automatic);
  ClassCollector collector;
  source->select(find_columns({column}, *source, "--values"), {false}, {&collector});
  double ignored = 0;
  while (source->next(&ignored) != RowSource::Read::end) {
  }
  std::vector<std::string> classes;
  for (const auto& [word, none] : collector.words) classes.push_back(word);
  const auto number = [](const std::string& word) {
    double x = 0;
    return parse_number(word, x) == Parsed::number ? x : nan;
  };
  std::stable_sort(classes.begin(), classes.end(), [&](const std::string& a, const std::string& b) {
    const double x = number(a), y = number(b);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return x < y;
  });
  if (classes.size() < 2)
    throw Error(
        fmt::format("column '{}' of {} has {}; at least two are needed to tell them apart", column,
                    source->input_name(), classes.empty() ? "no class" : "one class, " + shown_value(classes[0])),
        "--classify");
  if (classes.size() > most_classes)
    throw Error(fmt::format("column '{}' of {} has more than {} classes, {} among them; if these are numbers to be "
                            "predicted as such, leave --classify out",
                            column, source->input_name(), most_classes, shown_value(classes[0])),
                "--classify");
  return classes;
}

std::string classifier_text(const std::string& text) {
  const Word* const word = word_of(text);
  if (!word) return text;
  std::string rate = "0.1";
  if (const std::size_t colon = text.find(':'); colon != text.npos) {
    double number = 0;
    rate = text.substr(colon + 1);
    if (!rate.starts_with("rate=") || parse_number(rate.substr(5), number) != Parsed::number || !(number > 0))
      throw Error(fmt::format("'{}': {} has one setting, rate, a number above 0, such as {}:rate=0.1", text,
                              word->name, word->name),
                  "--layer");
    rate = rate.substr(5);
  }
  return fmt::format("equal / linear / sgd(beta={}, adagrad) | {}", rate, word->loss);
}

std::vector<std::string> classifier_settings(const std::string& text) {
  if (!word_of(text)) return {};
  if (text.find(':') != text.npos) return {text};
  std::vector<std::string> list;
  for (const char* rate : rates) list.push_back(fmt::format("{}:rate={}", text, rate));
  return list;
}

// Steps of three sizes, least squares, and one that is not linear: an average over rows that were alike.
const std::vector<std::string>& default_classifiers() {
  static const std::vector<std::string> list = {"cross-entropy:rate=0.03", "cross-entropy:rate=0.1",
                                                "cross-entropy:rate=0.5", "rls:ridge=1", "softmax-attention"};
  return list;
}

Calibration::Calibration(std::size_t classes, bool log_odds)
    : classes_(classes),
      theta_(classes + 1),
      precision_((classes + 1) * (classes + 1)),
      work_(precision_.size()),
      p_(classes),
      g_(classes + 1) {
  theta_[0] = log_odds ? 1 : 4;
  for (std::size_t i = 0; i <= classes; ++i) precision_[i * (classes + 1) + i] = 1;
}

void Calibration::probabilities(const double* scores, double* p) const {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::size_t d = 0; d < classes_; ++d) {
    p[d] = theta_[0] * scores[d] + theta_[1 + d];
    if (!std::isfinite(p[d])) {  // the layer has left the numbers
      std::fill_n(p, classes_, nan);
      return;
    }
    top = std::max(top, p[d]);
  }
  for (std::size_t d = 0; d < classes_; ++d) sum += p[d] = std::exp(p[d] - top);
  for (std::size_t d = 0; d < classes_; ++d)
    p[d] = (1 - floor_share) * p[d] / sum + floor_share / static_cast<double>(classes_);
}

void Calibration::update(const double* scores, const double* actual) {
  probabilities(scores, p_.data());
  if (std::isnan(p_[0])) return;
  const std::size_t n = classes_ + 1;
  // J = (s, I), so J' W J with W = diag(p) - p p' has the blocks s' W s, W s and W.
  double mean = 0, square = 0;
  for (std::size_t d = 0; d < classes_; ++d) mean += p_[d] * scores[d], square += p_[d] * scores[d] * scores[d];
  for (double& x : precision_) x *= memory;
  for (std::size_t i = 0; i < n; ++i) precision_[i * n + i] += 1 - memory;
  precision_[0] += square - mean * mean;
  g_[0] = 0;
  for (std::size_t d = 0; d < classes_; ++d) {
    const double cross = p_[d] * (scores[d] - mean);
    precision_[1 + d] += cross, precision_[(1 + d) * n] += cross;
    for (std::size_t e = 0; e < classes_; ++e) precision_[(1 + d) * n + 1 + e] += p_[d] * ((d == e ? 1 : 0) - p_[e]);
    g_[1 + d] = p_[d] - actual[d];
    g_[0] += g_[1 + d] * scores[d];
  }
  // Solves P x = g by Cholesky's factors; P has a share of P_0 = I at all times.
  work_ = precision_;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double x = work_[i * n + j];
      for (std::size_t k = 0; k < j; ++k) x -= work_[i * n + k] * work_[j * n + k];
      work_[i * n + j] = i == j ? std::sqrt(std::max(x, 1e-12)) : x / work_[j * n + j];
    }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) g_[i] -= work_[i * n + k] * g_[k];
    g_[i] /= work_[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) g_[i] -= work_[k * n + i] * g_[k];
    g_[i] /= work_[i * n + i];
  }
  // A step of Newton's may be far too long where p is close to 0 or 1. The slope stays positive: more is more likely.
  for (std::size_t i = 0; i < n; ++i) theta_[i] -= std::clamp(g_[i], -1.0, 1.0);
  theta_[0] = std::max(theta_[0], 0.0);
}

ClassMix::ClassMix(std::size_t experts, std::size_t classes)
    : classes_(classes), weights_(experts, 1 / static_cast<double>(experts)) {}

void ClassMix::predict(const double* experts, double* p) const {
  std::fill_n(p, classes_, 0.0);
  double total = 0;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    const double* const q = experts + j * classes_;
    if (std::isnan(q[0])) continue;
    total += weights_[j];
    for (std::size_t d = 0; d < classes_; ++d) p[d] += weights_[j] * q[d];
  }
  for (std::size_t d = 0; d < classes_; ++d) p[d] = total > 0 ? p[d] / total : nan;
}

void ClassMix::update(const double* experts, const double* actual) {
  const std::size_t c = class_of(actual, classes_);
  double sum = 0, asleep = 0;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    const double p = experts[j * classes_ + c];
    if (std::isnan(p)) asleep += weights_[j];
    else sum += weights_[j] * p;
  }
  if (!(sum > 0)) return;
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    const double p = experts[j * classes_ + c];
    if (!std::isnan(p)) weights_[j] *= p / sum * (1 - asleep);
    weights_[j] = (1 - share_back) * weights_[j] + share_back / static_cast<double>(weights_.size());
  }
}

void Frequencies::predict(double* p) const {
  for (std::size_t d = 0; d < counts_.size(); ++d) p[d] = counts_[d] / rows_;
}

void Frequencies::update(const double* actual) {
  for (std::size_t d = 0; d < counts_.size(); ++d) counts_[d] += actual[d];
  ++rows_;
}

std::size_t class_of(const double* p, std::size_t classes) {
  return static_cast<std::size_t>(std::max_element(p, p + classes) - p);
}

namespace {

constexpr std::size_t auc_bins = 2048;

std::size_t auc_bin(double p) {
  const double log_odds = std::log(p / (1 - p));  // -+ inf at 0 and 1
  return static_cast<std::size_t>(std::clamp((log_odds + 10.5) / 21, 0.0, 1.0) * (auc_bins - 1));
}

}  // namespace

ClassMeasures::ClassMeasures(std::size_t classes)
    : classes_(classes),
      positive_(classes * auc_bins),
      negative_(classes * auc_bins),
      sums_(reliability_bins),
      hits_(reliability_bins),
      counts_(reliability_bins) {}

double ClassMeasures::add(const double* p, const double* actual, double weight) {
  const std::size_t c = class_of(actual, classes_);
  const double loss = -std::log(p[c]);
  log_loss_ += weight * loss, rows_ += weight;
  if (std::isnan(loss)) return loss;
  if (class_of(p, classes_) == c) correct_ += weight;
  for (std::size_t d = 0; d < classes_; ++d) {
    (d == c ? positive_ : negative_)[d * auc_bins + auc_bin(p[d])] += weight;
    if (classes_ == 2 && d == 0) continue;
    const std::size_t bin = std::min(static_cast<std::size_t>(p[d] * reliability_bins), reliability_bins - 1);
    sums_[bin] += weight * p[d], hits_[bin] += d == c ? weight : 0, counts_[bin] += weight;
  }
  return loss;
}

double ClassMeasures::log_loss() const { return rows_ > 0 ? log_loss_ / rows_ : nan; }

double ClassMeasures::accuracy() const { return rows_ > 0 ? correct_ / rows_ : nan; }

double ClassMeasures::auc() const {
  double mean = 0;
  int counted_classes = 0;
  for (std::size_t d = 0; d < classes_; ++d) {
    double wins = 0, below = 0, positives = 0;
    for (std::size_t b = d * auc_bins; b < (d + 1) * auc_bins; ++b) {
      wins += positive_[b] * (below + 0.5 * negative_[b]);
      below += negative_[b], positives += positive_[b];
    }
    if (positives == 0 || below == 0) continue;  // nothing to compare
    mean += wins / (positives * below), ++counted_classes;
  }
  return counted_classes > 0 ? mean / counted_classes : nan;
}

std::vector<ClassMeasures::Bin> ClassMeasures::reliability() const {
  std::vector<Bin> bins;
  for (std::size_t b = 0; b < counts_.size(); ++b) {
    if (counts_[b] == 0) continue;
    const double n = counts_[b], width = 1 / static_cast<double>(reliability_bins);
    Bin bin;
    bin.low = static_cast<double>(b) * width, bin.high = static_cast<double>(b + 1) * width;
    bin.mean = sums_[b] / n, bin.share = hits_[b] / n, bin.count = n;
    bin.standard_error = std::sqrt(bin.mean * (1 - bin.mean) / n);
    bins.push_back(bin);
  }
  return bins;
}

double ClassMeasures::calibration_error() const {
  double sum = 0, n = 0;
  for (const Bin& bin : reliability()) sum += bin.count * std::abs(bin.mean - bin.share), n += bin.count;
  return n > 0 ? sum / n : nan;
}

}  // namespace ttr::cli
