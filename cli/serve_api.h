// What `ttr serve` answers, without sockets: a request as text in, a response as text out. docs/regress.md lists the paths.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "serve_store.h"
#include "serve_text.h"

namespace ttr::cli {

struct ApiRequest {
  std::string_view method, path, body;
  std::string_view content_type, authorization, host, origin;  // headers; empty: not there
};

struct ApiResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
};

/// Counters for Prometheus. Safe to use from many threads.
class ServeMetrics {
 public:
  void request(int status, double seconds);
  std::atomic<std::int64_t> connections{0}, refused_connections{0}, rows_learned{0}, rows_predicted{0}, rows_bad{0};
  std::string text(const ModelStore& store) const;

 private:
  static constexpr std::array<double, 11> bounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                    0.05,   0.1,   0.25,   1,     2.5};
  mutable std::mutex mutex_;
  std::array<std::int64_t, bounds.size() + 1> counts_{};
  double seconds_ = 0;
  std::map<int, std::int64_t> by_status_;
};

class ServeApi {
 public:
  /// Without a token only requests that a program on this machine makes are answered (`allowed`).
  ServeApi(ModelStore& store, ServeMetrics& metrics, std::string token, const TextService* text = nullptr)
      : store_(store), metrics_(metrics), token_(std::move(token)), text_(text) {}

  /// Never throws.
  ApiResponse answer(const ApiRequest& request);
  /// Rows of a stream of lines as they come, each a JSON object; answers a line each. Throws Refusal if the model is gone or
  /// the log cannot be written.
  std::string lines(const std::string& model, bool learn, std::string_view text);
  /// Throws Refusal unless the request may be answered: 401 without the token; without a token set 403 for a host that is not
  /// this machine, or a page of a browser (which could otherwise be made to ask by any site).
  void allowed(const ApiRequest& request) const;
  /// "/models/NAME/learn" or "/models/NAME/predict": true, with the name and which of the two.
  static bool is_rows_path(std::string_view path, std::string& model, bool& learn);

 private:
  ApiResponse route(const ApiRequest& request);
  ApiResponse rows(const std::string& model, bool learn, const ApiRequest& request);
  std::vector<std::string> run(const std::string& model, bool learn, const std::vector<RequestRow>& rows,
                               std::size_t& bad);

  ModelStore& store_;
  ServeMetrics& metrics_;
  std::string token_;
  const TextService* text_;  // null: there is none
};

/// {"error": {"message": ..}} and a line end.
std::string refusal_json(std::string_view message);

}  // namespace ttr::cli
