// `ttr train`: a model of any stack of layers on a task of ttr/tasks.h or on a text file.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "ttr/model.h"
#include "ttr/optimiser.h"

namespace ttr::cli {

/// What tasks of recall begin with: taps of the convolution, the rate, and from how many tokens on embedding and head
/// are one.
constexpr int recall_taps = 2, recall_tied = 512;
constexpr double recall_rate = 1e-2;

struct TrainOptions {
  TrainOptions() {
    config.heads = 2;
    optimiser.rate = 5e-3, optimiser.warmup = -1, optimiser.clip = 1;
  }

  std::string task;   // a task with settings, or the path of a text file; empty: list the tasks
  int time = 256;     // of a text file: bytes of a sequence,
  double held = 0.1;  // and the share at its end that is held out for the tests
  // Every one of these has a value that trains.
  model::Config config;
  model::OptimiserConfig optimiser;  // warmup -1: a twentieth of the steps, at most 100
  int batch = 32;
  std::int64_t seed = 1;
  int every = 0, judged = 256;  // steps between two tests (0: ten in all), and their sequences
  bool reproducible = false;    // sums of gradients that do not depend on how many ranks share the work
  // What does not change the result.
  int threads = 0, sequence_ranks = 1;  // ranks of mpirun that hold the pieces of a sequence
  std::int64_t until = 0;               // stop after so many steps, whatever the schedule; 0: its steps
  std::int64_t checkpoint_every = 0;    // steps; 0: at every test and every minute
  std::string out, report;
  bool resume = false, json = false, quiet = false;
  std::string command;          // for the report
  std::set<std::string> given;  // options that are on the command line: "--width"
};

/// The options that belong to a run, each once: visit("--width", field, meaning). The command line is declared with it, and
/// a run that is taken up again compares with it what it is told.
template <class Visit>
void run_settings(Visit&& visit, auto& o) {
  auto& c = o.config;
  auto& how = o.optimiser;
  visit("--layer,--stack", c.stack, "a layer, a recipe, or a stack: 'gated-deltanet*3, softmax(window=128)'");
  visit("--steps", how.steps, "steps of the schedule");
  visit("--seed", o.seed, "of parameters and data");
  visit("--width", c.width, "of the residual stream");
  visit("--heads", c.heads, "heads of every layer");
  visit("--key-dim", c.key_dim, "0: width / heads");
  visit("--value-dim", c.value_dim, "0: width / heads");
  visit("--mlp", c.mlp, "swiglu, gelu or none");
  visit("--mlp-width", c.mlp_width, "hidden units; 0: by the width");
  visit("--embedding-scale", c.embedding_scale, "standard deviation; 0: 1/sqrt(width)");
  visit("--tied", c.tied,
        "the head is the embedding; so it is on a task of recall with 512 tokens or more (--tied=false)");
  visit("--optimiser", how.method, "adamw, sgd, muon, soap or shampoo");
  visit("--rate", how.rate, "largest learning rate; of adamw on a task of recall 1e-2");
  visit("--schedule", how.schedule, "cosine, linear or constant");
  visit("--warmup", how.warmup, "steps; -1: a twentieth of all, at most 100");
  visit("--last", how.last, "share of the rate that is left at the end");
  visit("--decay", how.decay, "weight decay of matrices");
  visit("--beta1", how.beta1, "of adamw, and of what muon, soap and shampoo leave to it");
  visit("--beta2", how.beta2, "the same");
  visit("--clip", how.clip, "largest length of the gradient; 0: any");
  visit("--momentum", how.momentum, "of sgd and muon");
  visit("--nesterov", how.nesterov, "sgd looks ahead");
  visit("--statistics", how.statistics, "of soap and shampoo: what L and R keep at every step");
  visit("--refresh", how.every, "of soap and shampoo: steps between two looks at the eigenvectors or roots");
  visit("--longest-side", how.longest, "of soap and shampoo: sides of matrices above this are left alone");
  visit("--damping", how.damping, "of shampoo: this share of the mean eigenvalue is added");
  visit("--graft", how.graft, "of shampoo: whose step's length it takes: adam, sgd or none");
  visit("--groups", how.groups,
        "rates (factors) and decays of some parameters: 'embedding: rate=0.1; *.norm: decay=0'");
  visit("--ema", how.ema,
        "factor of a running mean of the parameters, which is then what is tested and kept; 0: none");
  visit("--batch", o.batch, "sequences of a step");
  visit("--every", o.every, "steps between two tests; 0: a tenth of all");
  visit("--test", o.judged, "sequences of a test");
  visit("--reproducible", o.reproducible,
        "sequence by sequence with exact sums: the same bits on any number of ranks of mpirun");
}

int run_train(const TrainOptions&);

}  // namespace ttr::cli
