#include "bench_compare.h"

#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ttr/status.h"

namespace ttr::cli {

std::string bench_key(const std::string& layer, const std::string& pass, const std::string& form,
                      const std::string& dtype, long key_dim, long value_dim, long heads, long key_heads, long time,
                      long threads, const std::string& gates) {
  return fmt::format("{} {} {} {} K{} V{} H{} G{} T{} threads {} gates {}", layer, pass, form, dtype, key_dim,
                     value_dim, heads, key_heads, time, threads, gates);
}

std::map<std::string, EarlierCase> read_earlier(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error("cannot read " + path + "; it must be the output of an earlier `ttr bench --json`", "--compare");
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [&](const std::string& what) {
    return Error(path + " " + what + "; it must be the output of an earlier `ttr bench --json`", "--compare");
  };
  if (json.is_discarded()) throw wrong("is not JSON");
  if (!json.is_object() || !json.contains("cases") || !json["cases"].is_array()) throw wrong("has no list of cases");
  std::map<std::string, EarlierCase> cases;
  for (const auto& entry : json["cases"]) {
    if (!entry.is_object()) throw wrong("has a case that is no object");
    const auto text = [&](const char* name) {
      const auto found = entry.find(name);
      if (found == entry.end() || !found->is_string()) throw wrong(fmt::format("has a case without {}", name));
      return found->get<std::string>();
    };
    const auto whole = [&](const char* name) {
      const auto found = entry.find(name);
      if (found == entry.end() || !found->is_number_integer())
        throw wrong(fmt::format("has a case without {}", name));
      return found->get<long>();
    };
    const auto number = [&](const char* name) {
      const auto found = entry.find(name);
      return found != entry.end() && found->is_number() ? found->get<double>()
                                                        : std::numeric_limits<double>::quiet_NaN();
    };
    const std::string key =
        bench_key(text("layer"), text("pass"), text("form"), text("dtype"), whole("d_key"), whole("d_value"),
                  whole("heads"), entry.contains("key_heads") ? whole("key_heads") : whole("heads"), whole("time"),
                  whole("threads"), entry.contains("gates") ? text("gates") : "gentle");
    cases[key] = {number("tokens_per_s"), number("percent_peak")};
  }
  return cases;
}

}  // namespace ttr::cli
