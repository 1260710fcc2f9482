#include "regress.h"

#include <fmt/format.h>

#include "atomic_file.h"
#include "progress.h"
#include "regress_parts.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

void require(bool condition, const std::string& message, const std::string& option) {
  if (!condition) throw Error(message, option);
}

void check(const RegressOptions& o) {
  require(o.lags >= 0 && o.lags <= 100000, fmt::format("--lags {} is out of range; give 1 to 100000 rows", o.lags),
          "--lags");
  require(o.horizon >= -1 && o.horizon <= 1000000,
          fmt::format("--horizon {} is out of range; give 0 to 1000000 rows", o.horizon), "--horizon");
  require(o.lags == 0 || o.horizon != 0,
          "--horizon 0 with --lags would ask for a row that is among its own keys; give --horizon 1 or more",
          "--horizon");
  require(o.window >= 0, fmt::format("--window {} is out of range; give a number of rows, at least 1", o.window),
          "--window");
  require(o.warmup >= -1, fmt::format("--warmup {} is out of range; give a number of rows, at least 0", o.warmup),
          "--warmup");
  require(o.season >= 0 && o.season <= 1000000,
          fmt::format("--season {} is out of range; give the rows of a season, such as 12", o.season), "--season");
  require(!o.tune || !o.interval,
          "--tune and --interval do not go together: a mixture of settings has no variance of its own", "--tune");
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
  const std::string* outputs[] = {&o.out, &o.report, &o.svg};
  for (int a = 0; a < 3; ++a)
    for (int b = a + 1; b < 3; ++b)
      require(outputs[a]->empty() || *outputs[a] != *outputs[b],
              fmt::format("two outputs would be written to '{}'; give each its own file", *outputs[a]), "--out");
  if (o.file.empty()) {
    require(
        o.keys.empty() && o.values.empty() && !o.bias && !o.standardize && o.lags == 0 && o.horizon <= 0 && !o.raw &&
            !o.tune && o.warmup < 0 && o.season == 0,
        "--keys, --values, --raw, --bias, --standardize, --lags, --horizon, --tune, --warmup and --season are about a "
        "file of rows, and none was given; write `ttr regress data.csv ...`",
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

int run_regress(const RegressOptions& options) {
  check(options);
  const InterruptGuard guard;
  try {
    return options.file.empty() ? run_switching(options) : run_stream(options);
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const Error&) {
    // Input that ended early because it was interrupted is not bad input.
    const int signal = interrupted();
    if (signal == 0) throw;
    fmt::print(stderr, "Interrupted by {} before the first row. Nothing was written.\n", signal_name(signal));
    return 128 + signal;
  }
}

}  // namespace ttr::cli
