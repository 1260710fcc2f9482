// `ttr serve`: models that learn and predict over HTTP (docs/regress.md), and completions of a language model (docs/models.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve_text.h"

namespace ttr::cli {

struct ServeOptions {
  std::string folder;
  std::string host = "127.0.0.1";
  int port = 8321;         // 0: any that is free
  std::string token_file;  // its first line is the token
  bool sync = false;       // acknowledged rows survive a power cut
  int threads = 0;         // 0: as many as the machine has
  std::int64_t max_body = 8 << 20;
  std::int64_t max_connections = 512;
  std::int64_t max_models = 10000;
  std::int64_t max_log = 64 << 20;
  int timeout = 10;        // seconds in which a request must have arrived and its response must have left
  int idle_timeout = 120;  // seconds between requests, and between lines of a stream
  bool json = false;
  TextServiceOptions text;  // without a model: no completions
  std::function<std::unique_ptr<TextService>(const TextServiceOptions&)>
      open_text;  // empty: built without ttr::language
};

/// Returns 0 when it was asked to end. Throws Error.
int run_serve(const ServeOptions&);

}  // namespace ttr::cli
