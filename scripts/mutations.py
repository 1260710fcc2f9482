"""The list for mutate.py: small changes of the code that make an answer wrong, and the checks that must see each.

(name, file, old text, new text, what it means, checks). The old text occurs once in the file. A check is one of

  check LAYER ..    ttr check --quiet LAYER ..            (a layer, LAYER:CASE, LAYER(settings):CASE or a recipe)
  golden OP ..      ttr check --quiet --golden tests/golden OP ..
  recipes N SEED    ttr check --quiet --recipes N --seed SEED
  test FILE FILTER  the unit tests of FILE_test.cc that FILTER selects: for what the others cannot reach

Choose a change that compiles without warnings, in a file that few others include, and that only a size, a sign or a
corner reveals: a kernel that is wrong everywhere is seen by everything. The order does not matter.
"""

GATES = "src/families/linear/gates.h"
SOLVE = "src/families/common/solve.h"
ROWS = "src/families/solve/least_squares/rows.h"
SCAN = "src/families/common/scan.h"
SEGMENTS = "src/families/common/segments.h"
HEAD_RUN = "src/families/common/head_run.h"
STABILISED = "src/families/linear/stabilised/stabilised.cc"
LOG_LINEAR = "src/families/linear/log_linear/log_linear.cc"
PROJECTION = "src/families/linear/projection/projection.cc"
OJA = "src/families/linear/oja/oja.cc"
SQUARES = "src/families/linear/squares/squares.cc"
TOKEN = "src/families/linear/momentum/token.h"
SCALAR = "src/families/linear/scalar/recurrent.h"
SCALAR_CHUNK = "src/families/linear/scalar/chunk.h"
ATTENTION_BACK = "src/families/pairs/attention/backward.cc"
PATH_BACK = "src/families/pairs/path_attention/backward.cc"
DELTAFORMER = "src/families/pairs/deltaformer/deltaformer.cc"
KERNEL_BACK = "src/families/pairs/kernel_regression/backward.cc"
LANDMARKS = "src/families/pairs/gaussian_attention/gaussian_attention.cc"
FIT = "src/families/pairs/query_fit/tile.h"
WHOLE = "src/families/pairs/whole/whole.cc"
GIVENS = "src/families/solve/givens/givens.cc"
WINDOW = "src/families/solve/window/window.cc"
KALMAN = "src/families/solve/kalman/kalman.cc"
STEP = "src/families/network/neural/step.cc"
HEAD = "src/families/network/neural/head.cc"
NETWORK = "src/families/network/neural/network.cc"
SLIDING = "src/families/network/arrangement/sliding.cc"
CARRY = "src/families/elementwise/carry/carry.cc"
MEAN = "src/families/elementwise/weighted_mean/weighted_mean.cc"
CONVOLUTION = "src/families/elementwise/convolution/short_convolution.cc"
DIAGONAL = "src/families/elementwise/diagonal/diagonal.cc"
ROTATING = "src/families/elementwise/diagonal/rotating.h"
SELECTIVE = "src/families/elementwise/diagonal/selective.cc"
ROTARY = "src/prepare/rotary.cc"
PRODUCTS = "src/simd/squares.h"
ARITHMETIC = "src/prepare/arithmetic.cc"
FEATURES = "src/prepare/feature_maps.cc"
PARTITION = "src/run/partition.cc"
KERNELS = "src/run/kernels.cc"
FRAMES = "src/families/linear/frames-inl.h"
TOKENS = "src/families/linear/scalar/recurrent.h"
RUN = "src/run/run.cc"
OPERATIONS = "src/run/operation_steps.cc"

CG = "check 'equal / linear / cg(30):B1-T1-H2-K5-V4-f64-seed3' 'equal / linear / cg(30):B2-T2-H2-K5-V4-f64-seed4'"  # one key, two keys: singular systems

MUTATIONS = [
    # linear memories
    ("frame-start", FRAMES, "grow = hn::IfThenElse(goes_on, grow, one);",
     "grow = hn::IfThenElse(goes_on, grow, hn::Zero(d));",
     "a reader without its own gate sees nothing at the start of a frame", ["check rwkv-6"]),
    ("skip-of-a-head", TOKENS, "direct[i] = p.skip ? p.skip(h.first + i) : T(0);",
     "direct[i] = p.skip ? p.skip(h.first) : T(0);",
     "a step adds the skip of the first head to all of them", ["check mamba-2"]),
    ("gates-to-block-start", GATES, "s.mul((n - 1) * D, in + D, to_block + i0 * D, rows + D);",
     "s.mul((n - 1) * D, in + D, to_block + (i0 + 1) * D, rows + D);",
     "between blocks a reader without its own gate sees that gate", ["check rwkv-6"]),
    ("scan-short-round", SCAN, "std::copy_n(inner + (count - 2) * state, state, S);",
     "std::copy_n(inner + (std::min(g.count, most_segments) - 2) * state, state, S);",
     "scan: with more than one round of segments the last counts as a full one", ["check gla"]),
    ("scan-back-order", SCAN, "map_.compose(first, m, m);", "map_.compose(m, first, m);",
     "scan: maps of gradients are multiplied in the order of those of states", ["check deltanet"]),
    ("scan-sweep-map", SEGMENTS, "compose((i + 1) * 2 * d - 1, i * 2 * d + d - 1, worker);",
     "compose((i + 1) * 2 * d - 1, i * 2 * d, worker);",
     "scan: the up-sweep takes a map of too few segments from its second level on", ["check gla"]),
    ("heads-share-kept", HEAD_RUN, "scratch.data += h * own_slots.count * own_slots.stride, scratch",
     "scratch.data += h * 0 * own_slots.stride, scratch",
     "backward of heads that go together: one overwrites what a chunk kept of another", ["check deltanet"]),
    ("stabilised-token-normaliser", STABILISED, "s.scale(K, e[0], state[1], state[1]);",
     "s.scale(K, std::max(e[0], T(1e-3)), state[1], state[1]);",
     "decoding: the normaliser never fades by more than a thousandth at once", ["check mlstm"]),
    ("stabilised-floor-gradient", STABILISED, "d_m[i + 1] -= (1 - share) * floor * d_denom;",
     "d_m[i + 1] -= share * floor * d_denom;", "where e^-m divides, the gates get no gradient from it",
     ["check mlstm"]),
    ("log-linear-forgets-count", LOG_LINEAR, "return *p.count + t - p.linear.sequences[0].begin;",
     "return t - p.linear.sequences[0].begin;", "levels count the tokens of this call alone",
     ["check log-linear-attention"]),
    ("log-linear-slot-fades", LOG_LINEAR, "s.scale(K * V, e[c - 1], j < to ? d_dest : slot(d_state, j)",
     "s.scale(K * V, e[0], j < to ? d_dest : slot(d_state, j)",
     "gradient of a level fades by the first gate of the chunk alone", ["check log-linear-attention"]),
    ("projection-pairs-stay", PROJECTION, "std::copy_n(pairs + (i + time) * width, width, to);",
     "std::copy_n(pairs + i * width, width, to);", "a call shorter than the window does not move the pairs kept",
     ["check affine-projection"]),
    ("projection-next-window", PROJECTION, "std::copy_n(products + (i + 1) * P + 1, i + 1, products + i * P);",
     "std::copy_n(products + (i + 1) * P, i + 1, products + i * P);",
     "products of the window before are moved up and not to the left", ["check affine-projection"]),
    ("projection-pairs-gradient", PROJECTION, "d_initial[(i + time) * width + h * dim + c] += from[h * dim + c];",
     "d_initial[i * width + h * dim + c] += from[h * dim + c];",
     "its gradient goes to the wrong pair", ["check affine-projection"]),
    ("oja-map-writes", OJA, "p.linear.k = {};\n    std::fill_n(A, V * V, T(0));", "std::fill_n(A, V * V, T(0));",
     "scan: the map of a segment writes keys as well", ["check gated-oja"]),
    ("squares-memory-of-group", SQUARES, "++head, memory += group * size)", "++head, memory += size)",
     "sums of squares: the second key head goes on in the memory of the first's second head", ["check rebased"]),
    ("squares-gradient-of-later", PRODUCTS, "sum += d[D + pair_index(j, i, D)] * x(j);",
     "sum += d[D + pair_index(j, j + 1, D)] * x(j);", "gradient of a product x_j x_i, j < i: of another pair",
     ["check rebased"]),
    ("momentum-gate-gradient", TOKEN, "+= mu * s.dot(n, dZ, old[1]);", "+= s.dot(n, dZ, old[1]);",
     "gradient of the momentum's gate without the gate itself", ["check momentum-deltanet"]),
    ("step-heads-state", SCALAR, "S + Size{h.first} * K * V, answers, ld);",
     "S + Size{h.first % 16} * K * V, answers, ld);",
     "decoding: heads beyond the 16th use the states of the first", ["check deltanet"]),
    ("delta-undecayed-read", SCALAR_CHUNK, "read[i] = p.g && undecayed ? step * read[i] : step;",
     "read[i] = step;", "a read before the decay is read after it", ["check leaky-lms comba lms-decoupled-decay"]),
    ("delta-state-gradient", SCALAR_CHUNK, "x, K, y, V, gated ? e[c] : T(1), d_end, V, d_start, V,",
     "x, K, y, V, gated ? e[1] : T(1), d_end, V, d_start, V,", "backward: a chunk fades the state's gradient by one gate",
     ["check gated-deltanet"]),
    # pairs
    ("sink-first-200", ATTENTION_BACK, "t < (n + 1) * sequence.tokens; ++t)\n        total +=",
     "t < n * sequence.tokens + std::min<Size>(200, sequence.tokens); ++t)\n        total +=",
     "gradient of the sink: only the first 200 tokens", ["check softmax-attention"]),
    ("bandwidth-gradient", ATTENTION_BACK, "moment / static_cast<double>(p.bandwidth(head))",
     "moment / static_cast<double>(p.bandwidth(0))", "gradient of a bandwidth divided by that of the first head",
     ["check softmax-attention"]),
    ("path-maps-of-last-tile", PATH_BACK, "queries, K, d_x, K, T(1), d_P + b * K * K, K);",
     "queries, K, d_x, K, T(0), d_P + b * K * K, K);",
     "gradient of a block's transport: of the last tile of queries alone", ["check path-attention"]),
    ("path-gates-between", PATH_BACK, "between[b] = sum;", "between[b] = sum / 2;",
     "backward: gates between a tile and a block two before it count half", ["check path-attention"]),
    ("deltaformer-two-blocks", DELTAFORMER, "b-- > 0;) older(p, key_head, r, x.tile(i), x.block(b));",
     "b-- > std::max<Size>(0, x.past_blocks() + i - 2);) older(p, key_head, r, x.tile(i), x.block(b));",
     "backward: pairs more than two blocks old get nothing", ["check deltaformer"]),
    ("kernel-far-blocks", KERNEL_BACK, "for (Size J = sums.left(I); J <= I; ++J)\n        run.kernel.back",
     "for (Size J = std::max(sums.left(I), I - 1); J <= I; ++J)\n        run.kernel.back",
     "gradient of kappa(K, K): keys more than two blocks apart get nothing", ["check kernel-regression"]),
    ("landmarks-diagonal", LANDMARKS, "i == j ? nullptr : d_w + j * K);", "d_w + j * K);",
     "gradient of the landmarks: the diagonal counts twice", ["check skyformer"]),
    ("whole-old-ridge", WHOLE, "weighable && (new_keys || ridge != now.ridge)", "weighable && new_keys",
     "heads that share keys share the ridge of the first", ["test whole '*'"]),
    # least squares
    ("cg-no-stop", SOLVE, "(curvature <= flat * ", "(curvature < 0 * ",
     "conjugate gradients go on where the matrix has no curvature", [CG]),
    ("cg-no-stop-rows", ROWS, "(curvature <= Solve::flat * ", "(curvature < 0 * ",
     "the same for many systems at once", [CG]),
    ("givens-weight-in-gate", GIVENS, "total = decay == 0 ? 0.0 : total - beta * d_beta;",
     "total = decay == 0 ? 0.0 : total - d_beta;", "gradient of the gates: what a pair takes off, without its weight",
     ["check 'gate(beta) / linear / exact:B1-T12-H2-K4-V3-f64-seed2'"]),
    ("window-gone-gates", WINDOW, "add_pair(gone, -w, -c * fade, -c * w, t);", "add_pair(gone, -w, -c * fade, 0, t);",
     "a pair that leaves the window gives its gates no gradient",
     ["check 'window(4) * gate(beta) / linear / exact(ridge=0.1):B1-T12-H2-K4-V3-f64-seed2'"]),
    ("window-keys-per-head", WINDOW, "const bool leader = head % (a.heads / a.key_heads) == 0;",
     "const bool leader = head % (a.heads / a.key_heads) >= 0;",
     "gradient of the keys kept: once for every head that shares them", ["test window '*'"]),
    ("kalman-growth", KALMAN, "static_cast<T>(growth * s.dot(K * K, d_p, M));", "static_cast<T>(s.dot(K * K, d_p, M));",
     "gradient of the gate without the growth", ["test kalman '*'"]),
    # networks
    ("muon-along", STEP, "s.axpy(n, -along, G, d_G);", "s.axpy(n, -along / 2, G, d_G);",
     "gradient of an orthogonalised update: half of what the norm takes", ["check omega-rule lact"]),
    ("qnorm-exponent", STEP, "(q - 2) * norm.factor / norm.sum;", "(q - 1) * norm.factor / norm.sum;",
     "gradient of the q-norm with another exponent", ["check moneta"]),
    ("row-norm-zero", STEP, "factor[c] = 1, towards[c] = 0;", "factor[c] = 0, towards[c] = 0;",
     "gradient at a column of zeros: cut, though the column stays as it is", ["test neural '*'"]),
    ("window-history-weight", HEAD, "p.state.history_weight[slot * p.heads + x.head] : T(1);",
     "p.state.history_weight[slot * p.heads] : T(1);", "importance of pairs of earlier calls: that of the first head",
     ["check omega-rule"]),
    ("scale-of-update", NETWORK, "if (mix.P) r_->spread(n, V, mix.c, mix.P + offset, true, r.scale);",
     "if (mix.P && n > 64) r_->spread(n, V, mix.c, mix.P + offset, true, r.scale);",
     "the norm's learned weight without its waiting update", ["check titans-pytorch"]),
    ("sliding-window", SLIDING, "x.window = a_.window, x.past = list.live();",
     "x.window = a_.window + 1, x.past = list.live();", "attention sees one pair more than its window",
     ["check titans-mag"]),
    # elementwise, and running quantities
    ("phase-second-block", CARRY, "T* const to = row_of(d.d_x, n.row, t, head) + first * d.d_x.stride[3];",
     "T* const to = row_of(d.d_x, n.row, t, head) + first % 32 * d.d_x.stride[3];",
     "gradient of a phase: channels beyond the 32nd add to the first", ["test carry '*'"]),
    ("positions-of-packed", CARRY, "const T first = *state - static_cast<T>(n.begin);", "const T first = *state;",
     "positions of a packed sequence count from the start of the row", ["test carry '*'"]),
    ("share-gradient", CARRY, "dz[i] = s.q * dz[i] - s.p * result;", "dz[i] = s.q * dz[i];",
     "gradient of the log of a running sum: its share is left out", ["check abc"]),
    ("mean-exponent", MEAN, "own = m[2 * D + i], top = std::max(old, own);", "own = m[2 * D + i], top = std::max(S[2 * D + i], own);",
     "scan: the exponent of the start is compared before it has faded", ["check rwkv-4"]),
    ("convolution-cache", CONVOLUTION, "else if (g.d_cache) to = g.d_cache + (c.W - 1 + t) * c.D;",
     "else if (g.d_cache) to = g.d_cache + (c.W - 2) * c.D;",
     "gradient of a cache that outlives a short call: to its last row", ["check short-convolution"]),
    ("diagonal-scan-phase", DIAGONAL, "e.turn(D, A, A + D, spare, spare_im);", "e.decay(D, A, spare), e.decay(D, A, spare_im);",
     "scan of complex states: the start of a segment does not turn", ["check lru"]),
    ("diagonal-phase-gradient", ROTATING, "d_theta[n] = s.dot(V, old_re, im) - s.dot(V, old_im, re);",
     "d_theta[n] = s.dot(V, old_re, im) + s.dot(V, old_im, re);", "gradient of a phase: a sign", ["check gateloop"]),
    ("diagonal-power", DIAGONAL, "if (tokens % 2 == 1) multiply(square, square + D, A);",
     "if (tokens == 1) multiply(square, square + D, A);",
     "scan with constant gates: a power of a number of tokens that is no power of two", ["check lru"]),
    ("rotating-map-order", ROTATING, "turn_block(p.k, e.products_before, A);",
     "turn_block(p.k, e.products_after, A);",
     "scan of complex gates: what a token writes is turned by the gates before it", ["check gateloop"]),
    ("rotating-block", ROTATING, "made_from = from, made_to = to;", "made_from = from, made_to = to + 1;",
     "complex gates: the first token behind a block of 32 has factors that were never made", ["check gateloop"]),
    ("selective-border", SELECTIVE, "for (Size i = 0; i + 1 < count; ++i) {\n      std::copy_n(borders + i * size",
     "for (Size i = 0; i + 1 < count; ++i) {\n      std::copy_n(borders + std::min<Size>(i, 8) * size",
     "backward: from the tenth segment on all start from the ninth", ["check mamba-1"]),
    # pairs
    ("query-fit-centre", FIT, "s.axpy(dim - 1, 1.0, B + 1, made + j * dim + 1);",
     "s.axpy(dim - 2, 1.0, B + 1, made + j * dim + 1);",
     "local polynomials: the last monomial stays where it is, and the query is read around the mean",
     ["check 'near(exp) / local(3) / exact(ridge=0.1)'"]),
    # per-token operations
    ("rotary-block", ROTARY, "static_cast<double>(t + j) + first + shift", "static_cast<double>(j) + first + shift",
     "positions start anew with every block of angles", ["check rotary"]),
    ("cosformer-position", ROTARY, "Angles<T>{1, 1, from[1], extent, simd}.each(\n        frequency(number), "
     "[&](int, int, const Rows<const T>& c, const Rows<const T>& s, const Region& at) {\n          const Rows<T> y",
     "Angles<T>{1, 0, from[1], extent, simd}.each(\n        frequency(number), "
     "[&](int, int, const Rows<const T>& c, const Rows<const T>& s, const Region& at) {\n          const Rows<T> y",
     "cosFormer counts from 0", ["golden feature_map_cosformer"]),
    ("spread-first-tokens", ARITHMETIC, "p.to_every = n, p.tokens = (time + n - 1) / n;",
     "p.to_every = n, p.tokens = time / n - (time > 1000);",
     "several pairs per token: the gate of the last token of a long call is lost", ["check gated-deltaproduct"]),
    ("taylor-cross", FEATURES, "sum += g * a.x[0][j];\n        a.dx[0][j] += g * x;",
     "sum += g * a.x[0][j];\n        a.dx[0][j] += g * (j < 16 ? x : 0);",
     "gradient of the Taylor map: cross terms beyond the 16th channel", ["check feature-taylor2"]),
    # running
    ("partition-remainder", PARTITION, "static_cast<int>(std::int64_t{all} * m / parts)",
     "static_cast<int>(std::int64_t{all} / parts * m)", "threads: heads that do not divide evenly are left out",
     ["check deltanet"]),
    ("partition-shared-gradient", PARTITION,
     'heads &= has_axis(body, index, "HG"), sequences &= has_axis(body, index, "B");',
     'heads &= has_axis(body, index, "HG");', "threads: sequences add to one parameter at the same time",
     ["test threads '*'"]),
    ("columns-of-constant", PARTITION, "(!value(body, index).axes.empty() && value(body, index).axes.back() == 'V')",
     "value(body, index).axes.back() == 'V'", "threads: the last axis of a constant, which has none, is read",
     ["check based:B1-T60-H1-K70-V9-f64-alone-seed14"]),
    ("columns-of-state", KERNELS, "    each_part(true);", "    if (share.first_column == 0) each_part(true);",
     "threads that share a head by columns: only the first keeps its part of the state", ["check deltanet"]),
    ("counts-of-heads", KERNELS, "if (own_counts) std::memcpy(body.counts(state), counts, N * sizeof(std::int64_t));",
     "if (own_counts) std::memcpy(body.counts(state), counts, sizeof(std::int64_t));",
     "threads: only the first sequence counts its tokens", ["check softmax-attention", "check log-linear-attention"]),
    ("backward-one-sequence", KERNELS, "cut.heads > 1 ? b.sequences.size() : 1;",
     "cut.heads > 1 ? std::min<std::size_t>(2, b.sequences.size()) : 1;",
     "threads, backward by heads: only two sequences", ["check deltanet"]),
    ("block-of-pairs", RUN, "const std::ptrdiff_t first = places.of_pairs ? begin * pairs : begin;",
     "const std::ptrdiff_t first = begin;", "blocks of time: several pairs per token count as one",
     ["check gated-deltaproduct"]),
    ("operation-tail", OPERATIONS, "end = units * (i + 1) / tasks * unit;", "end = units / tasks * (i + 1) * unit;",
     "threads: per-token operations leave out what does not divide evenly", ["check mamba-2"]),
]
