// The side of ggml: a graph whose inputs are memory of the caller, and whose results lie in two places that take turns.
//
// A step of decoding is one set of nodes per token, of many tokens in one graph, so that starting a graph costs nothing. Two
// places: the results of a step, the next state among them, stay in the caches until the step after it has read them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "regress_parts.h"

namespace ttr::peers {

class Theirs {
 public:
  explicit Theirs(int threads);
  ~Theirs();
  Theirs(const Theirs&) = delete;
  Theirs& operator=(const Theirs&) = delete;

  ggml_context* context() const { return context_; }
  /// A float tensor on memory of the caller; the first extent is the innermost, as ggml counts.
  ggml_tensor* on(const float* data, std::initializer_list<std::int64_t> extents);
  ggml_tensor* on(const void* data, ggml_type, std::initializer_list<std::int64_t> extents);
  /// Numbers that ggml wants in another way than ttr; made at the first call for that name.
  const std::vector<float>& made(const std::string& name, const std::function<std::vector<float>()>& make);
  const std::vector<ggml_fp16_t>& made_half(const std::string& name, const std::function<std::vector<float>()>& make);

  /// Memory for the result of a node, which must be asked for before others are made of it; returns the node.
  ggml_tensor* result(ggml_tensor* node);
  /// Results from now on overwrite those of the step before the last.
  void next_step();
  /// Part of a result.
  ggml_tensor* part(ggml_tensor* whole, std::size_t first_number, std::initializer_list<std::int64_t> extents);

  void finish(const std::vector<ggml_tensor*>& outputs);  // once, when all nodes are there
  void run();

 private:
  struct Place {
    std::vector<cli::Buffer> pieces;
    std::size_t used = 0;  // pieces
  };
  ggml_context* context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_threadpool* pool_ = nullptr;
  ggml_cplan plan_{};
  cli::Buffer work_;
  Place places_[2];
  int place_ = 0;
  std::map<std::string, std::vector<float>> made_;
  std::map<std::string, std::vector<ggml_fp16_t>> half_;
};

}  // namespace ttr::peers
