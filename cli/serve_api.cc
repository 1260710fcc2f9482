#include "serve_api.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "allocation_count.h"
#include "ttr/status.h"
#include "ttr/version.h"

namespace ttr::cli {
namespace {

constexpr std::string_view lines_type = "application/x-ndjson";

bool is_loopback_host(std::string_view host) {
  if (host.starts_with("[")) return host.substr(0, host.find(']') + 1) == "[::1]";
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host == "127.0.0.1";
}

// Takes the same time whatever the first difference is.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[b.empty() ? 0 : i % b.size()]));
  return difference == 0;
}

std::string_view without_blanks(std::string_view line) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!line.empty() && blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && blank(line.back())) line.remove_suffix(1);
  return line;
}

}  // namespace

std::string refusal_json(std::string_view message) {
  return Json::object().set("error", Json::object().set("message", message)).dump(-1) + "\n";
}

void ServeMetrics::request(int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin())];
  seconds_ += seconds, ++by_status_[status];
}

std::string ServeMetrics::text(const ModelStore& store) const {
  std::string out;
  const auto head = [&](const char* name, const char* type, const char* help) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  const auto one = [&](const char* name, const char* type, const char* help, std::int64_t number) {
    head(name, type, help);
    out += fmt::format("{} {}\n", name, number);
  };
  one("ttr_models", "gauge", "Models that are served.", static_cast<std::int64_t>(store.count()));
  one("ttr_connections", "gauge", "Open connections.", connections);
  one("ttr_refused_connections_total", "counter", "Connections refused because there were too many.",
      refused_connections);
  one("ttr_rows_learned_total", "counter", "Rows learned.", rows_learned);
  one("ttr_rows_predicted_total", "counter", "Rows predicted without learning.", rows_predicted);
  one("ttr_rows_bad_total", "counter", "Rows that were refused.", rows_bad);
  one("ttr_log_bytes", "gauge", "Bytes of the log of rows that are not in a saved model yet.", store.log_bytes());
  const std::lock_guard lock(mutex_);
  head("ttr_requests_total", "counter", "Requests answered, by status.");
  for (const auto& [status, count] : by_status_)
    out += fmt::format("ttr_requests_total{{code=\"{}\"}} {}\n", status, count);
  head("ttr_request_seconds", "histogram", "Time from the last byte of a request to its response.");
  std::int64_t sum = 0;
  for (std::size_t b = 0; b < counts_.size(); ++b) {
    sum += counts_[b];
    out += fmt::format("ttr_request_seconds_bucket{{le=\"{}\"}} {}\n",
                       b < bounds.size() ? fmt::format("{}", bounds[b]) : "+Inf", sum);
  }
  return out + fmt::format("ttr_request_seconds_sum {}\nttr_request_seconds_count {}\n", seconds_, sum);
}

void ServeApi::allowed(const ApiRequest& request) const {
  if (!token_.empty()) {
    const std::string_view prefix = "Bearer ";
    if (!request.authorization.starts_with(prefix) ||
        !same_secret(token_, request.authorization.substr(prefix.size())))
      throw Refusal(401, "this server wants its token: send the header Authorization: Bearer TOKEN");
    return;
  }
  if (!request.origin.empty())
    throw Refusal(403, "a page in a browser may not use this server; start it with --token-file to allow it");
  if (!is_loopback_host(request.host))
    throw Refusal(403,
                  fmt::format("the host '{}' is not this machine; start the server with --token-file to allow it",
                              request.host.substr(0, 80)));
}

bool ServeApi::is_rows_path(std::string_view path, std::string& model, bool& learn) {
  const std::string_view prefix = "/models/";
  if (!path.starts_with(prefix)) return false;
  path.remove_prefix(prefix.size());
  const std::size_t slash = path.find('/');
  if (slash == path.npos) return false;
  const std::string_view what = path.substr(slash + 1);
  if (what != "learn" && what != "predict") return false;
  model = path.substr(0, slash), learn = what == "learn";
  return true;
}

std::vector<std::string> ServeApi::run(const std::string& model, bool learn, const std::vector<RequestRow>& rows,
                                       std::size_t& bad) {
  std::vector<std::string> answers = learn ? store_.learn(model, rows, bad) : store_.predict(model, rows, bad);
  const auto good = static_cast<std::int64_t>(rows.size() - bad);
  (learn ? metrics_.rows_learned : metrics_.rows_predicted) += good;
  metrics_.rows_bad += static_cast<std::int64_t>(bad);
  return answers;
}

std::string ServeApi::lines(const std::string& model, bool learn, std::string_view text) {
  // Lines that are no row have their answer already; the others are done together, in their order.
  std::vector<RequestRow> rows;
  std::vector<std::string> answers;
  std::vector<std::size_t> places;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_blanks(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    answers.emplace_back();
    try {
      rows.push_back({JsonRow::parse(line), std::string(line)});
      places.push_back(answers.size() - 1);
    } catch (const Error& error) {
      answers.back() = refusal_json(error.what());
      answers.back().pop_back();
      ++metrics_.rows_bad;
    }
  }
  std::size_t bad = 0;
  std::vector<std::string> done = run(model, learn, rows, bad);
  for (std::size_t i = 0; i < done.size(); ++i) answers[places[i]] = std::move(done[i]);
  std::string out;
  for (const std::string& answer : answers) out += answer, out += '\n';
  return out;
}

ApiResponse ServeApi::rows(const std::string& model, bool learn, const ApiRequest& request) {
  if (request.content_type.starts_with(lines_type))
    return {200, lines(model, learn, request.body), std::string(lines_type)};
  const std::string_view body = without_blanks(request.body);
  std::vector<RequestRow> rows;
  std::size_t bad = 0;
  try {
    const Json json = parse_shallow(body, "the body of the request");
    if (!json.is_array()) {
      rows.push_back({JsonRow::from(json), std::string(body)});
      const std::string answer = run(model, learn, rows, bad)[0] + "\n";
      return {bad == 0 ? 200 : 400, answer};
    }
    for (std::size_t i = 0; i < json.size(); ++i) {
      const Json one = json.at(i);
      rows.push_back({JsonRow::from(one), one.dump(-1)});
    }
  } catch (const Error& error) {
    throw Refusal(400, error.what());
  }
  std::string out = "[";
  for (const std::string& answer : run(model, learn, rows, bad)) out += (out.size() > 1 ? ",\n " : "") + answer;
  return {200, out + "]\n"};
}

ApiResponse ServeApi::route(const ApiRequest& request) {
  const std::string_view path = request.path.substr(0, request.path.find('?'));
  const auto is = [&](std::string_view method, std::string_view what) {
    return request.method == method && path == what;
  };
  const auto done = [](const char* word) { return ApiResponse{200, fmt::format("{{\"{}\": true}}\n", word)}; };
  if (is("GET", "/health"))
    return {200, fmt::format("{{\"status\": \"ok\", \"version\": \"{}\", \"models\": {}}}\n", TTR_VERSION,
                             store_.count())};
  allowed(request);
  if (is("GET", "/metrics"))
    return {200, metrics_.text(store_) + (text_ ? text_->metrics() : ""), "text/plain; version=0.0.4"};
  if (path.starts_with("/v1/")) {
    if (!text_) throw Refusal(404, "this server has no language model; start it with --model PATH");
    if (is("GET", "/v1/models")) return {200, text_->models()};
    if (path == "/v1/completions") throw Refusal(405, "/v1/completions is asked with POST");
    throw Refusal(404, fmt::format("there is no {}; there are /v1/completions and /v1/models", path.substr(0, 200)));
  }
  if (is("GET", "/models")) {
    Json list = Json::array();
    for (const std::string& name : store_.names()) list.push(name);
    return {200, Json::object().set("models", list).dump(-1) + "\n"};
  }
  if (is("POST", "/save")) {
    try {
      store_.save_all();
    } catch (const Error& error) {
      throw Refusal(507, error.what());
    }
    return done("saved");
  }
  std::string model;
  bool learn = false;
  if (is_rows_path(path, model, learn)) {
    if (request.method != "POST") throw Refusal(405, fmt::format("{} is asked with POST", path));
    return rows(model, learn, request);
  }
  const std::string_view prefix = "/models/";
  if (path.starts_with(prefix)) {
    std::string name(path.substr(prefix.size()));
    if (name.ends_with("/save") && request.method == "POST") {
      store_.save(name.substr(0, name.size() - 5));
      return done("saved");
    }
    if (name.find('/') == name.npos && !name.empty()) {
      if (request.method == "PUT") {
        try {
          store_.make(name, parse_shallow(request.body, "the body of the request"));
        } catch (const Error& error) {
          throw Refusal(400, error.what());
        }
        return {201, done("made").body};
      }
      if (request.method == "GET") return {200, store_.describe(name)};
      if (request.method == "DELETE") {
        store_.remove(name);
        return done("deleted");
      }
      throw Refusal(405, "a model is made with PUT, read with GET and deleted with DELETE");
    }
  }
  throw Refusal(404, fmt::format("there is no {} {}; docs/regress.md and `ttr serve --help` list what there is",
                                 request.method.substr(0, 20), path.substr(0, 200)));
}

ApiResponse ServeApi::answer(const ApiRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  ApiResponse response;
  try {
    response = route(request);
  } catch (const Refusal& refusal) {
    response = {refusal.status(), refusal_json(refusal.what())};
  } catch (const std::bad_alloc&) {
    response = {507, refusal_json(no_memory_in_words())};
  } catch (const std::exception& error) {
    response = {500, refusal_json(error.what())};
  }
  metrics_.request(response.status, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return response;
}

}  // namespace ttr::cli
