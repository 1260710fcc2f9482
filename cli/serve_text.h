// What `ttr serve` asks a language model for: completions in the manner of OpenAI, several texts at a time. serve.cc knows this
// alone, so that a build without ttr::language has the rest of the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ttr::cli {

class TextService {
 public:
  /// A part of an answer: of a stream, lines of server-sent events; else the whole of it. Comes from a thread of the service.
  struct Piece {
    int status = 200;
    std::string text;
    bool last = false;
  };
  using Put = std::function<void(Piece)>;
  struct Asked {
    std::uint64_t number = 0;  // for cancel
    bool stream = false;
  };
  virtual ~TextService() = default;
  /// The body of POST /v1/completions. Throws Refusal; else `put` gets the answer, and is not called after its last piece.
  virtual Asked ask(std::string_view body, Put put) = 0;
  /// Nobody reads the answer any more. No call of its `put` begins after this.
  virtual void cancel(std::uint64_t number) = 0;
  /// GET /v1/models
  virtual std::string models() const = 0;
  /// Lines for /metrics.
  virtual std::string metrics() const = 0;
  /// Ends what is under way, with what it has; no `put` is called or kept after this.
  virtual void end() = 0;
};

struct TextServiceOptions {
  std::string model, tokenizer;
  int threads = 0, context = 4096;
  int slots = 8, queue = 64;  // texts at a time, and those that wait
  int most_tokens = 4096;     // of an answer
  std::string activations = "exact";
};
/// With ttr::language only. Throws Error.
std::unique_ptr<TextService> open_text_service(const TextServiceOptions&);

}  // namespace ttr::cli
