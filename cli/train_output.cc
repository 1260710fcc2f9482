#include "train_output.h"

#include <fmt/format.h>

#include "report.h"
#include "terminal_plot.h"
#include "text_table.h"
#include "ttr/version.h"

namespace ttr::cli {
namespace {

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string clock_text(double seconds) {
  return seconds < 100 ? fmt::format("{:.1f} s", seconds)
                       : fmt::format("{} min {} s", static_cast<long>(seconds) / 60, static_cast<long>(seconds) % 60);
}

}  // namespace

std::string train_heading(const TrainRecord& r) {
  std::string text =
      fmt::format("{}\n{}: {} parameters, {} of state, {} steps of {} sequences\n", r.options.task,
                  r.options.config.stack, with_commas(static_cast<std::int64_t>(r.parameters)),
                  short_bytes(static_cast<double>(r.state_numbers * 4)), r.options.optimiser.steps, r.options.batch);
  if (!r.defaults.empty()) text += fmt::format("of a task of recall, unless given: {}\n", r.defaults);
  text += fmt::format("{:>8} {:>11} {:>11}", "step", "train loss", "test loss");
  if (r.text) text += fmt::format(" {:>9}", "bits/byte");
  if (!r.squared) text += fmt::format(" {:>9}", "accuracy");
  if (r.chance > 0) text += fmt::format(" {:>8}", "scaled");
  if (!r.squared && !r.text) text += fmt::format(" {:>9}", "sequences");
  return text + "\n";
}

std::string train_line(const TrainRow& row, const TrainRecord& r) {
  std::string text = fmt::format("{:>8} {:>11.5f} {:>11.5f}", row.step, row.train_loss, row.score.loss);
  if (r.text) text += fmt::format(" {:>9.4f}", row.score.bits());
  if (!r.squared) text += fmt::format(" {:>9.4f}", row.score.accuracy);
  if (r.chance > 0) text += fmt::format(" {:>8.4f}", row.score.scaled(r.chance));
  if (!r.squared && !r.text) text += fmt::format(" {:>9.4f}", row.score.sequence_accuracy);
  return text + "\n";
}

std::string train_curve(const TrainRecord& r, int columns) {
  TerminalSeries line, points;
  for (const TrainRecord::Point& p : r.curve) line.x.push_back(static_cast<double>(p.step)), line.y.push_back(p.loss);
  for (const TrainRow& row : r.rows)
    points.x.push_back(static_cast<double>(row.step)), points.y.push_back(row.score.loss);
  if (line.x.size() + points.x.size() < 2) return "";
  return "\nloss: the line is training, o is a test\n" + terminal_plot(line, points, columns, 10);
}

std::string train_closing(const TrainRecord& r) {
  std::string text =
      fmt::format("{}, {:.0f} tokens per second of training", clock_text(r.seconds), r.tokens_per_second());
  std::string advice = train_advice(r);
  if (!advice.empty()) advice += '\n';
  const std::string& out = r.options.out;
  if (out.empty()) return text + "; nothing was kept (--out DIR keeps the model)\n" + advice;
  if (r.status == "finished") return text + fmt::format("; {}/model.safetensors\n", out) + advice;
  return text +
         fmt::format("; {} at step {}, --resume goes on from {}/checkpoint.safetensors\n", r.status, r.step, out);
}

std::string live_note(const TrainRecord& r, std::int64_t steps, double loss, double accuracy,
                      double tokens_per_second) {
  std::string text = fmt::format("step {}/{}  loss {:.4f}", r.step, steps, loss);
  if (!r.squared) text += fmt::format("  accuracy {:.3f}", accuracy);
  return text + fmt::format("  {:.0f} tokens/s", tokens_per_second);
}

std::string train_report(const TrainRecord& r) {
  Report page;
  page.title = fmt::format("{} on {}", r.options.config.stack, r.task_name);
  page.subtitle = fmt::format(
      "{} parameters, {} of state per sequence; {} of {} steps in {}, {:.0f} tokens per second",
      with_commas(static_cast<std::int64_t>(r.parameters)), short_bytes(static_cast<double>(r.state_numbers * 4)),
      r.step, r.options.optimiser.steps, clock_text(r.seconds), r.tokens_per_second());
  Report::Table tests;
  tests.header = {"step", "train loss", "test loss"};
  if (r.text) tests.header.emplace_back("bits per byte");
  if (!r.squared) tests.header.emplace_back("accuracy");
  if (r.chance > 0) tests.header.emplace_back("scaled accuracy");
  if (!r.squared && !r.text) tests.header.emplace_back("whole sequences");
  Plot loss, accuracy;
  loss.title = "Loss", loss.x_label = accuracy.x_label = "step";
  loss.y_label = r.squared ? "mean squared error" : "cross-entropy (nats)";
  accuracy.title = "Accuracy", accuracy.y_label = "share of the test";
  loss.width = accuracy.width = 820, loss.height = accuracy.height = 360;
  Line train{"training", {}, {}, 0, 0, 1.4}, test{"test", {}, {}, 1, 0, 2.2};
  Line tokens{r.text ? "bytes" : "tokens", {}, {}, 2, 0, 2.0}, whole{"whole sequences", {}, {}, 4, 1, 2.0};
  for (const TrainRecord::Point& p : r.curve)
    train.x.push_back(static_cast<double>(p.step)), train.y.push_back(p.loss);
  double lowest = 0;
  for (std::size_t i = 0; i < r.rows.size(); ++i) {
    const TrainRow& row = r.rows[i];
    std::vector<std::string> cells = {std::to_string(row.step), fmt::format("{:.5f}", row.train_loss),
                                      fmt::format("{:.5f}", row.score.loss)};
    if (r.text) cells.push_back(fmt::format("{:.4f}", row.score.bits()));
    if (!r.squared) cells.push_back(fmt::format("{:.4f}", row.score.accuracy));
    if (r.chance > 0) cells.push_back(fmt::format("{:.4f}", row.score.scaled(r.chance)));
    if (!r.squared && !r.text) cells.push_back(fmt::format("{:.4f}", row.score.sequence_accuracy));
    tests.rows.push_back(std::move(cells));
    if (i == 0 || row.score.loss < lowest) lowest = row.score.loss, tests.emphasised = static_cast<int>(i);
    const auto x = static_cast<double>(row.step);
    test.x.push_back(x), test.y.push_back(row.score.loss);
    tokens.x.push_back(x), tokens.y.push_back(row.score.accuracy);
    whole.x.push_back(x), whole.y.push_back(row.score.sequence_accuracy);
  }
  tests.caption = fmt::format("Tests on {} sequences{}; in bold the lowest loss.", r.options.judged,
                              r.options.optimiser.ema > 0 ? " with the mean of the parameters" : "");
  page.tables.push_back(std::move(tests));
  loss.lines = {std::move(train), std::move(test)};
  page.figures.push_back({std::move(loss),
                          "Training: means over a two-hundredth of the steps. Tests: sequences that are "
                          "the same every time and not trained on."});
  if (!r.squared) {
    accuracy.lines = {std::move(tokens)};
    if (!r.text) accuracy.lines.push_back(std::move(whole));
    page.figures.push_back({std::move(accuracy), ""});
  }
  if (!r.sample.empty())
    page.texts.push_back({"A sample", fmt::format("The model goes on after '{}'.", r.prompt), r.sample});
  page.facts = {{"command", r.options.command}, {"task", r.options.task}, {"version", "ttr " TTR_VERSION}};
  for (auto& one : settings_text(r.options)) page.facts.push_back(std::move(one));
  return report_html(page);
}

}  // namespace ttr::cli
