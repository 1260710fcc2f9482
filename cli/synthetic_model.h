// Language models of random numbers in the published formats: what `ttr bench language` measures.
#pragma once

#include <string>
#include <vector>

namespace ttr::cli {

struct SyntheticModel {
  std::string architecture;  // one of synthetic_architectures()
  std::string type;          // of the matrices: f32, bf16, f16 (.safetensors), q8_0, q4_0 (GGUF)
  bool small = false;        // some 100,000 parameters in place of 400,000,000
  int copy = 1;              // other numbers
};

/// rwkv-7, mamba-2, gated-deltanet
std::vector<std::string> synthetic_architectures();

/// Writes it into a folder that is there and empty; returns the path to load. Throws Error.
std::string write_synthetic_model(const SyntheticModel&, const std::string& folder);

}  // namespace ttr::cli
