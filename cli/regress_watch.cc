#include "regress_watch.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "progress.h"
#include "regress_stream.h"
#include "standard_files.h"
#include "terminal_plot.h"
#include "text_table.h"

namespace ttr::cli {

std::string Stream::picture(int columns) const {
  TerminalSeries line, points;
  const std::size_t f = judged();
  for (const Answered& s : shown_) {
    const double x = static_cast<double>(s.row);
    line.x.push_back(x), line.y.push_back(s.answer[forecasters_->prediction_at(f)]);
    points.x.push_back(x), points.y.push_back(s.actual[0]);
  }
  const Score& score = scores_[f];
  const int V = static_cast<int>(V_);
  std::string text = fmt::format(
      "{}: o is {}, the line its prediction by {}. {}\n", counted(good_rows_, "row"), value_names_[0], score.name,
      score.rows == 0
          ? std::string("Nothing is scored yet.")
          : fmt::format("MSE {}, of the last {} {}.", short_number(score.mse(V)),
                        counted(score.windows.rows_of_one(), "row"), short_number(score.windows.last_full())));
  if (!shown_.empty()) text += terminal_plot(line, points, columns, 14);
  return text;
}

void Watch::show(const std::string& text) {
  std::string out = lines_ > 0 ? fmt::format("\x1b[{}A\x1b[J", lines_) : std::string();
  out += text;
  tell_text(out);
  lines_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void Watch::draw(const Stream& stream) {
  if (isatty(STDERR_FILENO) != 1) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(250)) return;
  last_ = now;
  show(stream.picture(std::min(terminal_width(), 120)));
}

void Watch::finish(const Stream& stream) { show(stream.picture(std::min(terminal_width(), 120)) + "\n"); }

}  // namespace ttr::cli
