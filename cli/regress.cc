#include "regress.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "atomic_file.h"
#include "classify.h"
#include "progress.h"
#include "regress_parts.h"
#include "standard_files.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

void require(bool condition, const std::string& message, const std::string& option) {
  if (!condition) throw Error(message, option);
}

// "12", or a list of numbers and ranges: "1,12,13", "1-3,12".
void read_lags(RegressOptions& o) {
  const std::string& text = o.lags_text;
  if (text.empty()) return;
  const auto number = [&](std::string_view word) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    require(!word.empty() && error == std::errc() && end == word.data() + word.size() && n >= 0 && n <= 100000,
            fmt::format("--lags '{}' is neither a number of rows, 1 to 100000, nor a list such as 1,12,13 or 1-3,12",
                        text),
            "--lags");
    return n;
  };
  if (text.find_first_of(",-") == text.npos) {
    o.lags = number(text);
    return;
  }
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::string_view word = std::string_view(text).substr(from, to - from);
    const std::size_t dash = word.find('-');
    const std::int64_t first = number(word.substr(0, dash)),
                       last = dash == word.npos ? first : number(word.substr(dash + 1));
    require(first >= 1 && last >= first, fmt::format("--lags '{}': lags count from 1, and ranges upwards", text),
            "--lags");
    for (std::int64_t lag = first; lag <= last; ++lag) {
      require(std::find(o.lag_list.begin(), o.lag_list.end(), lag) == o.lag_list.end(),
              fmt::format("--lags '{}' names {} twice", text, lag), "--lags");
      o.lag_list.push_back(lag), o.lags = std::max(o.lags, lag);
    }
    from = to + 1;
  }
}

void check(const RegressOptions& o) {
  require(o.lags >= 0 && o.lags <= 100000, fmt::format("--lags {} is out of range; give 1 to 100000 rows", o.lags),
          "--lags");
  require(!o.differences || o.lags > 0, "--diff is about a series; give --lags too", "--diff");
  require(o.fourier >= 0 && o.fourier <= 1000, fmt::format("--fourier {} is out of range; give 1 to 1000", o.fourier),
          "--fourier");
  require(o.fourier == 0 || (o.season > 1 && 2 * o.fourier <= o.season),
          fmt::format("--fourier {} needs a season of at least {} rows; give --season", o.fourier, 2 * o.fourier),
          "--fourier");
  require(o.category_slots >= 2 && o.category_slots <= 10000,
          fmt::format("--category-slots {} is out of range; give 2 to 10000", o.category_slots), "--category-slots");
  require(o.horizon >= -1 && o.horizon <= 1000000,
          fmt::format("--horizon {} is out of range; give 0 to 1000000 rows", o.horizon), "--horizon");
  require(o.lags == 0 || o.horizon != 0,
          "--horizon 0 with --lags would ask for a row that is among its own keys; give --horizon 1 or more",
          "--horizon");
  require(!o.window || (*o.window >= 1 && *o.window <= 1'000'000'000),
          fmt::format("--window {} is out of range; give 1 to 1000000000 rows", o.window.value_or(0)), "--window");
  require(o.warmup >= -1, fmt::format("--warmup {} is out of range; give a number of rows, at least 0", o.warmup),
          "--warmup");
  require(o.season >= 0 && o.season <= 1000000,
          fmt::format("--season {} is out of range; give the rows of a season, such as 12", o.season), "--season");
  require(o.delay >= 0 && o.delay <= 1000000,
          fmt::format("--delay {} is out of range; give 0 to 1000000 rows", o.delay), "--delay");
  require(o.id.empty() || (o.lags == 0 && o.horizon <= 0 && o.delay == 0 && o.season == 0),
          "--id brings values to questions by their name, in any order; leave --lags, --horizon, --delay and "
          "--season out",
          "--id");
  require(!o.iterate || o.delay == 0,
          "--iterate with --delay: answers cannot be fed back before the values they follow "
          "on are known; leave one of them out",
          "--iterate");
  require(!o.iterate || !o.load.empty() || (o.lags > 0 && o.horizon > 1),
          "--iterate reaches a horizon in steps of one row; give --lags N and --horizon 2 or more", "--iterate");
  require(o.group.empty() || !o.coefficients,
          "--coefficients with --group: there is a table for every group; --coefficients-out FILE writes them all",
          "--coefficients");
  require(o.coefficients_out.empty() || o.coefficients_out.ends_with(".csv"),
          fmt::format("--coefficients-out '{}': coefficients are written as .csv", o.coefficients_out),
          "--coefficients-out");
  const std::size_t dot = o.out.rfind('.'), slash = o.out.rfind('/');
  const std::string ending =
      dot == std::string::npos || (slash != std::string::npos && dot < slash) ? "" : o.out.substr(dot);
  require(ending.empty() || ending == ".csv" || ending == ".npy" || ending == ".txt",
          fmt::format("--out '{}': predictions are written as .csv or .npy, not as {}", o.out, ending), "--out");
  require(!o.interval || (*o.interval > 0 && *o.interval < 1),
          fmt::format("--interval {} is not a level between 0 and 1; write 0.9 for intervals that hold 90 % of the "
                      "values",
                      o.interval.value_or(0)),
          "--interval");
  require(o.on_bad == "error" || o.on_bad == "skip",
          fmt::format("--on-bad '{}' is unknown; it is error or skip", o.on_bad), "--on-bad");
  require(o.header == "auto" || o.header == "yes" || o.header == "no",
          fmt::format("--header '{}' is unknown; it is auto, yes or no", o.header), "--header");
  require(o.seeds >= 1 && o.seeds <= 100000, fmt::format("--seeds {} is out of range; give 1 to 100000", o.seeds),
          "--seeds");
  require(o.time >= 4 && o.time <= 100000, fmt::format("--time {} is out of range; give 4 to 100000 steps", o.time),
          "--time");
  require(o.threads >= 0, fmt::format("--threads {} is out of range; give 1 or more", o.threads), "--threads");
  const std::string* outputs[] = {&o.out, &o.report, &o.svg, &o.save, &o.coefficients_out};
  for (int a = 0; a < 5; ++a)
    for (int b = a + 1; b < 5; ++b)
      require(outputs[a]->empty() || *outputs[a] != *outputs[b],
              fmt::format("two outputs would be written to '{}'; give each its own file", *outputs[a]), "--out");
  require(o.classes.empty() || o.classify, "--classes lists the classes of --classify; give that too", "--classes");
  require(!o.classify || (!o.interval && o.season == 0 && !o.differences && !o.coefficients && !o.detect &&
                          !o.iterate && o.coefficients_out.empty()),
          "--classify predicts classes, which --interval, --season, --diff, --detect, --iterate and --coefficients "
          "are not about; leave "
          "these out",
          "--classify");
  require(!o.classify || o.values.size() <= 1,
          fmt::format("--classify predicts one column, and --values names {}", o.values.size()), "--classify");
  require(!o.classify || o.classes.empty() ||
              (o.classes.size() >= 2 && o.classes.size() <= static_cast<std::size_t>(most_classes)),
          fmt::format("--classes names {}; give 2 to {}",
                      counted(static_cast<std::int64_t>(o.classes.size()), "class"), most_classes),
          "--classes");
  require(!o.classify || !o.classes.empty() || o.file != "-" || !o.load.empty(),
          "a live stream does not say beforehand which classes there are; list them, such as --classes yes,no",
          "--classes");
  for (std::size_t i = 0; i < o.classes.size(); ++i)
    require(std::find(o.classes.begin(), o.classes.begin() + static_cast<std::ptrdiff_t>(i), o.classes[i]) ==
                o.classes.begin() + static_cast<std::ptrdiff_t>(i),
            fmt::format("--classes names '{}' twice", o.classes[i]), "--classes");
  require(o.checkpoint_every >= 0,
          fmt::format("--checkpoint-every {} is out of range; give a number of rows", o.checkpoint_every),
          "--checkpoint-every");
  require(o.checkpoint_every == 0 || !o.save.empty(),
          "--checkpoint-every says how often to save; give --save model.ttr too", "--checkpoint-every");
  require(!o.resume || !o.load.empty(), "--resume goes on where a model stopped; give --load model.ttr too",
          "--resume");
  require(
      o.load.empty() || (o.keys.empty() && o.values.empty() && o.layers.empty() && o.lags == 0 && o.horizon < 0 &&
                         !o.raw && !o.bias && !o.standardize && !o.tune && !o.interval && o.season == 0 &&
                         o.with.empty() && o.dates.empty() && o.categories.empty() && !o.differences &&
                         o.fourier == 0 && o.warmup < 0 && !o.window && o.group.empty() && o.weights.empty() &&
                         o.delay == 0 && o.id.empty() && !o.iterate && !o.detect && !o.classify),
      fmt::format(
          "'{}' has columns, layers and settings of its own; leave --keys, --values, --layer, --lags, --horizon, "
          "--with, --dates, --categories, --diff, --fourier, --raw, --bias, --standardize, --tune, --interval, "
          "--season, --warmup, --window, --group, --weights, --delay, --id, --iterate, --detect and --classify out",
          o.load),
      "--load");
  require(
      !o.file.empty() || (o.save.empty() && o.load.empty()),
      "--save and --load are about a file of rows, and none was given; write `ttr regress data.csv --save model.ttr`",
      "--save");
  if (o.file.empty()) {
    require(o.keys.empty() && o.values.empty() && o.with.empty() && o.dates.empty() && o.categories.empty() &&
                !o.bias && !o.standardize && o.lags == 0 && o.horizon <= 0 && !o.raw && !o.tune && !o.coefficients &&
                o.warmup < 0 && o.season == 0 && o.group.empty() && o.weights.empty() && o.delay == 0 && !o.detect &&
                !o.watch && o.coefficients_out.empty() && !o.classify,
            "--keys, --values, --raw, --bias, --standardize, --lags, --horizon, --tune, --coefficients, --warmup, "
            "--season, --group, --weights, --delay, --detect, --classify and --watch are about a file of rows, and "
            "none was "
            "given; write `ttr regress data.csv ...`",
            "ttr regress");
    require(o.out.empty(),
            "--out is about a file of rows, and none was given; write `ttr regress data.csv --out preds.csv`",
            "--out");
  } else {
    require(o.process_options.empty(),
            fmt::format("{} {} about the built-in process, which runs without a file; leave {} out for '{}'",
                        join(o.process_options), o.process_options.size() == 1 ? "is" : "are",
                        o.process_options.size() == 1 ? "it" : "them", o.file),
            "command line");
    for (const std::string* output : outputs)
      require(output->empty() || *output == "-" || !same_file(o.file, *output),
              fmt::format("the output '{}' is the input file itself; choose another name", *output), "--out");
  }
}

}  // namespace

void check_regress(RegressOptions& options) {
  read_lags(options);
  check(options);
}

int run_regress(RegressOptions options) {
  check_regress(options);
  const InterruptGuard guard;
  try {
    return options.file.empty() ? run_switching(options) : run_stream(options);
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const Error&) {
    // Input that ended early because it was interrupted is not bad input.
    const int signal = interrupted();
    if (signal == 0) throw;
    tell("Interrupted by {} before the first row. Nothing was written.\n", signal_name(signal));
    return 128 + signal;
  }
}

}  // namespace ttr::cli
