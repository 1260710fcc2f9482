// Numbers of an earlier `ttr bench --json`.
#pragma once

#include <map>
#include <string>

namespace ttr::cli {

struct EarlierCase {
  double tokens_per_s = 0, percent_peak = 0;  // NaN if it was null
};

/// By bench_key(); throws Error for a file that is no such JSON.
std::map<std::string, EarlierCase> read_earlier(const std::string& path);

/// What makes two cases the same: "gla forward best f32 K64 V64 H8 T4096 threads 1".
std::string bench_key(const std::string& layer, const std::string& pass, const std::string& form,
                      const std::string& dtype, long key_dim, long value_dim, long heads, long key_heads, long time,
                      long threads, const std::string& gates);

}  // namespace ttr::cli
